"""A recurrence rule with its bounds, extra instants (RDATE) and left-out ones (EXDATE), as one calendar."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from apps.schedules.timing_errors import NotFoundYet
from apps.schedules.timing_steps import StepCalendar
from apps.schedules.timing_walls import FAR_S, floor_s, instant, local_s, place, runs_at, spans_of, walls_of
from apps.schedules.timing_zones import DAY_S, EPOCH, MAX_S, zone_offsets

LAST = EPOCH + timedelta(seconds=MAX_S)
_MICROSECOND = timedelta(microseconds=1)


class RecurrenceSet:
    """`base` from `first` to `last` (inclusive), less what is left out, with what is added.

    COUNT counts instants of the rule from its start, left-out ones included, as RFC 5545 has it.
    """

    __slots__ = ("_added", "_base", "_first", "_last", "_left_days", "_left_out", "_offsets")

    def __init__(
        self, base: Any, *, zone: str, first: datetime, last: datetime | None, count: int | None,
        added: Sequence[datetime] = (), left_out: Sequence[datetime] = (), left_days: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self._base, self._offsets, self._first, self._last = base, zone_offsets(zone), first, last
        self._left_out, self._left_days = frozenset(left_out), frozenset(left_days)
        if count is not None:
            counted = nth_after(base, first - _MICROSECOND, count)
            if counted is not None:  # else the calendar ends before the count does
                self._last = counted if last is None else min(counted, last)
        self._added = sorted(at for at in set(added) if at not in self._left_out and not self._of_rule(at))

    @property
    def searches(self) -> bool:
        """Whether each question is a search over days and hours, not arithmetic."""
        return isinstance(self._base, StepCalendar)

    def next_after(self, after: datetime) -> datetime | None:
        index = bisect_right(self._added, after)
        extra = self._added[index] if index < len(self._added) else None
        try:
            found = self.rule_next_after(after)
        except NotFoundYet as error:
            if extra is None or extra > error.searched_to:
                raise
            return extra  # the rule has nothing up to there
        return found if extra is None or (found is not None and found < extra) else extra

    def rule_next_after(self, after: datetime) -> datetime | None:
        """The next instant of the rule alone, without what is added."""
        at: datetime | None = max(after, self._first - _MICROSECOND)
        while at is not None:
            try:
                at = self._base.next_after(at)
            except NotFoundYet as error:
                if self._last is None or error.searched_to < self._last:
                    raise
                return None
            if at is None or (self._last is not None and at > self._last):
                return None
            if self._on_left_day(at):
                at = self._end_of_left(at) - _MICROSECOND
            elif at not in self._left_out:
                return at
        return None

    def previous_before(self, before: datetime) -> datetime | None:
        index = bisect_left(self._added, before)
        extra = self._added[index - 1] if index else None
        try:
            found = self._rule_previous(before)
        except NotFoundYet as error:
            if extra is None or extra < error.searched_to:
                raise
            return extra  # the rule has nothing from there on
        return found if extra is None or (found is not None and found > extra) else extra

    def count(self, after: datetime, until: datetime) -> int:
        extra = bisect_right(self._added, until) - bisect_right(self._added, after)
        low = max(after, self._first - _MICROSECOND)
        high = until if self._last is None else min(until, self._last)
        if low >= high:
            return max(extra, 0)
        total: int = self._base.count(low, high)
        total -= sum(low < at <= high and self._is_base(at) and not self._on_left_day(at) for at in self._left_out)
        for day in self._left_days:
            for start, end in self._spans(day):
                since, until_ = max(start - _MICROSECOND, low), min(end - _MICROSECOND, high)
                total -= self._base.count(since, until_) if since < until_ else 0
        return total + extra

    def flags(self, at: datetime) -> list[str]:
        found: list[str] = self._base.flags(at) if self._is_base(at) and hasattr(self._base, "flags") else []
        return found

    def walls(self, day: int) -> list[tuple[int, bool]]:
        """The wall times of a local day, in naive seconds, and whether they are at fixed times."""
        low, high = (bisect_left(self._added, instant(at)) for at in (day * DAY_S - FAR_S, (day + 1) * DAY_S + FAR_S))
        own = {local_s(self._offsets, floor_s(at)) for at in self._added[low:high]}
        found = [(wall, True) for wall in own if wall // DAY_S == day]
        if day in self._left_days:
            return found
        for wall, fixed in walls_of(self._base, day, self._offsets):
            ats = [instant(at) for at in place(self._offsets, wall, True, "both")]
            kept = [at for at in ats if self._first <= at and (self._last is None or at <= self._last)]
            if kept and not all(at in self._left_out for at in kept):
                found.append((wall, fixed))
        return found

    def _rule_previous(self, before: datetime) -> datetime | None:
        at: datetime | None = before if self._last is None else min(before, self._last + _MICROSECOND)
        while at is not None:
            try:
                at = self._base.previous_before(at)
            except NotFoundYet as error:
                if error.searched_to > self._first:
                    raise
                return None
            if at is None or at < self._first:
                return None
            if self._on_left_day(at):
                at = self._start_of_left(at)
            elif at not in self._left_out:
                return at
        return None

    def _of_rule(self, at: datetime) -> bool:
        return self._first <= at and (self._last is None or at <= self._last) and self._is_base(at) and (
            not self._is_left_out(at)
        )  # fmt: skip

    def _is_base(self, at: datetime) -> bool:
        return runs_at(self._base, at)

    def _is_left_out(self, at: datetime) -> bool:
        return at in self._left_out or self._on_left_day(at)

    def _on_left_day(self, at: datetime) -> bool:
        return bool(self._left_days) and self._day(at) in self._left_days

    def _day(self, at: datetime) -> int:
        return local_s(self._offsets, floor_s(at)) // DAY_S

    def _end_of_left(self, at: datetime) -> datetime:
        """Where the row of left days ends that this instant is on."""
        day = self._day(at)
        end = next(end for start, end in self._spans(day) if start <= at < end)
        while day + 1 in self._left_days and (spans := self._spans(day + 1)) and spans[0][0] == end:
            day, end = day + 1, spans[0][1]
            if len(spans) > 1:
                break
        return end

    def _start_of_left(self, at: datetime) -> datetime:
        day = self._day(at)
        start = next(start for start, end in self._spans(day) if start <= at < end)
        while day - 1 in self._left_days and (spans := self._spans(day - 1)) and spans[-1][1] == start:
            day, start = day - 1, spans[-1][0]
            if len(spans) > 1:
                break
        return start

    def _spans(self, day: int) -> list[tuple[datetime, datetime]]:
        """The stretches [start, end) of a local day: one, two where the clock goes back at midnight, or none."""
        spans = spans_of(self._offsets, day * DAY_S, (day + 1) * DAY_S)
        return [(instant(start), instant(end)) for start, end in spans]


def nth_after(calendar: Any, after: datetime, number: int, *, until: datetime = LAST) -> datetime | None:
    """The `number`-th instant strictly after this one and up to `until`; None when there are not so many.

    By counting, not by walking: each stretch is counted about twice.
    """
    low, span, done = after, timedelta(hours=1), 0
    while True:
        high = min(low + span, until) if until - low > span else until
        between: int = calendar.count(low, high)
        if done + between >= number:
            break
        if high >= until:
            return None
        low, span, done = high, span * 2, done + between
    while between > 64 and high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        half: int = calendar.count(low, middle)
        if done + half >= number:
            high, between = middle, half
        else:
            low, done, between = middle, done + half, between - half
    at: datetime | None = low
    for _ in range(number - done):
        at = None if at is None else calendar.next_after(at)
    return at
