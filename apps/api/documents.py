"""What the bodies and answers that OpenAPI shows are made of. They describe; the services decide; tests compare both.

Each kind of thing has a file of its own: `documents_jobs`, `documents_schedules` and so on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rest_framework import serializers

Serializer = serializers.Serializer[Any]
Example = Mapping[str, Any]  # members as they may look; openapi_examples says what becomes of it


def nullable(field: type[serializers.Field[Any, Any, Any, Any]], **options: Any) -> Any:
    """A member that answers always carry, and that may be null."""
    return field(allow_null=True, **options)


def optional(field: type[serializers.Field[Any, Any, Any, Any]], **options: Any) -> Any:
    """A member that a body may leave out or set to null: then it has its default."""
    return field(required=False, allow_null=True, **options)


def wall_time(text: str) -> Any:
    """A time that may come without an offset."""
    return optional(
        serializers.CharField, max_length=40, help_text=f"{text} RFC 3339; without an offset in `timezone`."
    )


def label(*, null: bool = False) -> Any:
    """A label's text; in a merge patch null removes one."""
    return serializers.CharField(max_length=200, allow_blank=True, allow_null=null)


def replacement(name: str, whole: type[Serializer], read_only: Sequence[str]) -> type[Serializer]:
    """What PUT takes: an answer that was changed may be sent back, with what only answers carry."""
    ignored = {one: serializers.JSONField(required=False, help_text="Ignored.") for one in read_only}
    return type(name, (whole,), {**ignored, "__doc__": "All of it; what is missing takes its default."})


def labels() -> Any:
    return serializers.DictField(child=label())
