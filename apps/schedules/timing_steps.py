"""Rules more often than daily: steps of real time from a first instant, of which the local time decides which count.

`FREQ=HOURLY;INTERVAL=2;BYDAY=MO` is every two hours of elapsed time, on Mondays of the zone. What does not count is
jumped over by days and hours, never step by step.
"""

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from apps.schedules.recurrence import date_of, weekday_of
from apps.schedules.timing_calendar import fold_flags
from apps.schedules.timing_walls import floor_s, instant
from apps.schedules.timing_zones import DAY_S, MAX_S, MIN_S, zone_offsets

JUMPS_MAX = 20_000  # over days and hours in vain; two years of hours
HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Filters:
    """What the local time must be; empty means anything."""

    months: tuple[int, ...] = ()
    monthdays: tuple[int, ...] = ()
    weekdays: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()

    def day(self, day: int) -> bool:
        at = date_of(day)
        if self.months and at.month not in self.months:
            return False
        if self.weekdays and weekday_of(day) not in self.weekdays:
            return False
        if not self.monthdays:
            return True
        from_end = at.day - 1 - _length(day)
        return at.day in self.monthdays or from_end in self.monthdays


class StepCalendar:
    """Steps of `step_s` seconds counted from `first_s` (epoch seconds), before and after it, under filters."""

    __slots__ = ("_filters", "_first_s", "_offsets", "_step_s")

    def __init__(self, step_s: int, first_s: int, filters: Filters, zone: str) -> None:
        self._step_s, self._first_s, self._filters = step_s, first_s, filters
        self._offsets = zone_offsets(zone)

    def next_after(self, after: datetime) -> datetime | None:
        at = self._step_from(max(floor_s(after) + 1, MIN_S))
        for _ in range(JUMPS_MAX):
            if at > MAX_S:
                return None
            fits, _, end = self._block(at)
            if fits:
                return instant(at)
            at = self._step_from(end)
        return None

    def previous_before(self, before: datetime) -> datetime | None:
        at = self._step_to(min(floor_s(before) + (before.microsecond > 0), MAX_S + 1) - 1)
        for _ in range(JUMPS_MAX):
            if at < MIN_S:
                return None
            fits, start, _ = self._block(at)
            if fits:
                return instant(at)
            at = self._step_to(start - 1)
        return None

    def count(self, after: datetime, until: datetime) -> int:
        return sum(
            (high - self._first_s) // self._step_s - (low - 1 - self._first_s) // self._step_s
            for low, high in self._pieces(max(floor_s(after) + 1, MIN_S), min(floor_s(until), MAX_S))
        )

    def flags(self, at: datetime) -> list[str]:
        return fold_flags(self._offsets, floor_s(at))

    def _pieces(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """What fits of [low, high], as inclusive pieces."""
        while low <= high:
            fits, _, end = self._block(low)
            if fits:
                yield low, min(end - 1, high)
            low = end

    def _block(self, at: int) -> tuple[bool, int, int]:
        """Whether this instant fits, and the stretch [start, end) around it of which the same is true."""
        index = self._offsets.index(at)
        offset = self._offsets.offsets[index]
        low, high = self._offsets.starts[index], self._offsets.end(index)
        day, second = divmod(at + offset, DAY_S)
        months = self._filters.months
        if months and (date := date_of(day)).month not in months:
            first = day - date.day + 1
            return False, max(first * DAY_S - offset, low), min((first + _length(day)) * DAY_S - offset, high)
        fits = self._filters.day(day)
        start, size = day * DAY_S - offset, DAY_S
        if fits and self._filters.hours:
            fits = second // HOUR_S in self._filters.hours
            start, size = start + second // HOUR_S * HOUR_S, HOUR_S
        return fits, max(start, low), min(start + size, high)

    def _step_from(self, at: int) -> int:
        return at + (self._first_s - at) % self._step_s

    def _step_to(self, at: int) -> int:
        return at - (at - self._first_s) % self._step_s


def _length(day: int) -> int:
    at = date_of(day)
    return monthrange(at.year, at.month)[1]
