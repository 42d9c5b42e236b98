"""How many runs due entries will make, and when: by minute for a day and more, by hour for a week and more. Pure.

An entry stands for its occurrence and all later ones; each is counted at its actual instant, by the functions that fire
uses. What is alike in many entries (trigger, zone, windows) is expanded once: only jitter differs from key to key, and
of that only what reaches over the end of a minute or hour. Of the minute and the hour that it begins in, a forecast
holds what runs in all of it, also what has run already; an entry that is late counts with the runs that come after.
"""

from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from apps.schedules.timing import (
    Spec,
    TimingInvalid,
    count_between,
    delayed,
    is_look_again,
    jitter_bound_before,
    occurrences,
    spec_from_json,
)
from apps.schedules.timing_runs import counted
from apps.schedules.timing_triggers import Interval
from apps.schedules.timing_zones import EPOCH

MINUTE_S, HOUR_S = 60, 3_600
SLACK_HOURS = 48  # how old a forecast may become and still reach a day and a week ahead
NEAR_HOURS, HOURS = 24 + SLACK_HOURS, 7 * 24 + SLACK_HOURS
MINUTES = NEAR_HOURS * 60
BINS = MINUTES + HOURS - NEAR_HOURS  # minutes first, then the hours after them
PATTERNS_KEPT = 8_192
SPECS_KEPT = 256  # of its own: those that fire has prepared stay where they are
KEPT_MAX = 1_000_000  # bins of all patterns that are kept, of some bytes each
OPEN_WEIGHT = 16  # times as large as a bin
WALKED_MAX = 2_000  # about so many instants of one pattern in the minutes or in the hours; more are counted instead
_SECOND, _MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
_ALL = 2**63


class Entry(Protocol):
    """What of a due entry says when it runs."""

    @property
    def key(self) -> Any: ...
    @property
    def kind(self) -> str: ...
    @property
    def spec(self) -> str: ...
    @property
    def nominal_at(self) -> datetime: ...
    @property
    def due_at(self) -> datetime: ...
    @property
    def runs_done(self) -> int | None: ...


def _parser() -> Callable[[str], Spec]:
    return lru_cache(maxsize=SPECS_KEPT)(spec_from_json.__wrapped__)


class Open(NamedTuple):
    """An occurrence whose minute or hour depends on the schedule's jitter, which is less than `bound` seconds."""

    nominal: datetime
    bound: int

    @property
    def reach(self) -> timedelta:
        """It runs earlier than so long after its nominal instant."""
        return timedelta(seconds=self.bound)


@dataclass(frozen=True, slots=True)
class Pattern:
    """What entries that are alike have in common: runs by bin, and what each of them has to look at for itself."""

    indices: "array[int]" = field(default_factory=lambda: array("H"))
    counts: "array[int]" = field(default_factory=lambda: array("I"))
    opens: tuple[Open, ...] = ()

    @property
    def bins(self) -> Iterator[tuple[int, int]]:
        return zip(self.indices, self.counts, strict=True)

    @property
    def size(self) -> int:
        return len(self.indices) + OPEN_WEIGHT * len(self.opens)


@dataclass(slots=True)
class Expander:
    """Finds the runs of entries in one stretch of time, from `starts_at`, a whole hour, on.

    `now` is when the entries were read, or soon before. Keeps PATTERNS_KEPT patterns and KEPT_MAX bins at most.
    """

    starts_at: datetime
    now: datetime
    _patterns: "OrderedDict[Any, Pattern]" = field(default_factory=OrderedDict)
    _kept: int = 0
    _nexts: dict[Any, datetime] = field(default_factory=dict)
    _parse: Callable[[str], Spec] = field(default_factory=_parser)

    @property
    def until(self) -> datetime:
        """The end of the last hour."""
        return self.starts_at + timedelta(hours=HOURS)

    def look_from(self, now: datetime) -> None:
        """Entries are read anew, at this time."""
        self.now = now
        self._nexts.clear()

    def zone(self, entry: Entry) -> str | None:
        """Of a schedule whose text can be read."""
        try:
            return self._parse(entry.spec).zone if entry.kind == "schedule" else None
        except TimingInvalid:
            return None

    def runs(self, entry: Entry) -> Iterator[tuple[int, int]]:
        """Bins with how many runs of this entry fall into each; a bin may come more than once."""
        pattern = self.pattern(entry)
        yield from pattern.bins
        yield from self.of_opens(pattern, str(entry.key))

    def of_opens(self, pattern: Pattern, key: str) -> Iterator[tuple[int, int]]:
        """What of a pattern depends on the schedule."""
        for one in pattern.opens:
            index = self.of_open(one, key)
            if index is not None:
                yield index, 1

    def of_open(self, one: Open, key: str) -> int | None:
        """The bin in which an occurrence of this schedule runs."""
        return self.bin_of(delayed(key, one.nominal, one.bound))

    def bin_of(self, at: datetime) -> int | None:
        """The bin of an instant; None outside of the stretch."""
        since = at - self.starts_at
        seconds = since.days * 86_400 + since.seconds
        if not 0 <= seconds < HOURS * HOUR_S:
            return None
        return seconds // MINUTE_S if seconds < NEAR_HOURS * HOUR_S else MINUTES + seconds // HOUR_S - NEAR_HOURS

    def pattern(self, entry: Entry) -> Pattern:
        """What entries like this one have in common. Nothing for one whose text can't be read: fire parks it."""
        if entry.kind != "schedule":
            index = self.bin_of(entry.due_at)
            return Pattern() if index is None else Pattern(array("H", [index]), array("I", [1]))
        try:
            return self._pattern(self._parse(entry.spec), entry)
        except TimingInvalid:
            return Pattern()

    def _pattern(self, spec: Spec, entry: Entry) -> Pattern:
        first = entry.nominal_at
        if first >= self.until:
            return Pattern()
        same = _identity(spec)
        # One that stands where the trigger runs next, jitter included, has what is before it behind itself.
        from_ = None if first <= self._next(spec, same) else first
        if spec.max_runs is not None:
            spec, _ = counted(spec, nominal_at=first, done=entry.runs_done)
        end = spec.last_at(by=self.until)
        if spec.max_runs is not None:
            if end is None or end == spec.end_at:
                spec = replace(spec, max_runs=None, runs_from=None)
            else:
                from_ = first  # what is left counts from its occurrence on
        if end is not None and end > self.until + timedelta(days=1):
            end = None
        key = (same, spec.jitter_s, from_, end, None if spec.max_runs is None else spec.max_runs - spec.runs_used)
        found = self._patterns.get(key)
        if found is None:
            found = self._patterns[key] = self._expand(spec, from_)
            self._kept += found.size
            while len(self._patterns) > PATTERNS_KEPT or self._kept > KEPT_MAX:
                self._kept -= self._patterns.popitem(last=False)[1].size
        else:
            self._patterns.move_to_end(key)
        return found

    def _next(self, spec: Spec, same: Any) -> datetime:
        """The trigger's first instant that may still be to come, whatever the bounds of the schedule."""
        found = self._nexts.get((same, spec.jitter_s))
        if found is None:
            if len(self._nexts) > PATTERNS_KEPT:
                self._nexts.clear()
            bare = replace(spec, start_at=None, end_at=None, max_runs=None, runs_from=None)
            after = self.now - spec.jitter_s * _SECOND
            first = next(occurrences(bare, after=after, limit=1), None)  # not from the memory that fire uses
            found = self._nexts[same, spec.jitter_s] = first or self.until
        return found

    def _expand(self, spec: Spec, first: datetime | None) -> Pattern:
        near = self.starts_at + timedelta(hours=NEAR_HOURS)
        low = self.starts_at - spec.jitter_s * _SECOND if first is None else first
        if first is not None and is_look_again(spec, first):
            low += _MICROSECOND
        bins: Counter[int] = Counter()
        opens: list[Open] = []
        for begin, end, width_s in ((low, near, MINUTE_S), (max(low, near), self.until, HOUR_S)):
            reach = min(spec.jitter_s, width_s)
            if begin >= end:
                continue
            if reach == width_s or not _is_dense(spec, begin, end):
                self._walk(spec, begin, end, bins, opens)
                continue
            start = self.starts_at if width_s == MINUTE_S else near
            if begin < start:
                self._walk(spec, begin, start, bins, opens)
            while start < end:
                # What is delayed out of its minute or hour lies at the end of it.
                middle, after = start + (width_s - reach) * _SECOND, start + width_s * _SECOND
                if count := _count(spec, max(start, begin), middle):
                    index = self.bin_of(start)
                    assert index is not None
                    bins[index] += count
                if reach:
                    self._walk(spec, max(middle, begin), after, bins, opens)
                start = after
        return Pattern(array("H", bins.keys()), array("I", bins.values()), tuple(opens))

    def _walk(
        self, spec: Spec, begin: datetime, end: datetime, bins: Counter[int], opens: list[Open]
    ) -> None:  # fmt: skip
        """Adds the occurrences of [begin, end), one by one."""
        instants = occurrences(spec, after=begin - _MICROSECOND, limit=_ALL)
        at = next(instants, None)
        while at is not None and at < end:
            following = next(instants, None)
            bound = jitter_bound_before(spec, at, following)[0] if spec.jitter_s else 0
            index = self.bin_of(at)
            if bound >= 2 and self.bin_of(at + (bound - 1) * _SECOND) != index:
                opens.append(Open(at, bound))
            elif index is not None:
                bins[index] += 1
            at = following


def _identity(spec: Spec) -> Any:
    """What makes two specs' triggers run at the same minutes. Specs that are equal share their calendar."""
    calendar = spec.calendar()
    if type(calendar) is Interval:
        return calendar.every_s, (calendar.anchor - EPOCH) // _SECOND % calendar.every_s
    return calendar


def _is_dense(spec: Spec, begin: datetime, end: datetime) -> bool:
    """Whether counting costs less than walking, going by the first two instants: either finds the same."""
    first, second = (*occurrences(spec, after=begin - _MICROSECOND, until=end, limit=2), None, None)[:2]
    return first is not None and second is not None and (second - first) * WALKED_MAX < end - begin


def _count(spec: Spec, begin: datetime, end: datetime) -> int:
    return count_between(spec, after=begin - _MICROSECOND, until=end - _MICROSECOND) if begin < end else 0
