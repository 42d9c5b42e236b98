"""What is never shown: credentials in targets, in URLs and in texts that come back from where they were sent. Pure.

A credential that was written in a job itself is accepted, kept apart (kernel.secretrules.INTERNAL_PATTERN) and shown
as MASK; who sends the mask back keeps what is there.
"""

import html
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from kernel.errors import FieldError
from kernel.jsonrules import pointer_to
from kernel.secretrules import is_internal, is_reference

MASK = "***"
# Members of a target whose values are texts by name, any of which may be a credential.
NAMED_TEXTS = ("headers", "environment", "env")
ECHO_MIN_CHARS = 4  # a shorter value is in every text by chance
LINE_MIN_CHARS = 8  # of one line of a value that has several
PART_MIN_CHARS = 8  # of one part of a URL
REMEMBERED_MAX_CHARS = 200
CUT_TRIES = 64
CUT_MIN_CHARS = 4  # of a value's beginning, where a text was cut
_MASK = MASK.encode()
_CREDENTIAL = re.compile(
    r"auth|cookie|token|secret|passw|passphrase|credential|signature|jwt|session"
    r"|(?:api|access|app|account|private|shared|subscription|functions|license|master|client)[-_.]?key"
    r"|^(?:key|sig|pwd|code)$",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"[A-Za-z0-9._~-]+")  # looks the same everywhere
_URL = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://\S{1,4096}\s*")
_PARAMETER = re.compile(r"(?<=[?&;])([^=&;#]+)=([^&;#]*)")
_USER_PART = re.compile(r"(?<=://)[^/?#@]*@")


def is_credential_name(name: str) -> bool:
    """Whether a header, variable or query parameter of this name is likely to hold a credential."""
    return _remembered(name) if len(name) <= REMEMBERED_MAX_CHARS else _is_credential_name(name)


def masked_target(target: Any) -> Any:
    """A job's target as it may be shown to anybody who may read the job."""
    if not isinstance(target, Mapping):
        return target
    shown = {name: _masked(value) for name, value in target.items()}
    if "url" in target:
        shown["url"] = _masked_url_member(target["url"])
    for member in NAMED_TEXTS:
        texts = shown.get(member)
        if isinstance(texts, Mapping):
            shown[member] = {
                name: MASK if isinstance(value, str) and value and is_credential_name(str(name)) else value
                for name, value in texts.items()
            }
    return shown


def masked_url(url: str) -> str:
    """A URL without user part, and without the values of query parameters that look like credentials."""
    url = _USER_PART.sub(f"{MASK}@", url)
    return _PARAMETER.sub(lambda found: found[0] if not _is_secret(found) else f"{found[1]}={MASK}", url)


def credential_span(url: str) -> tuple[int, int] | None:
    """From the first to the last credential in a URL's query; None when it has none."""
    found = [one for one in _PARAMETER.finditer(url) if _is_secret(one)]
    return (found[0].start(2), found[-1].end(2)) if found else None


def restored_target(given: Any, known: Any, faults: list[FieldError], pointer: str = "") -> Any:
    """`given` with each mask replaced by what `known`, the stored target, has there; a mask for nothing is a fault.

    Masks count only where `masked_target` puts them: three stars in a body are three stars.
    """
    if not isinstance(given, Mapping):
        return given
    before = known if isinstance(known, Mapping) else {}
    restored = dict(given)
    if isinstance(given.get("url"), str):
        restored["url"] = _restored_url(given["url"], before.get("url"), faults, f"{pointer}/url")
    for member in NAMED_TEXTS:
        texts, stored = given.get(member), before.get(member)
        if isinstance(texts, Mapping):
            at = stored if isinstance(stored, Mapping) else {}
            restored[member] = {
                name: _restored_text(value, at.get(name), faults, pointer_to(f"{pointer}/{member}", name))
                if value == MASK and is_credential_name(str(name))
                else value
                for name, value in texts.items()
            }
    return restored


class Echoes:
    """Finds values that were sent in what comes back, also as JSON, in a URL, or cut at the end."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values if len(value) >= ECHO_MIN_CHARS for form in _forms(value)}
        # Longest first. Plain replacing, no regular expression: those are remembered by Python, values and all.
        self._forms = sorted((form.encode(errors="replace") for form in forms), key=len, reverse=True)

    def masked(self, data: bytes, *, cut: bool = False) -> bytes:
        """`data` with a mask for each value; with `cut`, also for the beginning of one at its end."""
        for form in self._forms:
            data = data.replace(form, _MASK)
        return self._without_cut(data) if cut else data

    def masked_text(self, text: str) -> str:
        return text if not self._forms else self.masked(text.encode(errors="replace")).decode(errors="replace")

    def masked_json(self, value: Any) -> Any:
        """A decoded JSON value with all its texts and names masked."""
        if not self._forms:
            return value
        if isinstance(value, str):
            return self.masked_text(value)
        if isinstance(value, Mapping):
            return {self.masked_text(str(name)): self.masked_json(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.masked_json(one) for one in value]
        return value

    def _without_cut(self, data: bytes) -> bytes:
        ends = [_cut_at(data, form) for form in self._forms]
        return data[: min(ends)] + _MASK if min(ends, default=len(data)) < len(data) else data


def _cut_at(data: bytes, form: bytes) -> int:
    """Where the beginning of `form` begins that `data` ends with; its length when there is none."""
    begin, at = form[:CUT_MIN_CHARS], max(0, len(data) - len(form)) - 1
    for _ in range(CUT_TRIES):
        at = data.find(begin, at + 1)
        if at < 0 or form.startswith(data[at:]):
            return at if at >= 0 else len(data)
    return at  # too many places to try in everybody's time: better too much is masked than too little


def _parts_of_url(url: str) -> set[str]:
    """What of a URL may come back alone: all behind the host, the path and the query, their longer parts, a password.

    An answer seldom repeats scheme and host: "Cannot POST /services/T0/B0/abcdefgh".
    """
    rest = url.strip().partition("://")[2]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    behind = rest[len(authority) :]
    path, _, query = behind.partition("?")
    pieces = [*path.split("/"), *(piece.partition("=")[2] for piece in query.split("&"))]
    pieces.append(authority.rpartition("@")[0].partition(":")[2])
    whole = {behind, path, query}
    return {form for one in (*whole, *pieces) for form in (one, unquote(one)) if len(one) >= PART_MIN_CHARS}


def _forms(value: str) -> set[str]:
    """How a value may look in an answer: as it is, in JSON, in a URL, in HTML, line by line; a URL also in parts."""
    if _PLAIN.fullmatch(value):
        return {value}
    in_json = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    in_json |= {form.replace("/", "\\/") for form in in_json}
    in_urls = {
        quote(value, errors="replace"),
        quote(value, safe="", errors="replace"),
        quote_plus(value, errors="replace"),
    }
    lines = {line for line in map(str.strip, value.splitlines()) if len(line) >= LINE_MIN_CHARS}
    parts = _parts_of_url(value) if _URL.fullmatch(value) else set()
    forms = {value, value.strip(), html.escape(value), *in_json, *in_urls, *lines, *parts}
    return {form for form in forms if len(form) >= ECHO_MIN_CHARS}


def _is_credential_name(name: str) -> bool:
    return _CREDENTIAL.search(name) is not None


_remembered = lru_cache(maxsize=4_096)(_is_credential_name)  # short names: nobody's long ones fill the memory


def _masked(value: Any) -> Any:
    """References to what the platform keeps for a job are masks; those to a tenant's own secrets are no secret."""
    if is_reference(value):
        return MASK if is_internal(value["secret"]) else dict(value)
    if isinstance(value, Mapping):
        return {name: _masked(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_masked(one) for one in value]
    return value


def _masked_url_member(url: Any) -> Any:
    if isinstance(url, str):
        return masked_url(url)
    if not is_reference(url):
        return _masked(url)
    prefix, suffix = (masked_url(str(url.get(name, ""))) for name in ("prefix", "suffix"))
    if is_internal(url["secret"]):
        return f"{prefix}{MASK}{suffix}"
    return {**url, **({"prefix": prefix} if prefix else {})}


def _is_secret(parameter: re.Match[str]) -> bool:
    return bool(parameter[2]) and is_credential_name(parameter[1])


def _restored_text(given: str, known: Any, faults: list[FieldError], pointer: str) -> Any:
    if is_reference(known) and is_internal(known["secret"]):
        return dict(known)
    if isinstance(known, str) and known:  # a template, or from before credentials were kept apart
        return known
    return _stands_for_nothing(given, faults, pointer)


def _restored_url(given: str, known: Any, faults: list[FieldError], pointer: str) -> Any:
    if isinstance(known, str) and given in (known, masked_url(known)):
        return known
    if not any(_is_secret(one) and one[2] == MASK for one in _PARAMETER.finditer(given)):
        return given
    if is_reference(known) and is_internal(known["secret"]):  # also when the URL is changed around its credential
        before, _, after = given.partition(MASK)
        if MASK not in after:
            return {"secret": known["secret"], "prefix": before, "suffix": after}
    return _stands_for_nothing(given, faults, pointer)


def _stands_for_nothing(given: str, faults: list[FieldError], pointer: str) -> str:
    detail = f"{MASK} stands for what is not shown, and here is nothing yet: write the value, or name a secret."
    faults.append(FieldError(pointer, "masked", detail))
    return given
