"""`Spec`: everything that decides when a schedule runs, as one hashable value and as canonical JSON text.

The due entry carries the text, so that firing reads no other table. A trigger kind is a frozen value with `as_json`
and a calendar; a new kind is added in `_TRIGGERS` and `_calendar`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar, Protocol

from apps.schedules.timing_calendar import CronCalendar
from apps.schedules.timing_errors import TimingInvalid
from apps.schedules.timing_zones import load_zone

MISFIRE_MAX_HARD = 1000
CHOICES = {
    "misfire": ("skip", "fire_once", "fire_latest_n", "fire_all"),
    "overlap": ("allow", "skip", "buffer_one"),
    "dst_gap": ("run_after", "skip"),
    "dst_fold": ("first", "last", "both"),
}
MAX_NUMBERS = {"jitter_s": 86_400, "grace_s": 7 * 86_400, "misfire_max": MISFIRE_MAX_HARD}
SPECS_CACHED, CALENDARS_CACHED = 16_384, 8192
_MICROSECOND = timedelta(microseconds=1)
_LAST = datetime.max.replace(tzinfo=UTC) - timedelta(days=2)
_FIRST = datetime.min.replace(tzinfo=UTC) + timedelta(days=2)


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
        return self.anchor + steps * every if after < _LAST - every else None

    def previous_before(self, before: datetime) -> datetime | None:
        every = timedelta(seconds=self.every_s)
        steps = -((self.anchor - before) // every) - 1
        return self.anchor + steps * every if before > _FIRST + every else None

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


Trigger = Cron | Interval | At


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything that decides when. Instants are aware and UTC; the window is inclusive at both ends."""

    trigger: Trigger
    zone: str = "UTC"
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter_s: int = 0
    misfire: str = "fire_once"
    grace_s: int = 60
    overlap: str = "allow"
    dst_gap: str = "run_after"
    dst_fold: str = "first"
    misfire_max: int = 100
    _calendar: Any = field(default=None, init=False, repr=False, compare=False)

    def calendar(self) -> Calendar:
        """The trigger's calendar; shared by all specs with the same trigger, zone and clock-change rules."""
        found: Calendar | None = self._calendar
        if found is None:
            found = _calendar(self.trigger, self.zone, self.dst_gap, self.dst_fold)
            object.__setattr__(self, "_calendar", found)
        return found


def spec_to_json(spec: Spec) -> str:
    """Canonical text: sorted keys, no blanks. Equal specs give equal texts."""
    return json.dumps(
        {
            "trigger": spec.trigger.as_json(),
            "zone": spec.zone,
            "start_at": spec.start_at and instant_text(spec.start_at),
            "end_at": spec.end_at and instant_text(spec.end_at),
            "jitter_s": spec.jitter_s,
            "misfire": spec.misfire,
            "grace_s": spec.grace_s,
            "overlap": spec.overlap,
            "dst_gap": spec.dst_gap,
            "dst_fold": spec.dst_fold,
            "misfire_max": spec.misfire_max,
        },
        sort_keys=True,
        separators=(",", ":"),
    )


@lru_cache(maxsize=SPECS_CACHED)
def spec_from_json(text: str) -> Spec:
    """The spec of a canonical text; TimingInvalid when it can't be understood, whatever is wrong with it."""
    try:
        data = json.loads(text)
        trigger = data.pop("trigger")
        kind = next(kind for kind in _TRIGGERS if kind in trigger)
        start_at, end_at = (_instant_or_none(data.pop(name)) for name in ("start_at", "end_at"))
        spec = Spec(trigger=_TRIGGERS[kind](**trigger), start_at=start_at, end_at=end_at, **data)
        _check(spec)
        load_zone(spec.zone)
        spec.calendar()
    except TimingInvalid:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, OverflowError, RecursionError) as error:
        detail = f"the stored schedule can't be read: {type(error).__name__}: {error}"
        raise TimingInvalid.one("", "undecodable", detail[:300]) from error
    return spec


def instant_text(at: datetime) -> str:
    """RFC 3339 in UTC, with a fraction only where there is one."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _check(spec: Spec) -> None:
    for name in ("jitter_s", "grace_s", "misfire_max"):
        number = getattr(spec, name)
        if type(number) is not int or not 0 <= number <= MAX_NUMBERS[name]:
            raise ValueError(f"{name} is {number!r}")
    for name, known in CHOICES.items():
        if getattr(spec, name) not in known:
            raise ValueError(f"{name} is {getattr(spec, name)!r}")


def _instant(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no offset")
    return at.astimezone(UTC)


def _instant_or_none(text: str | None) -> datetime | None:
    return None if text is None else _instant(text)


def _cron_of(cron: list[str]) -> Cron:
    if not cron or not all(type(text) is str for text in cron):
        raise ValueError("no expression")
    return Cron(tuple(cron))


def _interval_of(every_s: int, anchor: str) -> Interval:
    if type(every_s) is not int or every_s < 1:
        raise ValueError(f"every_s is {every_s!r}")
    return Interval(every_s, _instant(anchor))


def _at_of(at: str) -> At:
    return At(_instant(at))


_TRIGGERS: Mapping[str, Callable[..., Trigger]] = {"cron": _cron_of, "every_s": _interval_of, "at": _at_of}


def _calendar(trigger: Trigger, zone: str, dst_gap: str, dst_fold: str) -> Calendar:
    if isinstance(trigger, Cron):
        return _cron_calendar(trigger.exprs, zone, dst_gap, dst_fold)
    return trigger


@lru_cache(maxsize=CALENDARS_CACHED)
def _cron_calendar(exprs: tuple[str, ...], zone: str, dst_gap: str, dst_fold: str) -> CronCalendar:
    return CronCalendar(exprs, zone, dst_gap, dst_fold)
