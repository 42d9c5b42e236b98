"""What several resources read in the same way: common filters, small bodies."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from django.db.models import Model

from apps.schedules.input_fields import Fields
from kernel.errors import Faults

M = TypeVar("M", bound=Model)
MAX_REASON_CHARS = 500
MAX_NOTE_CHARS = 1_000


def read_only_dropped(body: Any, read_only: Collection[str]) -> Any:
    """A body of PUT without what only answers carry, so that an answer can be changed and sent back."""
    if not isinstance(body, Mapping):
        return body
    return {name: value for name, value in body.items() if name not in read_only}


def reason_of(body: Any, *, required: bool = False) -> str:
    """The reason of a body that may have nothing else. InvalidInput."""
    return text_of(body, "reason", most=MAX_REASON_CHARS, required=required)


def note_of(body: Any) -> str:
    """The note of a body that may have nothing else. InvalidInput."""
    return text_of(body, "note", most=MAX_NOTE_CHARS)


def text_of(body: Any, name: str, *, most: int, required: bool = False) -> str:
    faults = Faults()
    fields = Fields(body, faults)
    fields.only((name,))
    text = fields.text(name, most=most, required=required, lines=True)
    faults.raise_if_any()
    return text or ""


def nothing_of(body: Any) -> None:
    """InvalidInput when a body that must be empty is not."""
    faults = Faults()
    Fields(body, faults).only(())
    faults.raise_if_any()
