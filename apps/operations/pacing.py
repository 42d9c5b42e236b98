"""How fast an operation goes, and what stops it: read from what was given. Pure but for the row that it is kept in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from apps.operations.models import Operation
from kernel.errors import Faults

RATE_MIN, RATE_MAX = 0.01, 1_000.0
WHOLE_MAX = 1_000_000
WHOLE_NAMES = ("max_in_flight", "canary", "stop_after_failures")
NAMES = ("rate_per_s", *WHOLE_NAMES)


@dataclass(frozen=True, slots=True)
class Pace:
    """None is no limit."""

    rate_per_s: float | None = None  # items
    max_in_flight: int | None = None  # executions that it started and that have not ended
    canary: int | None = None  # so many first, the others only when these succeeded
    stop_after_failures: int | None = None

    @classmethod
    def of(cls, one: Operation) -> Pace:
        """That of an operation."""
        return cls(*(getattr(one, name) for name in NAMES))

    def changed(self, given: Mapping[str, Any], faults: Faults) -> Pace:
        """With the members of NAMES that are given; null takes a limit away. Faults are added, unknown ones too."""
        found: dict[str, Any] = {}
        for name, value in given.items():
            if name not in NAMES:
                faults.add(f"/{name}", "unknown_field", f"There is no such field. Known: {', '.join(NAMES)}.")
            elif value is None:
                found[name] = None
            elif name == "rate_per_s":
                if isinstance(value, bool) or not isinstance(value, int | float) or not RATE_MIN <= value <= RATE_MAX:
                    faults.add(f"/{name}", "range", f"must be a number from {RATE_MIN} to {RATE_MAX:g}.")
                else:
                    found[name] = float(value)
            elif isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= WHOLE_MAX:
                faults.add(f"/{name}", "range", f"must be a whole number from 1 to {WHOLE_MAX:,}.")
            else:
                found[name] = value
        return replace(self, **found)

    def write(self, one: Operation) -> None:
        """Sets the members of a row."""
        for name in NAMES:
            setattr(one, name, getattr(self, name))
