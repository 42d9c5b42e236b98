"""When a schedule may run: daily windows on days that no calendar excludes, as stretches of real time."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from apps.schedules.exclusion import Exclusion
from apps.schedules.recurrence import weekday_of
from apps.schedules.timing_walls import floor_s, local_s, place, spans_of
from apps.schedules.timing_zones import DAY_S, EPOCH, MAX_S, MIN_S, zone_offsets

STRETCH_DAYS_MAX = 5  # what is open for days has no end that matters: jitter is at most one
REMEMBERED = 1_024
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Window:
    """From one second of the day to another, both inclusive; past midnight when `until_s` is smaller. Monday is 0."""

    from_s: int
    until_s: int
    days: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)

    def as_json(self) -> list[Any]:
        return [self.from_s, self.until_s, list(self.days)]


WHOLE_DAY = (Window(0, DAY_S),)


class OpenTimes:
    """The stretches of time that are open. Instants are in whole microseconds since the epoch inside."""

    __slots__ = ("_exclusion", "_gap", "_offsets", "_plain", "_remembered", "_today", "_weekdays", "_windows")

    def __init__(
        self, windows: tuple[Window, ...], exclusion: Exclusion | None, zone: str, dst_gap: str = "run_after"
    ) -> None:
        self._windows, self._exclusion, self._offsets = windows, exclusion or Exclusion(), zone_offsets(zone)
        self._gap = dst_gap == "run_after"
        self._weekdays = tuple(sorted({day for window in windows for day in window.days}))
        self._remembered: dict[int, list[tuple[int, int]]] = {}
        # The same before a day that is excluded: windows past midnight close with their own day.
        self._today = tuple(Window(*_by_midnight(each), each.days) for each in windows)
        self._plain = [[_plain_day(some, weekday) for weekday in range(7)] for some in (windows, self._today)]

    def is_open(self, at: datetime) -> bool:
        us = _us(at)
        day = self._day(at)
        return any(start <= us < end for each in (day - 1, day) for start, end in self._spans(each))

    def opening(self, at: datetime) -> datetime | None:
        """The earliest open instant from this one on. None when nothing opens ever again: no search gives up."""
        us = _us(at)
        for day in self._days(self._day(at) - 1, +1):
            found = [max(start, us) for start, end in self._spans(day) if end > us]
            if found:
                return _at(min(found))
        return None

    def last_open(self, at: datetime) -> datetime | None:
        """The latest open instant up to this one."""
        us = _us(at)
        for day in self._days(self._day(at) + 1, -1):
            begun = [end for start, end in self._spans(day) if start <= us]
            if begun:
                # A window that began the day before and goes past midnight may close last.
                begun += [end for _, end in self._spans(day - 1)]
                return _at(min(max(begun) - 1, us))
        return None

    def closing(self, at: datetime) -> datetime | None:
        """The last instant of the stretch that is open at this one; None when it is closed, or open for two days."""
        us, day = _us(at), self._day(at) - 1
        end = max((end for each in (day, day + 1) for start, end in self._spans(each) if start <= us < end), default=0)
        if not end:
            return None
        for each in range(day, day + STRETCH_DAYS_MAX):
            end = max([end, *(stop for start, stop in self._spans(each) if start <= end < stop)])
        return None if end > us + (STRETCH_DAYS_MAX - 3) * DAY_S * _US else _at(end - 1)

    def stretches(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
        """What is open of (after, until], as inclusive stretches, oldest first; none overlap, and none meet."""
        low, high, last = _us(after) + 1, _us(until), self._day(until) + 1
        begins, ends = low, low - 1  # not yet yielded; empty
        for day in self._days(self._day(after) - 2, +1):
            if day > last:
                break
            for start, end in self._spans(day):
                start, end = max(start, low, ends + 1 if ends >= begins else low), min(end - 1, high)
                if start > end:
                    continue
                if ends >= begins and start > ends + 1:
                    yield _at(begins), _at(ends)
                begins, ends = (begins if ends >= begins and start == ends + 1 else start), end
        if ends >= begins:
            yield _at(begins), _at(ends)

    def _days(self, day: int, step: int) -> Iterator[int]:
        """The days on which windows open, from this one on or, with `step` -1, up to it."""
        found = self._exclusion.included(day, step, self._weekdays)
        while found is not None:
            yield found
            found = self._exclusion.included(found + step, step, self._weekdays)

    def _day(self, at: datetime) -> int:
        return local_s(self._offsets, floor_s(at)) // DAY_S

    def _spans(self, day: int) -> list[tuple[int, int]]:
        found = self._remembered.get(day)
        if found is None:
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            found = self._remembered[day] = self._compute(day)
        return found

    def _compute(self, day: int) -> list[tuple[int, int]]:
        """What opens on this day. A window past midnight belongs to the day on which it begins, if both are open."""
        if self._exclusion.excludes(day):
            return []
        before_excluded = self._exclusion.excludes(day + 1)
        offsets = self._offsets
        index = offsets.index(min(max((day - 2) * DAY_S, MIN_S), MAX_S))
        if index == offsets.index(min(max((day + 4) * DAY_S, MIN_S), MAX_S)):
            start_us = (day * DAY_S - offsets.offsets[index]) * _US
            return [(start_us + start, start_us + end) for start, end in self._plain[before_excluded][weekday_of(day)]]
        spans: list[tuple[int, int]] = []
        for window in self._today if before_excluded else self._windows:
            if weekday_of(day) not in window.days:
                continue
            until_s = window.until_s + (DAY_S if window.until_s < window.from_s else 0)
            # Inclusive to the second, except at the end of the day, which is the next one's beginning.
            last = 0 if window.until_s == DAY_S else 1
            for start, end in spans_of(self._offsets, day * DAY_S + window.from_s, day * DAY_S + until_s + last):
                inclusive = (
                    last and end + self._offsets.offsets[self._offsets.index(end - 1)] == day * DAY_S + until_s + 1
                )
                spans.append((start * _US, (end - 1) * _US + 1 if inclusive else end * _US))
            end_wall = day * DAY_S + until_s
            if self._gap and last and not place(self._offsets, end_wall, False, "first"):
                # The clock skips its end: it closes with the first instant after the gap, where its last times run.
                spans += [(at * _US, at * _US + 1) for at in place(self._offsets, end_wall, True, "first")]
        return _merged(spans)


def _by_midnight(window: Window) -> tuple[int, int]:
    return window.from_s, DAY_S if window.until_s < window.from_s else window.until_s


def _plain_day(windows: tuple[Window, ...], weekday: int) -> list[tuple[int, int]]:
    """What opens on such a day when no change of the clock is near, in microseconds since its local midnight."""
    spans = []
    for window in windows:
        if weekday in window.days:
            until_s = window.until_s + (DAY_S if window.until_s < window.from_s else 0)
            spans.append((window.from_s * _US, until_s * _US + (window.until_s != DAY_S)))
    return _merged(spans)


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _us(at: datetime) -> int:
    since = at - EPOCH
    return (since.days * DAY_S + since.seconds) * _US + since.microseconds


def _at(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)
