"""What a schedule had to account for in a range, from the versions that were in force then. Pure.

A range is cut into parts: in each one version decides, or it can't be said what was expected, and why not. Zone data
that changed since is one reason, where the old rules are not those of now: instants there were computed by the one or
by the other, as the due entry was made before or after.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from apps.schedules.history import History
from apps.schedules.timing import Spec, count_between, occurrences
from apps.schedules.timing_rezoned import ZONE_SHIFT_MAX

NOT_KEPT, NOT_KNOWN, ZONE_DATA, UNREADABLE = "not_kept", "history_unknown", "zone_data_changed", "unreadable"
_MICROSECOND = timedelta(microseconds=1)
_UNBOUNDED = 10**9


@dataclass(frozen=True, slots=True)
class Part:
    """In (`after`, `until`] these occurrences had to be accounted for."""

    version: int
    spec: Spec
    after: datetime
    until: datetime

    def count(self) -> int:
        """How many they are; exact, also over years of seconds."""
        return count_between(self.spec, after=self.after, until=self.until)

    def instants(self) -> Iterator[datetime]:
        """They themselves, oldest first."""
        return occurrences(self.spec, after=self.after, until=self.until, limit=_UNBOUNDED)


@dataclass(frozen=True, slots=True)
class Unknown:
    """In (`after`, `until`] nobody can say what is missing.

    Reasons: "not_kept" (rows of then are deleted), "history_unknown" (when versions began and ended was not written
    then), "zone_data_changed", "unreadable" (the version's text).
    """

    after: datetime
    until: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class ZoneChange:
    """A zone's due entries were computed anew at `at`; `differs` gives where its rules before are not those of now."""

    zone: str
    at: datetime
    differs: Callable[[datetime, datetime], Sequence[tuple[datetime, datetime]]]


@dataclass(frozen=True, slots=True)
class Expected:
    """The parts of a range in which something was expected, and those of which nothing can be said; each in order."""

    parts: tuple[Part, ...]
    unknown: tuple[Unknown, ...]

    def count(self) -> int:
        """How many occurrences had to be accounted for."""
        return sum(part.count() for part in self.parts)


def expected(
    history: History, *, since: datetime, until: datetime, kept_from: datetime | None, zones: Sequence[ZoneChange] = ()
) -> Expected:
    """What had to be accounted for from `since` (inclusive) to `until` (not so).

    Rows from before `kept_from` may be gone (None: none are). `zones` are all changes of zone data.
    """
    after, until = since - _MICROSECOND, until - _MICROSECOND
    unknown: list[Unknown] = []
    for begins, reason in ((kept_from, NOT_KEPT), (history.known_from, NOT_KNOWN)):
        if begins is not None and after < min(begins, until):
            unknown.append(Unknown(after, min(begins, until), reason))
            after = min(begins, until)
    parts: list[Part] = []
    for stretch in history.stretches:
        low, high = max(after, stretch.after), until if stretch.until is None else min(until, stretch.until)
        if low >= high:
            continue
        after = high  # two stretches can't both decide about an instant
        if stretch.spec is None:
            unknown.append(Unknown(low, high, UNREADABLE))
            continue
        for begins, ends in _not_sure(stretch.spec.zone, low, high, zones):
            if low < begins:
                parts.append(Part(stretch.version, stretch.spec, low, begins))
            if max(low, begins) < ends:
                unknown.append(Unknown(max(low, begins), ends, ZONE_DATA))
            low = max(low, ends)
        if low < high:
            parts.append(Part(stretch.version, stretch.spec, low, high))
    return Expected(tuple(parts), tuple(unknown))


def _not_sure(
    zone: str, after: datetime, until: datetime, zones: Sequence[ZoneChange]
) -> list[tuple[datetime, datetime]]:
    """Where the rules of then may have been others; the earliest first."""
    found = []
    for change in zones:
        if change.zone != zone or after >= change.at + ZONE_SHIFT_MAX:
            continue
        for low, high in change.differs(after - ZONE_SHIFT_MAX, min(until, change.at) + ZONE_SHIFT_MAX):
            found.append((max(after, low - ZONE_SHIFT_MAX), min(until, high + ZONE_SHIFT_MAX)))
    return sorted(found)
