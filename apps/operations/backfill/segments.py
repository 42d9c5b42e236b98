"""A range in parts, in each of which one version of the schedule says what its occurrences are. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from apps.operations.backfill import within
from apps.operations.backfill.within import Range
from apps.schedules.history import History
from apps.schedules.timing import Spec

NOW, THEN = "now", "then"
DEFINITIONS = (NOW, THEN)
_MICROSECOND = timedelta(microseconds=1)


class Segment(NamedTuple):
    """A part of a range, and what decides in it."""

    spec: Spec
    within: Range
    version: int


def of_then(history: History, whole: Range) -> list[Segment]:
    """What was in force in the parts of a range, in order; parts in which nothing was, or that can't be read, lack."""
    found, since = [], whole.since
    for stretch in history.stretches:
        low = max(since, stretch.after + _MICROSECOND)
        high = whole.until if stretch.until is None else min(whole.until, stretch.until + _MICROSECOND)
        if stretch.spec is not None and low < high:
            found.append(Segment(stretch.spec, Range(low, high), stretch.version))
            since = high  # two versions never decide about one instant
    return found


def count(segments: Sequence[Segment]) -> int:
    """How many occurrences they have; exact."""
    return sum(within.count(one.spec, one.within) for one in segments)


def page(segments: Sequence[Segment], *, order: str, after: datetime | None, size: int) -> list[datetime]:
    """The next `size` of their occurrences in this order, beyond `after`; fewer where they end."""
    found: list[datetime] = []
    for one in segments if order == "asc" else segments[::-1]:
        beyond = after
        if after is not None and not one.within.since <= after < one.within.until:
            if (after >= one.within.until) == (order == "asc"):
                continue  # it lies behind
            beyond = None
        found += within.page(one.spec, one.within, order=order, after=beyond, size=size - len(found))
        if len(found) == size:
            break
    return found


def version_at(segments: Sequence[Segment], at: datetime) -> int | None:
    """The version that decides about an instant."""
    return next((one.version for one in segments if one.within.since <= at < one.within.until), None)
