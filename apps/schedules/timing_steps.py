"""Rules more often than daily: steps of real time from a first instant, of which the local time decides which count.

`FREQ=HOURLY;INTERVAL=2;BYDAY=MO` is every two hours of elapsed time, on Mondays of the zone. What does not count is
jumped over by days and hours, never step by step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from apps.schedules.recurrence import Rule, RuleDays
from apps.schedules.timing_calendar import fold_flags
from apps.schedules.timing_errors import NotFoundYet
from apps.schedules.timing_walls import FAR_S, floor_s, instant, local_s, spans_of
from apps.schedules.timing_zones import DAY_S, MAX_S, MIN_S, zone_offsets

JUMPS_MAX = 4_000  # over days and hours in vain, before a search says from where to go on
HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Filters:
    """What the local time must be; empty means anything."""

    months: tuple[int, ...] = ()
    monthdays: tuple[int, ...] = ()
    weekdays: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()

    def days(self) -> RuleDays:
        """The days that fit."""
        weekdays = tuple((0, day) for day in self.weekdays)
        rule = Rule("DAILY", 1, 0, (0,), (0,), (0,), months=self.months, monthdays=self.monthdays, weekdays=weekdays)
        return RuleDays(rule, before_start=True)


ANY = Filters()


class StepCalendar:
    """Steps of `step_s` seconds counted from `first_s` (epoch seconds), before and after it, under filters."""

    __slots__ = ("_days", "_filters", "_first_s", "_hours", "_offsets", "_step_s")

    def __init__(self, step_s: int, first_s: int, filters: Filters, zone: str) -> None:
        self._step_s, self._first_s, self._filters = step_s, first_s, filters
        self._offsets, self._days = zone_offsets(zone), filters.days()
        hours = sorted(filters.hours) or range(24)
        begins = [hour for hour in hours if hour - 1 not in hours]
        ends = [hour + 1 for hour in hours if hour + 1 not in hours]
        self._hours = [(begin * HOUR_S, end * HOUR_S) for begin, end in zip(begins, ends, strict=True)]

    def next_after(self, after: datetime) -> datetime | None:
        at = self._step_from(max(floor_s(after) + 1, MIN_S))
        for _ in range(JUMPS_MAX):
            if at > MAX_S:
                return None
            fits, _, end = self._block(at)
            if fits:
                return instant(at)
            day = self._days.day_from(local_s(self._offsets, end) // DAY_S)
            if day is None:
                return None
            at = self._step_from(max(end, day * DAY_S - FAR_S))
        raise NotFoundYet(instant(at - 1))

    def previous_before(self, before: datetime) -> datetime | None:
        at = self._step_to(min(floor_s(before) + (before.microsecond > 0), MAX_S + 1) - 1)
        for _ in range(JUMPS_MAX):
            if at < MIN_S:
                return None
            fits, start, _ = self._block(at)
            if fits:
                return instant(at)
            day = self._days.day_to(local_s(self._offsets, start - 1) // DAY_S)
            if day is None:
                return None
            at = self._step_to(min(start - 1, (day + 1) * DAY_S + FAR_S))
        raise NotFoundYet(instant(at + 1))

    def count(self, after: datetime, until: datetime) -> int:
        return sum(
            (high - self._first_s) // self._step_s - (low - 1 - self._first_s) // self._step_s
            for low, high in self._pieces(max(floor_s(after) + 1, MIN_S), min(floor_s(until), MAX_S))
        )

    def flags(self, at: datetime) -> list[str]:
        return fold_flags(self._offsets, floor_s(at))

    def _pieces(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """What fits of [low, high], as inclusive pieces; day by day where there are filters."""
        if self._filters == ANY:
            yield from [(low, high)] if low <= high else []
            return
        day, last = local_s(self._offsets, low) // DAY_S - 1, local_s(self._offsets, high) // DAY_S + 1
        found = self._days.day_from(day) if low <= high else None
        while found is not None and found <= last:
            for start, end in self._hours:
                for begins, ends in spans_of(self._offsets, found * DAY_S + start, found * DAY_S + end):
                    if max(begins, low) <= min(ends - 1, high):
                        yield max(begins, low), min(ends - 1, high)
            found = self._days.day_from(found + 1)

    def _block(self, at: int) -> tuple[bool, int, int]:
        """Whether this instant fits, and the stretch [start, end) around it of which the same is true."""
        if self._filters == ANY:
            return True, at, at + 1
        index = self._offsets.index(at)
        offset = self._offsets.offsets[index]
        low, high = self._offsets.starts[index], self._offsets.end(index)
        day, second = divmod(at + offset, DAY_S)
        fits = bool(self._days.times(day))
        start, size = day * DAY_S - offset, DAY_S
        if fits and self._filters.hours:
            fits = second // HOUR_S in self._filters.hours
            start, size = start + second // HOUR_S * HOUR_S, HOUR_S
        return fits, max(start, low), min(start + size, high)

    def _step_from(self, at: int) -> int:
        return at + (self._first_s - at) % self._step_s

    def _step_to(self, at: int) -> int:
        return at - (at - self._first_s) % self._step_s


def days_for(count: int, step_s: int, filters: Filters) -> int:
    """About how many days have to be looked at one by one until a rule has run so often; 0 where arithmetic does."""
    if filters == ANY:
        return 0
    seconds = len(filters.hours or range(24)) * HOUR_S
    return -(-count // max(1, seconds // step_s)) * max(1, step_s // DAY_S)
