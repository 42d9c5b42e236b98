"""Trigger kinds: frozen values with `as_json`; the simple ones answer as their own calendar.

A new kind is added here and in `timing_build.calendar_of`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Protocol

EVERY_UNITS = {"days": "DAILY", "weeks": "WEEKLY", "months": "MONTHLY", "years": "YEARLY"}
LAST = datetime.max.replace(tzinfo=UTC) - timedelta(days=2)
FIRST = datetime.min.replace(tzinfo=UTC) + timedelta(days=2)


class Calendar(Protocol):
    """Nominal instants of a trigger, without a window."""

    def next_after(self, after: datetime) -> datetime | None: ...

    def previous_before(self, before: datetime) -> datetime | None: ...

    def count(self, after: datetime, until: datetime) -> int:
        """How many instants lie in (after, until]."""


@dataclass(frozen=True, slots=True)
class Cron:
    """Normalised expressions, united."""

    exprs: tuple[str, ...]
    kind: ClassVar[str] = "cron"

    def as_json(self) -> dict[str, Any]:
        return {"cron": list(self.exprs)}


@dataclass(frozen=True, slots=True)
class Interval:
    """Every `every_s` seconds of elapsed time, before and after `anchor`: the stored anchor is the phase."""

    every_s: int
    anchor: datetime
    kind: ClassVar[str] = "every_s"

    def as_json(self) -> dict[str, Any]:
        return {"every_s": self.every_s, "anchor": instant_text(self.anchor)}

    def next_after(self, after: datetime) -> datetime | None:
        every = timedelta(seconds=self.every_s)
        steps = (after - self.anchor) // every + 1
        return self.anchor + steps * every if after < LAST - every else None

    def previous_before(self, before: datetime) -> datetime | None:
        every = timedelta(seconds=self.every_s)
        steps = -((self.anchor - before) // every) - 1
        return self.anchor + steps * every if before > FIRST + every else None

    def count(self, after: datetime, until: datetime) -> int:
        every = timedelta(seconds=self.every_s)
        return max(0, (until - self.anchor) // every - (after - self.anchor) // every)


@dataclass(frozen=True, slots=True)
class At:
    """One instant."""

    instant: datetime
    kind: ClassVar[str] = "at"

    def as_json(self) -> dict[str, Any]:
        return {"at": instant_text(self.instant)}

    def next_after(self, after: datetime) -> datetime | None:
        return self.instant if self.instant > after else None

    def previous_before(self, before: datetime) -> datetime | None:
        return self.instant if self.instant < before else None

    def count(self, after: datetime, until: datetime) -> int:
        return int(after < self.instant <= until)


@dataclass(frozen=True, slots=True)
class Every:
    """Every so many days, weeks, months or years of the local calendar, at the anchor's wall time (naive text).

    A month without the anchor's day has its run on its last day; the anchor stays, so that longer months keep theirs.
    """

    unit: str
    number: int
    anchor: str
    kind: ClassVar[str] = "every"

    def as_json(self) -> dict[str, Any]:
        return {"every": {self.unit: self.number}, "anchor": self.anchor}


@dataclass(frozen=True, slots=True)
class Recurrence:
    """An RRULE from a wall time (naive text) on. Extra and left-out instants are texts, left-out dates whole days."""

    rrule: str
    dtstart: str
    rdate: tuple[str, ...] = ()
    exdate: tuple[str, ...] = ()
    kind: ClassVar[str] = "rrule"

    def as_json(self) -> dict[str, Any]:
        extra = {name: list(value) for name, value in (("rdate", self.rdate), ("exdate", self.exdate)) if value}
        return {"rrule": self.rrule, "dtstart": self.dtstart, **extra}


Trigger = Cron | Interval | At | Every | Recurrence


def instant_text(at: datetime) -> str:
    """RFC 3339 in UTC, with a fraction only where there is one."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def trigger_from_json(data: Mapping[str, Any]) -> Trigger:
    """The trigger of a spec's text. ValueError, TypeError, KeyError or StopIteration when it is none."""
    kind = next(kind for kind in _TRIGGERS if kind in data)
    return _TRIGGERS[kind](**data)


def instant_of(text: str) -> datetime:
    """The instant of an RFC 3339 text with an offset. ValueError."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no offset")
    return at.astimezone(UTC)


def _cron_of(cron: list[str]) -> Cron:
    if not cron or not all(type(text) is str for text in cron):
        raise ValueError("no expression")
    return Cron(tuple(cron))


def _interval_of(every_s: int, anchor: str) -> Interval:
    if type(every_s) is not int or every_s < 1:
        raise ValueError(f"every_s is {every_s!r}")
    return Interval(every_s, instant_of(anchor))


def _at_of(at: str) -> At:
    return At(instant_of(at))


def _every_of(every: dict[str, int], anchor: str) -> Every:
    [(unit, number)] = every.items()
    if unit not in EVERY_UNITS or type(number) is not int or number < 1:
        raise ValueError(f"every is {every!r}")
    datetime.fromisoformat(anchor)
    return Every(unit, number, anchor)


def _recurrence_of(rrule: str, dtstart: str, rdate: Sequence[str] = (), exdate: Sequence[str] = ()) -> Recurrence:
    return Recurrence(rrule, dtstart, tuple(rdate), tuple(exdate))


_TRIGGERS: Mapping[str, Callable[..., Trigger]] = {
    "cron": _cron_of, "every_s": _interval_of, "at": _at_of, "every": _every_of, "rrule": _recurrence_of,
}  # fmt: skip
