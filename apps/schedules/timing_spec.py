"""`Spec`: everything that decides when a schedule runs, as one hashable value and as canonical JSON text.

The due entry carries the text, so that firing reads no other table. A trigger kind is a frozen value with `as_json`
and a calendar; a new kind is added in `_TRIGGERS` and `_calendar`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar, Protocol

from apps.schedules.exclusion import Exclusion, exclusion_from_json
from apps.schedules.recurrence import RuleDays, day_of
from apps.schedules.recurrence_parse import Parts, implied_last_day, parse_rrule
from apps.schedules.timing_calendar import CronCalendar
from apps.schedules.timing_errors import TimingInvalid
from apps.schedules.timing_moved import Clipped, ToBusinessDay, ToOpening
from apps.schedules.timing_open import WHOLE_DAY, OpenTimes, Window
from apps.schedules.timing_sets import RecurrenceSet, nth_after
from apps.schedules.timing_steps import StepCalendar
from apps.schedules.timing_walls import WallCalendar, floor_s, instant, place
from apps.schedules.timing_zones import load_zone, zone_offsets

MISFIRE_MAX_HARD = 1000
BUFFER_MAX_HARD = 1000
CHOICES = {
    "misfire": ("skip", "fire_once", "fire_latest_n", "fire_all"),
    "misfire_order": ("oldest", "newest"),
    "overlap": ("allow", "skip", "buffer_one", "buffer_all", "cancel_running", "replace_pending"),
    "dst_gap": ("run_after", "skip"),
    "dst_fold": ("first", "last", "both"),
    "outside": ("skip", "next_opening"),
    "on_excluded": ("skip", "previous_business_day", "next_business_day"),
}
MAX_NUMBERS = {
    "jitter_s": 86_400, "grace_s": 7 * 86_400, "misfire_max": MISFIRE_MAX_HARD, "misfire_max_age_s": 10 * 366 * 86_400,
    "overlap_max": BUFFER_MAX_HARD, "catch_up_per_s": 1_000, "max_runs": 1_000_000,
}  # fmt: skip
LEAST_NUMBERS = {"misfire_max": 1, "misfire_max_age_s": 1, "overlap_max": 1, "max_runs": 1, "catch_up_per_s": 0.001}
SPECS_CACHED, CALENDARS_CACHED = 16_384, 8192
EVERY_UNITS = {"days": "DAILY", "weeks": "WEEKLY", "months": "MONTHLY", "years": "YEARLY"}
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
    misfire_max_age_s: int | None = None
    misfire_order: str = "oldest"
    catch_up_per_s: float | None = None
    overlap_max: int = 10
    max_runs: int | None = None
    runs_used: int = 0  # of max_runs, by definitions before this one
    runs_from: datetime | None = None  # runs later than this count
    windows: tuple[Window, ...] = ()
    outside: str = "skip"
    exclusion: Exclusion | None = None
    on_excluded: str = "skip"
    _calendar: Any = field(default=None, init=False, repr=False, compare=False)
    _last: Any = field(default=None, init=False, repr=False, compare=False)

    def calendar(self) -> Calendar:
        """The trigger's calendar; shared by all specs with the same trigger, zone and clock-change rules."""
        found: Calendar | None = self._calendar
        if found is None:
            found = _calendar(self.trigger, self.zone, self.dst_gap, self.dst_fold)
            if self.windows or self.exclusion is not None:
                found = _limited(found, self.zone, self.windows, self.outside, self.exclusion, self.on_excluded)
            object.__setattr__(self, "_calendar", found)
        return found

    def last_at(self) -> datetime | None:
        """The last nominal instant that may be: the window's end, or the one that uses max_runs up."""
        if self.max_runs is None or self.runs_from is None:
            return self.end_at
        if self._last is None:
            after = self.runs_from if self.start_at is None else max(self.runs_from, self.start_at - _MICROSECOND)
            nth = nth_after(self.calendar(), after, self.max_runs - self.runs_used)
            object.__setattr__(self, "_last", nth or _LAST)
        last: datetime = self._last
        return last if self.end_at is None else min(last, self.end_at)


def spec_to_json(spec: Spec) -> str:
    """Canonical text: sorted keys, no blanks. Equal specs give equal texts. New members only stand there when set."""
    data: dict[str, Any] = {
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
    }
    data |= {name: getattr(spec, name) for name, default in _PLAIN.items() if getattr(spec, name) != default}
    if spec.runs_from is not None:
        data["runs_from"] = instant_text(spec.runs_from)
    if spec.windows:
        data["windows"] = [window.as_json() for window in spec.windows]
    if spec.exclusion is not None:
        data["exclusion"] = spec.exclusion.as_json()
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=SPECS_CACHED)
def spec_from_json(text: str) -> Spec:
    """The spec of a canonical text; TimingInvalid when it can't be understood, whatever is wrong with it."""
    try:
        data = json.loads(text)
        trigger = data.pop("trigger")
        kind = next(kind for kind in _TRIGGERS if kind in trigger)
        start_at, end_at = (_instant_or_none(data.pop(name)) for name in ("start_at", "end_at"))
        exclusion = data.pop("exclusion", None)
        spec = Spec(
            trigger=_TRIGGERS[kind](**trigger), start_at=start_at, end_at=end_at,
            runs_from=_instant_or_none(data.pop("runs_from", None)),
            windows=tuple(_window(*each) for each in data.pop("windows", ())),
            exclusion=None if exclusion is None else exclusion_from_json(exclusion),
            **data,
        )  # fmt: skip
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
    for name, most in MAX_NUMBERS.items():
        number = getattr(spec, name)
        if number is None and name in _PLAIN:
            continue
        kinds = (int, float) if name == "catch_up_per_s" else (int,)
        if type(number) not in kinds or not 0 <= number <= most:
            raise ValueError(f"{name} is {number!r}")
    if type(spec.runs_used) is not int or spec.runs_used < 0:
        raise ValueError(f"runs_used is {spec.runs_used!r}")
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


def _every_of(every: dict[str, int], anchor: str) -> Every:
    [(unit, number)] = every.items()
    if unit not in EVERY_UNITS or type(number) is not int or number < 1:
        raise ValueError(f"every is {every!r}")
    datetime.fromisoformat(anchor)
    return Every(unit, number, anchor)


def _recurrence_of(rrule: str, dtstart: str, rdate: Sequence[str] = (), exdate: Sequence[str] = ()) -> Recurrence:
    return Recurrence(rrule, dtstart, tuple(rdate), tuple(exdate))


def _window(from_s: int, until_s: int, days: list[int]) -> Window:
    if not all(type(each) is int for each in (from_s, until_s, *days)) or not 0 <= from_s < 86_400 >= until_s >= 0:
        raise ValueError("a window is wrong")
    return Window(from_s, until_s, tuple(days))


_TRIGGERS: Mapping[str, Callable[..., Trigger]] = {
    "cron": _cron_of, "every_s": _interval_of, "at": _at_of, "every": _every_of, "rrule": _recurrence_of,
}  # fmt: skip
# Members with a default that stand in the text as they are.
_PLAIN = {
    "misfire_max_age_s": None, "misfire_order": "oldest", "catch_up_per_s": None, "overlap_max": 10, "max_runs": None,
    "runs_used": 0, "outside": "skip", "on_excluded": "skip",
}  # fmt: skip


def _calendar(trigger: Trigger, zone: str, dst_gap: str, dst_fold: str) -> Calendar:
    if isinstance(trigger, Cron):
        return _cron_calendar(trigger.exprs, zone, dst_gap, dst_fold)
    if isinstance(trigger, Every):
        return _every_calendar(trigger, zone, dst_gap, dst_fold)
    if isinstance(trigger, Recurrence):
        return _recurrence_calendar(trigger, zone, dst_gap, dst_fold)
    return trigger


@lru_cache(maxsize=CALENDARS_CACHED)
def _cron_calendar(exprs: tuple[str, ...], zone: str, dst_gap: str, dst_fold: str) -> CronCalendar:
    return CronCalendar(exprs, zone, dst_gap, dst_fold)


@lru_cache(maxsize=CALENDARS_CACHED)
def _every_calendar(trigger: Every, zone: str, dst_gap: str, dst_fold: str) -> Calendar:
    anchor = datetime.fromisoformat(trigger.anchor)
    lists = implied_last_day(trigger.unit, anchor.date()) if trigger.unit in ("months", "years") else {}
    weekdays = ((0, anchor.weekday()),) if trigger.unit == "weeks" else ()
    parts = Parts(EVERY_UNITS[trigger.unit], trigger.number, lists=lists, weekdays=weekdays)
    return WallCalendar(RuleDays(parts.rule(anchor), before_start=True), zone, dst_gap, dst_fold)


@lru_cache(maxsize=CALENDARS_CACHED)
def _recurrence_calendar(trigger: Recurrence, zone: str, dst_gap: str, dst_fold: str) -> Calendar:
    faults: list[str] = []
    parts = parse_rrule(trigger.rrule, lambda _, detail: faults.append(detail))
    if parts is None:
        raise ValueError(faults[0])
    start = datetime.fromisoformat(trigger.dtstart)
    first = wall_instant(start, zone)
    if parts.sub_daily:
        base: Calendar = StepCalendar(parts.step_s, floor_s(first), parts.filters(), zone)
    else:
        base = WallCalendar(RuleDays(parts.rule(start)), zone, dst_gap, dst_fold)
    return RecurrenceSet(
        base, zone=zone, first=first, last=until_instant(parts, zone), count=parts.count,
        added=[_instant(text) for text in trigger.rdate],
        left_out=[_instant(text) for text in trigger.exdate if "T" in text],
        left_days=[day_of(date.fromisoformat(text)) for text in trigger.exdate if "T" not in text],
    )  # fmt: skip


def wall_instant(wall: datetime, zone: str) -> datetime:
    """The instant of a naive wall time: after a gap, in the first pass of a fold."""
    seconds = day_of(wall.date()) * 86_400 + wall.hour * 3600 + wall.minute * 60 + wall.second
    found = place(zone_offsets(zone), seconds, True, "first")
    return instant(found[0]) if found else wall.replace(tzinfo=load_zone(zone)).astimezone(UTC)


def until_instant(parts: Parts, zone: str) -> datetime | None:
    """UNTIL, inclusive: an instant, a wall time, or a whole local day."""
    if parts.until is None:
        return None
    at = datetime.fromisoformat(parts.until[:8])
    if len(parts.until) == 8:
        return wall_instant(at + timedelta(days=1), zone) - _MICROSECOND
    clock = datetime.strptime(parts.until[9:15], "%H%M%S").time()  # noqa: DTZ007  a wall time; its zone follows
    wall = datetime.combine(at.date(), clock)
    return wall.replace(tzinfo=UTC) if parts.until.endswith("Z") else wall_instant(wall, zone)


@lru_cache(maxsize=CALENDARS_CACHED)
def _open_times(windows: tuple[Window, ...], exclusion: Exclusion | None, zone: str) -> OpenTimes:
    return OpenTimes(windows, exclusion, zone)


def _limited(
    base: Calendar, zone: str, windows: tuple[Window, ...], outside: str, exclusion: Exclusion | None, on_excluded: str
) -> Calendar:
    """Days first, then the windows on the days that are left."""
    if exclusion is not None:
        if on_excluded == "skip":
            if windows and outside == "skip":
                return Clipped(base, _open_times(windows, exclusion, zone))
            base = Clipped(base, _open_times(WHOLE_DAY, exclusion, zone))
        else:
            base = ToBusinessDay(base, exclusion, 1 if on_excluded == "next_business_day" else -1, zone)
    if not windows:
        return base
    open_times = _open_times(windows, exclusion, zone)
    return ToOpening(base, open_times) if outside == "next_opening" else Clipped(base, open_times)
