"""The occurrences of a range, counted exactly and read in pages in either order. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from apps.schedules.timing import Spec, count_between, latest_between, occurrences

ORDERS = ("asc", "desc")
_MICROSECOND = timedelta(microseconds=1)


class Range(NamedTuple):
    """From `since` to `until`: `since` belongs to it, `until` does not."""

    since: datetime
    until: datetime


def count(spec: Spec, within: Range) -> int:
    """How many occurrences the range has; exact, also over clock changes."""
    return count_between(spec, after=within.since - _MICROSECOND, until=within.until - _MICROSECOND)


def page(spec: Spec, within: Range, *, order: str, after: datetime | None, size: int) -> Sequence[datetime]:
    """The next `size` occurrences of the range in this order, beyond `after`; fewer where it ends."""
    if order == "asc":
        since = within.since - _MICROSECOND if after is None else after
        return list(occurrences(spec, after=since, until=within.until - _MICROSECOND, limit=size))
    until = within.until if after is None else after
    newest, _ = latest_between(
        spec, after=within.since - _MICROSECOND, until=until - _MICROSECOND, limit=size
    )  # fmt: skip
    return newest[::-1]
