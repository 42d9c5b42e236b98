"""Wall times on a zone's time line: what days and times of a local calendar are as instants.

A wall time that the clock skips runs once right after the gap (`dst_gap` "run_after") or not at all; one that comes
twice runs in the first pass, the last or both. These are the rules of fixed-time cron jobs.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Protocol

from apps.schedules.timing_calendar import CORRECTION_S, fold_flags
from apps.schedules.timing_errors import NotFoundYet
from apps.schedules.timing_zones import DAY_S, EPOCH, MAX_S, MIN_S, Offsets, zone_offsets

_SECOND, _MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
WALLS_MAX = 1_000
FAR_S = 26 * 3600  # farther from UTC than any zone


class Days(Protocol):
    """Local days with the seconds of the day at which something runs."""

    def day_from(self, day: int) -> int | None: ...

    def day_to(self, day: int) -> int | None: ...

    def times(self, day: int) -> tuple[int, ...]: ...

    def total(self, first: int, last: int) -> int: ...


class WallCalendar:
    """The instants of local days and times in a zone."""

    __slots__ = ("_days", "_fold", "_gap", "_offsets")

    def __init__(self, days: Days, zone: str, dst_gap: str, dst_fold: str) -> None:
        self._days = days
        self._offsets = zone_offsets(zone)
        self._gap, self._fold = dst_gap == "run_after", dst_fold

    def next_after(self, after: datetime) -> datetime | None:
        at = floor_s(after)
        if at >= MAX_S:
            return None
        at = max(at, MIN_S)
        day = self._days.day_from(local_s(self._offsets, at) // DAY_S - 1)
        while day is not None and day * DAY_S <= MAX_S + DAY_S:
            found = [each for each in self._around(day, +1) if each > at]
            if found:
                return instant(min(found))
            day = self._days.day_from(day + 1)
        return None

    def previous_before(self, before: datetime) -> datetime | None:
        at = floor_s(before) + (before.microsecond > 0)
        if at <= MIN_S:
            return None
        at = min(at, MAX_S + 1)
        day = self._days.day_to(local_s(self._offsets, at - 1) // DAY_S + 1)
        while day is not None and day * DAY_S >= MIN_S - DAY_S:
            found = [each for each in self._around(day, -1) if each < at]
            if found:
                return instant(max(found))
            day = self._days.day_to(day - 1)
        return None

    def count(self, after: datetime, until: datetime) -> int:
        low, high = max(floor_s(after), MIN_S), min(floor_s(until), MAX_S)
        if low >= high:
            return 0
        first, last = local_s(self._offsets, low) // DAY_S, local_s(self._offsets, high) // DAY_S
        # At either end a day counts in part; in between whole days do, but for what changes of the clock do to them.
        if last - first < 7:
            return len(self._between(first - 1, last + 1, low, high))
        edges = self._between(first - 1, first + 2, low, high) | self._between(last - 2, last + 1, low, high)
        inside = range(first + 3, last - 2)
        total = len(edges) + self._days.total(inside.start, inside.stop - 1)
        index = self._offsets.index(low) + 1
        seen = inside.start
        while not self._offsets.steady and self._offsets.end(index - 1) <= high:
            for day in self._changed(index):
                if day in inside and day >= seen:
                    seen = day + 1
                    total += len(self._instants(day)) - len(self._days.times(day))
            index += 1
        return total

    def walls(self, day: int) -> list[tuple[int, bool]]:
        """The wall times of a local day, in naive seconds; all of them are at fixed times."""
        return [(day * DAY_S + second, True) for second in self._days.times(day)]

    def flags(self, at: datetime) -> list[str]:
        """What the clock does at this instant."""
        at_s = floor_s(at)
        day, second = divmod(local_s(self._offsets, at_s), DAY_S)
        moved = second not in self._days.times(day)
        return (["dst_gap_moved"] if moved else []) + fold_flags(self._offsets, at_s)

    def _around(self, day: int, step: int) -> list[int]:
        """The instants of a day, and of its neighbour where a change of the clock could mix them up."""
        found = self._instants(day)
        return found + self._instants(day + step) if self._changes(day) else found

    def _between(self, first: int, last: int, low: int, high: int) -> set[int]:
        """The instants of some days that lie in (low, high]."""
        return {at for day in range(first, last + 1) for at in self._instants(day) if low < at <= high}

    def _changed(self, index: int) -> list[int]:
        """The days on which a change of the clock takes a time away or repeats it."""
        jump, wall = self._offsets.jump(index), self._offsets.starts[index] + self._offsets.offsets[index]
        low, high = min(wall - jump, wall), max(wall - jump, wall)
        return [
            day
            for day in range(low // DAY_S, (high - 1) // DAY_S + 1)
            if any(low <= day * DAY_S + second < high for second in self._days.times(day))
        ]

    def _changes(self, day: int) -> bool:
        offsets = self._offsets
        if offsets.steady:
            return False
        low, high = (day - 2) * DAY_S, (day + 3) * DAY_S
        return offsets.index(max(low, MIN_S)) != offsets.index(min(high, MAX_S))

    def _instants(self, day: int) -> list[int]:
        offsets = self._offsets
        if not self._changes(day):
            offset = offsets.offsets[offsets.index(min(max(day * DAY_S, MIN_S), MAX_S))]
            return [day * DAY_S + second - offset for second in self._days.times(day)]
        return sorted(
            {
                at
                for second in self._days.times(day)
                for at in place(offsets, day * DAY_S + second, self._gap, self._fold)
            }
        )


def runs_at(calendar: Any, at: datetime) -> bool:
    """Whether a calendar runs at an instant; a search that goes past it in vain says no."""
    try:
        return bool(calendar.next_after(at - _MICROSECOND) == at)
    except NotFoundYet:
        return False


def searched_on(calendar: Any, after: datetime, until: datetime) -> datetime | None:
    """The next instant of a calendar; a search that gives up before `until` goes on. NotFoundYet from there on."""
    at = after
    while True:
        try:
            found: datetime | None = calendar.next_after(at)
            return found
        except NotFoundYet as error:
            if error.searched_to >= until:
                raise
            at = error.searched_to


def next_before(calendar: Any, after: datetime, until: datetime) -> datetime | None:
    """The next instant of a calendar that is earlier than `until`; None when there is none."""
    try:
        found = searched_on(calendar, after, until - _MICROSECOND)
    except NotFoundYet:
        return None
    return found if found is not None and found < until else None


def walls_of(calendar: Any, day: int, offsets: Offsets) -> list[tuple[int, bool]]:
    """The wall times at which a calendar runs on a local day, in naive seconds; whether they are at fixed times.

    A calendar that knows no wall times (intervals, instants, steps) runs on real time; at most WALLS_MAX are looked at.
    """
    if hasattr(calendar, "walls"):
        known: list[tuple[int, bool]] = calendar.walls(day)
        return known
    found: list[tuple[int, bool]] = []
    for begins, ends in spans_of(offsets, day * DAY_S, (day + 1) * DAY_S):
        until = instant(ends)
        at = next_before(calendar, instant(begins) - _MICROSECOND, until)
        while at is not None and len(found) < WALLS_MAX:
            found.append((local_s(offsets, floor_s(at)), True))
            at = next_before(calendar, at, until)
    return found


def steady_offset(offsets: Offsets, low: int, high: int) -> int | None:
    """The offset at these wall times (naive seconds); None where a change of the clock is near."""
    index = offsets.index(min(max(low - FAR_S, MIN_S), MAX_S))
    return offsets.offsets[index] if offsets.end(index) > high + FAR_S else None


def place(offsets: Offsets, wall: int, gap: bool, fold: str) -> list[int]:
    """The instants of a wall time (naive seconds): none, one or, with `fold` "both", two."""
    index = offsets.index(min(max(wall - FAR_S, MIN_S), MAX_S))
    if offsets.end(index) > wall + FAR_S:
        return [wall - offsets.offsets[index]]
    hits: list[int] = []
    landing: int | None = None
    while index < len(offsets.starts) and offsets.starts[index] <= wall + FAR_S:
        start, offset, end = offsets.starts[index], offsets.offsets[index], offsets.end(index)
        if start <= wall - offset < end:
            hits.append(wall - offset)
        jump = offsets.jump(index)
        if 0 < jump < CORRECTION_S and start + offset - jump <= wall < start + offset:
            landing = start + -(start + offset) % 60
        if end > MAX_S:
            break
        index += 1
    if not hits:
        return [landing] if landing is not None and gap else []
    if len(hits) == 1 or fold == "both":
        return hits
    return hits[:1] if fold == "first" else hits[-1:]


def spans_of(offsets: Offsets, low: int, high: int) -> Iterator[tuple[int, int]]:
    """The stretches of time at which the wall clock shows [low, high), both in naive seconds, as [start, end)."""
    index = offsets.index(min(max(low - FAR_S, MIN_S), MAX_S))
    while index < len(offsets.starts) and offsets.starts[index] <= high + FAR_S:
        offset, end = offsets.offsets[index], offsets.end(index)
        begins, ends = max(offsets.starts[index], low - offset), min(end, high - offset)
        if begins < ends:
            yield begins, ends
        if end > MAX_S:
            return
        index += 1


def local_s(offsets: Offsets, at_s: int) -> int:
    """What the wall clock shows, in naive seconds."""
    return at_s + offsets.offsets[offsets.index(min(max(at_s, MIN_S), MAX_S))]


def floor_s(at: datetime) -> int:
    """Whole seconds since the epoch."""
    since = at - EPOCH
    return since.days * DAY_S + since.seconds


def instant(at_s: int) -> datetime:
    """The instant of epoch seconds."""
    return EPOCH + at_s * _SECOND
