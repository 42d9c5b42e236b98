"""How far an operation is, as a bar of its items by state. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.presenting.charts import Part, phases

TONES = (
    ("succeeded", "ok"), ("failed", "bad"), ("skipped", "idle"), ("undone", "warn"), ("running", "run"),
    ("pending", "base"),
)  # fmt: skip


def bar(one: Any) -> str:
    """Of something with counts as attributes; with its meaning in words, empty where there are no items."""
    return bar_of(dict(counted(one)))


def counted(one: Any) -> list[tuple[str, int]]:
    """Its counts by state, in the order of the bar."""
    return [(name, getattr(one, name)) for name, _ in TONES]


def bar_of(counts: Mapping[str, int]) -> str:
    """The same of counts by state."""
    parts = [Part(tone, f"{counts[name]:,} {name}", counts[name]) for name, tone in TONES]
    there = [part for part in parts if part.seconds]
    return phases(there, meaning=", ".join(part.label for part in there)) if there else ""
