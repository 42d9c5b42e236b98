"""What is counted, and how times become histograms. Pure.

A histogram is a list of counts by bucket: bucket 0 holds what took at most BOUNDS_S[0], bucket i what took longer than
BOUNDS_S[i - 1] and at most BOUNDS_S[i], the last one everything longer. Each bound is the square root of two times the
one before, from a millisecond to a day; empty buckets at the end are left out. Histograms are merged by adding them up.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import NamedTuple
from uuid import UUID

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


OTHERS = ""  # the fingerprint of causes beyond the bound
CAUSES_MOST = 50  # of one tenant, in one transaction and in one minute


class Cause(NamedTuple):
    """What failures of one fingerprint have in common, as people are shown it. Bounded texts of tenants."""

    fingerprint: str
    error_class: str = ""
    status: str = ""
    host: str = ""
    message: str = ""


class Failure(NamedTuple):
    """So many attempts failed of one cause, and so many runs became dead letters by it; one of these executions."""

    cause: Cause
    attempts: int
    letters: int
    execution_id: str


class Tally:
    """What one transaction did, by tenant and key; and what failed, by tenant and cause."""

    __slots__ = ("_causes", "_counts", "_failures")

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], int] = {}
        self._failures: dict[tuple[int, str], Failure] = {}
        self._causes: dict[int, int] = {}

    def add(self, tenant_id: int, key: int, count: int = 1) -> None:
        at = (tenant_id, key)
        self._counts[at] = self._counts.get(at, 0) + count

    def took(self, tenant_id: int, histogram: int, seconds: float) -> None:
        """One more that took so long; less than nothing, which clocks bring about, is nothing."""
        self.add(tenant_id, histogram + bucket_of(seconds))

    def failed(self, tenant_id: int, cause: Cause, *, execution_id: UUID, attempts: int = 1, letters: int = 0) -> None:
        """Attempts failed, or a run died. The causes of a tenant beyond CAUSES_MOST are one."""
        known = self._failures.get((tenant_id, cause.fingerprint))
        if known is None:
            if self._causes.get(tenant_id, 0) >= CAUSES_MOST and cause.fingerprint != OTHERS:
                self.failed(tenant_id, Cause(OTHERS), execution_id=execution_id, attempts=attempts, letters=letters)
                return
            self._causes[tenant_id] = self._causes.get(tenant_id, 0) + 1
            known = Failure(cause, 0, 0, str(execution_id))
        self._failures[tenant_id, cause.fingerprint] = known._replace(
            attempts=known.attempts + attempts, letters=known.letters + letters
        )

    def failures(self) -> list[tuple[int | str, ...]]:
        """What failed: (tenant, attempts, letters, execution, then a Cause's members)."""
        return [
            (tenant_id, one.attempts, one.letters, one.execution_id, *one.cause)
            for (tenant_id, _), one in self._failures.items()
        ]

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
            return within_bucket_s(bucket, (wanted - before) / count)
        before += count
    return BOUNDS_S[-1]


def start_of(at: datetime, step_s: int) -> datetime:
    """When the minute, hour or day of UTC begins that an instant lies in."""
    at = at.astimezone(UTC)
    if step_s == 86_400:
        return at.replace(hour=0, minute=0, second=0, microsecond=0)
    return at.replace(second=0, microsecond=0, minute=at.minute if step_s == 60 else 0)


def within_bucket_s(bucket: int, share: float) -> float:
    """Within which time that share of a bucket is."""
    low = BOUNDS_S[bucket - 1] if bucket else 0.0
    high = BOUNDS_S[min(bucket, len(BOUNDS_S) - 1)]
    return low + (high - low) * max(0.0, share) if high > low else high
