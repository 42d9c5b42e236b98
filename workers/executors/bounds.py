"""Bounds on what runs leave behind: every result fits its limit as JSON, and PostgreSQL's jsonb takes it."""

import json
import re
from collections.abc import Mapping
from typing import Any

import orjson

RESULT_MAX_BYTES = 65_536  # as JSON
ERROR_MAX_BYTES = 4_096
MESSAGE_MAX_CHARS = 1_000

_OPTIONS = orjson.OPT_NON_STR_KEYS
# jsonb refuses NUL. An even number of backslashes before it means that this backslash begins the escape.
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
_LONG_NUMBER = re.compile(rb"[0-9]{20}")  # orjson reads whole numbers beyond 64 bits as fractions


class NotJson(ValueError):
    """The value has a part that JSON can't hold."""


def to_json(value: Any) -> bytes:
    """JSON in UTF-8, whole numbers of any size included. Raises NotJson."""
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except TypeError as error:  # also: too deep, whole numbers beyond 64 bits, half characters
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
            return text.encode()
        except (TypeError, ValueError, RecursionError):
            raise NotJson(str(error)) from None


def from_json(data: bytes) -> Any:
    """The value again. Whole numbers keep all their digits."""
    return json.loads(data) if _LONG_NUMBER.search(data) else orjson.loads(data)


def bounded_json(value: Any, max_bytes: int = RESULT_MAX_BYTES) -> bytes:
    """JSON of at most `max_bytes`: a larger value becomes its beginning as text, with a flag and its real size.

    Whole numbers beyond 64 bits become text, since not every reader of the result keeps their digits. Raises NotJson.
    """
    try:
        data = orjson.dumps(value, option=_OPTIONS)
    except TypeError:
        data = to_json(_with_long_numbers_as_text(from_json(to_json(value))))
    data = _NUL.sub(rb"\1\\ufffd", data)
    if len(data) <= max_bytes:
        return data
    head, _ = fit_text(data[:max_bytes].decode(errors="ignore"), max_bytes - 100)
    return orjson.dumps({"truncated": True, "size_bytes": len(data), "head": head})


def bounded_error(class_: str, message: str, **more: Any) -> Mapping[str, Any]:
    """An error of at most ERROR_MAX_BYTES: class and message are text, `more` is small and ours."""
    text, _ = fit_text(clean_text(message[:MESSAGE_MAX_CHARS]), ERROR_MAX_BYTES - 1_000)
    return {"class": clean_text(class_)[:200], "message": text, **more}


def fit_text(text: str, max_bytes: int) -> tuple[str, bool]:
    """The beginning of `text` that fits `max_bytes` as a JSON string, and whether something was cut."""
    if len(text) * 6 + 2 <= max_bytes:  # the longest escape of one character
        return text, False
    size, cut = len(orjson.dumps(text)), False
    while size > max_bytes:
        text, cut = text[: min(len(text) - 1, len(text) * max_bytes // size)], True
        size = len(orjson.dumps(text))
    return text, cut


def clean_text(text: str) -> str:
    """`text` without NUL and without half characters."""
    return text.encode(errors="replace").decode().replace("\x00", "\ufffd")


def _with_long_numbers_as_text(value: Any) -> Any:
    match value:
        case dict():
            return {key: _with_long_numbers_as_text(part) for key, part in value.items()}
        case list():
            return [_with_long_numbers_as_text(part) for part in value]
        case int() if not -(2**63) <= value < 2**64:
            return str(value)
    return value


def _plain(value: Any) -> Any:
    """Times, UUIDs and data classes, as orjson writes them. Raises TypeError."""
    return orjson.loads(orjson.dumps(value))
