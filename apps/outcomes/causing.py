"""The cause of a failure: what its error has in common with others of its kind. Pure."""

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from apps.usage.figures import Cause

HOST_CHARS = 253
CLASS_CHARS = 100
STATUS_CHARS = 20
MESSAGE_CHARS = 200
_VARYING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16,}|\d+", re.IGNORECASE)
# Who and what a run was about: it has no place among the figures of all tenants, and would make a cause of each run.
_PERSONAL = re.compile(r"""\"[^"]*\"|'[^']*'|(?<=\?)[^\s?]+""")
_WORD = re.compile(r"""[^\s<>()'",;]+""")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


def fingerprint(error: Mapping[str, Any] | None, *, host: str = "") -> str:
    """Groups failures of one cause: class, status, host, and the message without its varying parts."""
    return cause_of(error, host=host).fingerprint


def cause_of(error: Mapping[str, Any] | None, *, host: str = "") -> Cause:
    """The cause with what people are shown of it: short texts that JSON and PostgreSQL take, without personal parts."""
    known = error or {}
    return _cause(str(known.get("class", "")), str(known.get("status", "")), host, str(known.get("message", "")))


def normalised(message: str) -> str:
    """A message without numbers, ids, quoted text, mail addresses and queries, at most MESSAGE_CHARS long."""
    text = _PERSONAL.sub("…", message[: 5 * MESSAGE_CHARS])
    if "@" in text:
        text = _WORD.sub(lambda word: "…" if "@" in word[0] else word[0], text)
    return _short(_VARYING.sub("#", text), MESSAGE_CHARS)


@lru_cache(maxsize=1_024)  # what fails does so again and again with the same words
def _cause(error_class: str, status: str, host: str, message: str) -> Cause:
    text = "\n".join((error_class, status, host, _VARYING.sub("#", message)[:500]))
    return Cause(
        hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(), _short(error_class, CLASS_CHARS),
        _short(status, STATUS_CHARS), _short(host, HOST_CHARS), normalised(message),
    )  # fmt: skip


def _short(text: str, most: int) -> str:
    text = _CONTROL.sub(" ", text[: 4 * most]).encode("utf-8", "replace").decode()
    return text if len(text) <= most else text[: most - 1] + "…"
