"""Bodies as JSON: bounded before they are read, strict when they are."""

import json
import re
from collections.abc import Mapping
from typing import Any

import orjson
from django.conf import settings
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from apps.api.bodies import BodyTooLarge, too_large
from kernel.errors import ShardbeatError

MOST_INNER = 100_000  # objects and lists of a body: the largest payload has fewer, and each costs a look
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class RepeatedMember(ShardbeatError):
    """An object has two members of one name."""

    code = "repeated_member"
    status = 400


class Encoded(ShardbeatError):
    """The body is compressed or coded in another way."""

    code = "unsupported_media_type"
    status = 415


class JsonParser(BaseParser):
    """UTF-8 JSON without NaN, halves of characters or endless numbers (orjson's rules)."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        meta = (parser_context or {})["request"].META
        try:
            announced = int(meta.get("CONTENT_LENGTH") or 0)
        except ValueError:
            raise ParseError("The Content-Length is not a number.") from None
        if meta.get("HTTP_CONTENT_ENCODING", "").strip().lower() not in ("", "identity"):
            raise Encoded("Send the body as it is, without Content-Encoding.")
        if announced > most:
            raise BodyTooLarge(f"The body has {announced:,} bytes; {most:,} are allowed.")
        raw = stream.read(most + 1)
        if len(raw) > most:
            raise too_large(most)
        if _inner(raw) > MOST_INNER:
            raise BodyTooLarge(f"The body has more than the {MOST_INNER:,} objects and lists that are allowed.")
        try:
            data = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise ParseError(f"The body is not JSON: {error}") from None
        _no_member_twice(raw)
        return data


def _inner(raw: bytes) -> int:
    """How many objects and lists there are. Brackets in texts do not count; they are looked for where it matters."""
    found = raw.count(b"{") + raw.count(b"[")
    if found > MOST_INNER:
        raw = _TEXT.sub(b"", raw)
        found = raw.count(b"{") + raw.count(b"[")
    return found


def _no_member_twice(raw: bytes) -> None:
    """RepeatedMember. orjson keeps the last one without a word; what the sender meant is anybody's guess."""
    try:
        json.loads(raw, object_pairs_hook=_look, parse_int=str, parse_float=str)
    except RecursionError:  # too deep for any body, which its reader says better
        return


def _look(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) == len({name for name, _ in pairs}):
        return
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise RepeatedMember(f"The member {name[:60]!r} is given twice in one object.")
        seen.add(name)


class MergePatchParser(JsonParser):
    """RFC 7396; plain application/json means the same on PATCH."""

    media_type = "application/merge-patch+json"
