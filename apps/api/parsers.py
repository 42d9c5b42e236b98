"""Bodies as JSON: bounded before they are read, strict when they are."""

from collections.abc import Mapping
from typing import Any

import orjson
from django.conf import settings
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from kernel.errors import ShardbeatError


class BodyTooLarge(ShardbeatError):
    """The body is larger than any valid one."""

    code = "body_too_large"
    status = 413


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
        if announced > most:
            raise BodyTooLarge(f"The body has {announced:,} bytes; {most:,} are allowed.")
        raw = stream.read(most + 1)
        if len(raw) > most:
            raise BodyTooLarge(f"The body has more than the {most:,} bytes that are allowed.")
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise ParseError(f"The body is not JSON: {error}") from None


class MergePatchParser(JsonParser):
    """RFC 7396; plain application/json means the same on PATCH."""

    media_type = "application/merge-patch+json"
