"""The calendar of a trigger in its zone, and what windows and excluded days make of it. Shared by equal specs."""

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from apps.schedules.exclusion import Exclusion
from apps.schedules.recurrence import RuleDays, day_of
from apps.schedules.recurrence_parse import Parts, implied_last_day, parse_rrule
from apps.schedules.timing_business_days import ToBusinessDay
from apps.schedules.timing_calendar import CronCalendar
from apps.schedules.timing_moved import Clipped, ToOpening
from apps.schedules.timing_open import WHOLE_DAY, OpenTimes, Window
from apps.schedules.timing_sets import RecurrenceSet
from apps.schedules.timing_steps import StepCalendar
from apps.schedules.timing_triggers import EVERY_UNITS, Calendar, Cron, Every, Recurrence, Trigger, instant_of
from apps.schedules.timing_walls import WallCalendar, floor_s, instant, local_s, place
from apps.schedules.timing_zones import load_zone, zone_offsets

CALENDARS_CACHED = 8192
_MICROSECOND = timedelta(microseconds=1)


def calendar_of(trigger: Trigger, zone: str, dst_gap: str, dst_fold: str) -> Calendar:
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
    # With an offset it is the second pass of a wall time that comes twice.
    first = wall_instant(start, zone) if start.tzinfo is None else start.astimezone(UTC)
    start = start.replace(tzinfo=None)
    if parts.sub_daily:
        base: Calendar = StepCalendar(parts.step_s, floor_s(first), parts.filters(), zone)
    else:
        base = WallCalendar(RuleDays(parts.rule(start)), zone, dst_gap, dst_fold)
    return RecurrenceSet(
        base, zone=zone, first=first, last=until_instant(parts, zone), count=parts.count,
        added=[instant_of(text) for text in trigger.rdate],
        left_out=[instant_of(text) for text in trigger.exdate if "T" in text],
        left_days=[day_of(date.fromisoformat(text)) for text in trigger.exdate if "T" not in text],
    )  # fmt: skip


def wall_instant(wall: datetime, zone: str) -> datetime:
    """The instant of a naive wall time: the first one after a gap, or in the first pass of a fold."""
    rest = timedelta(microseconds=wall.microsecond)
    seconds = day_of(wall.date()) * 86_400 + wall.hour * 3600 + wall.minute * 60 + wall.second
    found = place(zone_offsets(zone), seconds, True, "first")
    if found and local_s(zone_offsets(zone), found[0]) != seconds:
        return instant(found[0])
    return instant(found[0]) + rest if found else wall.replace(tzinfo=load_zone(zone)).astimezone(UTC)


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
def open_times(windows: tuple[Window, ...], exclusion: Exclusion | None, zone: str, dst_gap: str) -> OpenTimes:
    """When windows (none: all day) on days that are not excluded are open."""
    return OpenTimes(windows or WHOLE_DAY, exclusion, zone, dst_gap)


def limited(
    base: Calendar, zone: str, windows: tuple[Window, ...], outside: str, exclusion: Exclusion | None, on_excluded: str,
    dst_gap: str, dst_fold: str,
) -> Calendar:  # fmt: skip
    """Days first, then the windows on the days that are left."""
    if exclusion is not None:
        if on_excluded == "skip":
            if windows and outside == "skip":
                return Clipped(base, open_times(windows, exclusion, zone, dst_gap))
            base = Clipped(base, open_times((), exclusion, zone, dst_gap))
        else:
            step = 1 if on_excluded == "next_business_day" else -1
            base = ToBusinessDay(base, exclusion, step, zone, dst_gap, dst_fold)
    if not windows:
        return base
    opened = open_times(windows, exclusion, zone, dst_gap)
    return ToOpening(base, opened) if outside == "next_opening" else Clipped(base, opened)
