"""What is counted, and how times become histograms. Pure.

A histogram is a list of counts by bucket: bucket 0 holds what took at most BOUNDS_S[0], bucket i what took longer than
BOUNDS_S[i - 1] and at most BOUNDS_S[i], the last one everything longer. Each bound is the square root of two times the
one before, from a millisecond to a day; empty buckets at the end are left out. Histograms are merged by adding them up.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import zip_longest

FIRED, SUBMITTED, SKIPPED, RELEASED, STARTED, SUCCEEDED, DEAD, CANCELLED, EXPIRED = range(1, 10)
ATTEMPTS, ATTEMPTS_FAILED, RUN_MS = range(10, 13)
COUNTED = 13  # of the runs that were fired or submitted those that the day's counter has already
DISPATCH, START, DURATION = 100, 200, 300  # plus the bucket

COLUMNS = {
    FIRED: "fired", SUBMITTED: "submitted", SKIPPED: "skipped", RELEASED: "released", STARTED: "started",
    SUCCEEDED: "succeeded", DEAD: "dead", CANCELLED: "cancelled", EXPIRED: "expired", ATTEMPTS: "attempts",
    ATTEMPTS_FAILED: "attempts_failed", RUN_MS: "run_ms",
}  # fmt: skip
HISTOGRAMS = {DISPATCH: "dispatch", START: "start", DURATION: "duration"}
ENDS = {"succeeded": SUCCEEDED, "dead": DEAD, "cancelled": CANCELLED, "expired": EXPIRED, "skipped": SKIPPED}

BOUNDS_S = tuple(0.001 * 2 ** (step / 2) for step in range(54))  # the last one is 26 hours


class Tally:
    """What one transaction did, by tenant and key."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], int] = {}

    def add(self, tenant_id: int, key: int, count: int = 1) -> None:
        at = (tenant_id, key)
        self._counts[at] = self._counts.get(at, 0) + count

    def took(self, tenant_id: int, histogram: int, seconds: float) -> None:
        """One more that took so long; less than nothing, which clocks bring about, is nothing."""
        self.add(tenant_id, histogram + bucket_of(seconds))

    def rows(self) -> list[tuple[int, int, int]]:
        """(tenant, key, count) of what is not 0."""
        return [(*at, count) for at, count in self._counts.items() if count]


def bucket_of(seconds: float) -> int:
    """The bucket that a time falls into."""
    return bisect_left(BOUNDS_S, seconds)


def merged(histograms: Iterable[Sequence[int] | None]) -> list[int]:
    """Their sum."""
    total: list[int] = []
    for one in histograms:
        if one:
            total = [a + b for a, b in zip_longest(total, one, fillvalue=0)]
    return total


def quantile_s(histogram: Sequence[int] | None, share: float) -> float | None:
    """Within which time that share of it was, in seconds: evenly spread inside its bucket. None of nothing.

    At most 41 % too high, since a bound is 1.41 times the one before.
    """
    total = sum(histogram or ())
    if not histogram or total <= 0:
        return None
    wanted, before = share * total, 0
    for bucket, count in enumerate(histogram):
        if count and before + count >= wanted:
            low = BOUNDS_S[bucket - 1] if bucket else 0.0
            high = BOUNDS_S[min(bucket, len(BOUNDS_S) - 1)]
            return low + (high - low) * max(0.0, wanted - before) / count if high > low else high
        before += count
    return BOUNDS_S[-1]
