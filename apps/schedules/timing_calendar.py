"""Cron expressions on a zone's time line: the search over clock changes.

The line is a row of segments with a constant offset. Inside one, a wall time is an instant minus the offset, and the
expressions are searched there. At a segment's start the clock has jumped:

* forward (a gap): a fixed-time job whose wall time was skipped runs once, at the first whole minute after the gap
  (`dst_gap` "run_after"), or not at all ("skip"). Jumps of three hours or more are corrections of the clock or moves
  over the date line: nothing is caught up.
* back (a fold): a fixed-time job runs in the first pass, the last one or both (`dst_fold`).

Fixed-time means that neither minute nor hour starts with `*` (Debian's cron); all other jobs, and all with a seconds
field, follow real time and see neither rule. Instants here are epoch seconds.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache

from apps.schedules.cron import DAY_S, Expression, month_shape
from apps.schedules.cron_parse import compile_cron
from apps.schedules.timing_zones import EPOCH, MAX_S, MIN_S, Offsets, zone_offsets

CORRECTION_S = 3 * 3600
Expressions = tuple[Expression, ...]
WALLS_MAX = 1_000
_CACHED_DAYS = 512
_SECOND = timedelta(seconds=1)


class CronCalendar:
    """The union of some expressions in one zone under one pair of clock-change rules."""

    __slots__ = ("_fixed", "_fold", "_gap", "_made_of", "_offsets", "_real")

    def __init__(self, texts: tuple[str, ...], zone: str, dst_gap: str, dst_fold: str) -> None:
        expressions = [compile_cron(text) for text in texts]
        self._made_of = (texts, zone, dst_gap, dst_fold)
        self._offsets = zone_offsets(zone)
        self._gap, self._fold = dst_gap == "run_after", dst_fold
        self._fixed = [each for each in expressions if each.fixed and not self._offsets.steady]
        self._real = [each for each in expressions if each not in self._fixed]

    def __reduce__(self) -> tuple[type["CronCalendar"], tuple[tuple[str, ...], str, str, str]]:
        """Copies and pickles of a spec carry what its calendar is made of, not the zone's tables."""
        return CronCalendar, self._made_of

    def next_after(self, after: datetime) -> datetime | None:
        """The earliest instant strictly after this one."""
        found = self.next_s(_floor(after))
        return None if found is None else EPOCH + found * _SECOND

    def previous_before(self, before: datetime) -> datetime | None:
        """The latest instant strictly before this one."""
        found = self.previous_s(_floor(before) + (before.microsecond > 0))
        return None if found is None else EPOCH + found * _SECOND

    def count(self, after: datetime, until: datetime) -> int:
        """How many instants lie in (after, until]; exact, and the cost grows with months, not with instants."""
        low, high = max(_floor(after) + 1, MIN_S), min(_floor(until) + 1, MAX_S + 1)
        return sum(self._count_segment(index, start, end) for index, start, end in self._segments(low, high))

    def next_s(self, after_s: int) -> int | None:
        """`next_after` in epoch seconds."""
        at = max(after_s + 1, MIN_S)
        if at > MAX_S:
            return None
        offsets = self._offsets
        index = offsets.index(at)
        while True:
            end, offset = offsets.end(index), offsets.offsets[index]
            found = end
            for each in self._real:
                match = each.first(at + offset, found + offset)
                if match is not None:
                    found = match - offset
            if self._fixed:
                low, high = self._fixed_range(index, end)
                for each in self._fixed:
                    match = each.first(max(at + offset, low), min(found + offset, high))
                    if match is not None:
                        found = match - offset
                if (landing := self._landing(index)) is not None and at <= landing < found:
                    found = landing
            if found < end:
                return found
            if end > MAX_S:
                return None
            index, at = index + 1, end

    def previous_s(self, before_s: int) -> int | None:
        """`previous_before` in epoch seconds."""
        end = min(before_s, MAX_S + 1)
        if end <= MIN_S:
            return None
        offsets = self._offsets
        index = offsets.index(end - 1)
        while True:
            start, offset = max(offsets.starts[index], MIN_S), offsets.offsets[index]
            found = start - 1
            for each in self._real:
                match = each.last(found + 1 + offset, end + offset)
                if match is not None:
                    found = match - offset
            if self._fixed:
                low, high = self._fixed_range(index, offsets.end(index))
                for each in self._fixed:
                    match = each.last(max(found + 1 + offset, low), min(end + offset, high))
                    if match is not None:
                        found = match - offset
                if (landing := self._landing(index)) is not None and found < landing < end:
                    found = landing
            if found >= start:
                return found
            if start <= MIN_S:
                return None
            index, end = index - 1, start

    def walls(self, day: int) -> list[tuple[int, bool]]:
        """The wall times of a local day, in naive seconds, and whether they are those of fixed-time jobs.

        At most WALLS_MAX; what runs on real time has no wall time that the clock skips.
        """
        year, month, number = _date(day)
        fixed, real = (
            tuple(each for each in some if each.days(year, month) >> number & 1) for some in (self._fixed, self._real)
        )
        start, offsets = day * DAY_S, self._offsets
        found = [(start + clock, fixed_ or offsets.steady) for clock, fixed_ in _clocks(fixed, real)]
        index = offsets.index(max(start - DAY_S - CORRECTION_S, MIN_S))
        if offsets.end(index) > start + 2 * DAY_S + CORRECTION_S:  # no change of the clock is near
            return found
        return [wall for wall in found if wall[1] or self._exists(wall[0])]

    def flags(self, at: datetime) -> list[str]:
        """What the clock does at this instant: moved out of a gap, or which pass of a repeated wall time."""
        at_s = _floor(at)
        index = self._offsets.index(at_s)
        moved = self._landing(index) == at_s and not self._count_regular(index, at_s, at_s + 1)
        return (["dst_gap_moved"] if moved else []) + fold_flags(self._offsets, at_s)

    def _exists(self, wall: int) -> bool:
        """Whether the clock ever shows this wall time."""
        offsets = self._offsets
        index = offsets.index(max(wall - DAY_S - CORRECTION_S, MIN_S))
        while offsets.starts[index] <= min(wall + DAY_S + CORRECTION_S, MAX_S):
            if offsets.starts[index] <= wall - offsets.offsets[index] < offsets.end(index):
                return True
            if offsets.end(index) > MAX_S:
                break
            index += 1
        return False

    def _fixed_range(self, index: int, end: int) -> tuple[int, int]:
        """The wall times of a segment that count for fixed-time jobs, as [low, high) in naive seconds."""
        offset = self._offsets.offsets[index]
        low, high = self._offsets.starts[index] + offset, end + offset
        if self._fold == "first":
            low -= min(self._offsets.jump(index), 0)
        elif self._fold == "last" and end <= MAX_S:
            high += min(self._offsets.jump(index + 1), 0)
        return low, high

    def _landing(self, index: int) -> int | None:
        """Where fixed-time jobs of the gap before this segment are caught up; None when there is nothing to."""
        jump = self._offsets.jump(index)
        if not (self._gap and 0 < jump < CORRECTION_S):
            return None
        start = self._offsets.starts[index]
        wall = start + self._offsets.offsets[index]
        if all(each.first(wall - jump, wall) is None for each in self._fixed):
            return None
        return start + -wall % 60

    def _segments(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        index = self._offsets.index(low)
        while low < high:
            end = min(self._offsets.end(index), high)
            yield index, low, end
            index, low = index + 1, end

    def _count_segment(self, index: int, start: int, end: int) -> int:
        total = self._count_regular(index, start, end)
        landing = self._landing(index)
        if landing is not None and start <= landing < end and not self._count_regular(index, landing, landing + 1):
            total += 1
        return total

    def _count_regular(self, index: int, start: int, end: int) -> int:
        """Matches of [start, end), inside one segment, without what is caught up."""
        offset = self._offsets.offsets[index]
        low, high = start + offset, end + offset
        if not self._fixed:
            return _count_wall(tuple(self._real), low, high)
        fixed_low, fixed_high = self._fixed_range(index, self._offsets.end(index))
        fixed_low = min(max(fixed_low, low), high)
        fixed_high = max(min(fixed_high, high), fixed_low)
        real = tuple(self._real)
        return (
            _count_wall(real, low, fixed_low)
            + _count_wall(real + tuple(self._fixed), fixed_low, fixed_high)
            + _count_wall(real, fixed_high, high)
        )


def _count_wall(expressions: Expressions, low: int, high: int) -> int:
    """Wall times in [low, high) that any of the expressions matches."""
    if low >= high or not expressions:
        return 0
    first_day, first_second = divmod(low, DAY_S)
    last_day, last_second = divmod(high, DAY_S)
    if first_day == last_day:
        times = _times_on(expressions, first_day) >> first_second
        return (times & ((1 << (last_second - first_second)) - 1)).bit_count()
    total = (_times_on(expressions, first_day) >> first_second).bit_count()
    total += (_times_on(expressions, last_day) & ((1 << last_second) - 1)).bit_count()
    day = first_day + 1
    while day < last_day:
        year, month, number = _date(day)
        _, length, start = month_shape(year, month)
        stop = min(start + length, last_day)
        wanted = (2 << (stop - start)) - (1 << number)
        for members, days in _partition(expressions, year, month, wanted):
            total += days.bit_count() * _times(members)[1]
        day = stop
    return total


def most_on_a_day(expressions: Expressions, years: list[int]) -> int:
    """How often any of the expressions matches on the busiest day of these years, on the wall clock."""
    most = 0
    seen: set[Expressions] = set()
    for year in years:
        for month in range(1, 13):
            _, length, _ = month_shape(year, month)
            for members, _ in _partition(expressions, year, month, (2 << length) - 2):
                if members not in seen:
                    seen.add(members)
                    most = max(most, _times(members)[1])
    return most


def _times_on(expressions: Expressions, day: int) -> int:
    year, month, number = _date(day)
    return _times(tuple(each for each in expressions if each.days(year, month) >> number & 1))[0]


@lru_cache(maxsize=_CACHED_DAYS)
def _times(expressions: Expressions) -> tuple[int, int]:
    """The seconds of a day on which these expressions match, as bits, and their number. 11 kB each."""
    united = 0
    for each in expressions:
        united |= each.times()
    return united, united.bit_count()


@lru_cache(maxsize=_CACHED_DAYS)
def _clocks(fixed: Expressions, real: Expressions) -> tuple[tuple[int, bool], ...]:
    """The seconds of a day on which these match, WALLS_MAX at most, and whether fixed-time jobs do."""
    of_fixed, united = _times(fixed)[0], _times(fixed + real)[0]
    found: list[tuple[int, bool]] = []
    while united and len(found) < WALLS_MAX:
        low = united & -united
        found.append((low.bit_length() - 1, bool(of_fixed & low)))
        united ^= low
    return tuple(found)


def fold_flags(offsets: Offsets, at_s: int) -> list[str]:
    """Which pass of a repeated wall time this instant is in; empty where wall times do not repeat."""
    index = offsets.index(at_s)
    if at_s - offsets.starts[index] < -offsets.jump(index):
        return ["dst_fold_second"]
    end = offsets.end(index)
    if end <= MAX_S and end - at_s <= -offsets.jump(index + 1):
        return ["dst_fold_first"]
    return []


def _partition(expressions: Expressions, year: int, month: int, days: int) -> list[tuple[Expressions, int]]:
    """The days grouped by which of the expressions match on them."""
    parts: list[tuple[Expressions, int]] = [((), days)]
    for each in expressions:
        matching = each.days(year, month)
        parts = [
            part
            for members, group in parts
            for part in (((*members, each), group & matching), (members, group & ~matching))
            if part[1]
        ]
    return [part for part in parts if part[0]]


def _date(day: int) -> tuple[int, int, int]:
    found = EPOCH + timedelta(days=day)
    return found.year, found.month, found.day


def _floor(at: datetime) -> int:
    since = at - EPOCH
    return since.days * DAY_S + since.seconds
