"""How fast an operation goes, as fields of a form."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from apps.operations import pacing
from apps.operations.models import Operation
from apps.presenting.fields import Field, Form, typed

WORDS = {
    "rate_per_s": ("Items a second, at most", "Empty: as fast as it goes."),
    "max_in_flight": ("Runs at a time, at most", "Of those that it starts."),
    "canary": ("Try so many first", "The others only when these have succeeded."),
    "stop_after_failures": ("Stop after so many failures", "What is not begun then is never begun."),
}


def pace_fields(one: Operation | None = None, *, names: Collection[str] = pacing.NAMES) -> list[Field]:
    """The fields, with what an operation has."""
    found = []
    for name in names:
        label, text = WORDS[name]
        value = getattr(one, name) if one is not None else None
        found.append(Field(name, label, "number", "" if value is None else typed(value), help=text))
    return found


def pace_of(form: Form) -> dict[str, Any]:
    """What was given, as the service reads it; nonsense stays a text, which it refuses. Empty is no limit."""
    return {name: _number(form.text(name)) for name in pacing.NAMES if name in form.fields}


def _number(text: str) -> Any:
    if not text:
        return None
    try:
        return int(text) if text.isascii() and text.isdigit() else float(text)
    except ValueError:
        return text
