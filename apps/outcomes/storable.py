"""What of results and errors can be stored: JSON texts of bounded size that PostgreSQL's jsonb takes. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

import orjson

ERROR_BYTES = 4_096
RESULT_BYTES = 64 * 1_024
CLASS_CHARS = 100
MESSAGE_CHARS = 1_000
UNSTORABLE_RESULT = '{"unstorable":true}'
_MOST_BYTES_OF_CHAR = 4
# jsonb has no NUL. After an even number of backslashes this one begins the escape; after an odd one it is text.
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def result_text(text: str | None) -> str | None:
    """A result's JSON text; one that is too large becomes a note of its size."""
    if text is None:
        return None
    if not _fits(text, RESULT_BYTES):
        return _json({"truncated": True, "bytes": len(text.encode("utf-8", "replace"))})
    return _without_nul(text)


def error_text(error: Mapping[str, Any] | None) -> str | None:
    """An error as JSON text; of one that is too large only class and message are kept, and not all of that."""
    if error is None:
        return None
    text = _json(error)
    return text if _fits(text, ERROR_BYTES) else _json(_shortened(error))


def bare_error(error: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What can be stored of an error whatever is in it."""
    return {"class": str((error or {}).get("class", ""))[:CLASS_CHARS], "message": "could not be stored"}


def _shortened(error: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "class": str(error.get("class", ""))[:CLASS_CHARS],
        "message": str(error.get("message", ""))[:MESSAGE_CHARS],
        "truncated": True,
    }


def _fits(text: str, most_bytes: int) -> bool:
    if len(text) * _MOST_BYTES_OF_CHAR <= most_bytes:
        return True
    return len(text) <= most_bytes and len(text.encode("utf-8", "replace")) <= most_bytes


def _json(value: Mapping[str, Any]) -> str:
    try:
        text = orjson.dumps(value, default=str).decode()
    except TypeError:  # half characters, whole numbers beyond 64 bits, names that are no text
        text = _json_slowly(value)
    return _without_nul(text)


def _json_slowly(value: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(value, default=str, ensure_ascii=False, skipkeys=True)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(_shortened(value), ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def _without_nul(text: str) -> str:
    return _NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text
