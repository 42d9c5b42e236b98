"""Answers as JSON: fast for what we make, complete for what tenants stored."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import orjson
from rest_framework.renderers import BaseRenderer

OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_PASSTHROUGH_SUBCLASS


def encode(value: Any) -> bytes:
    """JSON with times in RFC 3339 and ids as text. Numbers beyond 64 bits, which tenants may have stored, too."""
    try:
        return orjson.dumps(value, option=OPTIONS, default=str)
    except TypeError:
        return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":")).encode()


def stored(text: str | None) -> Any:
    """JSON text from the database, to be sent as it is."""
    return None if text is None else orjson.Fragment(text)


class AnswerRenderer(BaseRenderer):
    """The only form of answers; problem documents set their own content type."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return b"" if data is None else encode(data)


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    return orjson.loads(orjson.dumps(value, option=OPTIONS))
