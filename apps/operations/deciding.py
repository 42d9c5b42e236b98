"""What a running operation does next: decided from its counts and limits. Pure."""

from datetime import datetime, timedelta
from typing import Literal, NamedTuple

CHUNK = 50  # items of one transaction at most
RATE_SPAN_S = 0.25  # a limited rate goes in steps of so long
LATE_MAX_S = 0.5  # what came later than it might have is made up for: so long may pass between two looks
Verb = Literal["start", "wait", "hold", "stop", "complete"]


class Standing(NamedTuple):
    """Counts and limits of an operation whose items are all planned."""

    planned: int
    pending: int
    running: int
    failed: int
    skipped: int = 0
    rate_per_s: float | None = None
    max_in_flight: int | None = None
    canary: int | None = None
    canary_passed: bool = False
    stop_after_failures: int | None = None
    next_at: datetime | None = None


class Step(NamedTuple):
    """`start`: `room` items. `wait`: until `at`, or until something that runs has ended. `hold`: its canary failed."""

    verb: Verb
    room: int = 0
    at: datetime | None = None
    canary_passed: bool = False


def next_step(one: Standing, *, now: datetime) -> Step:
    """What is next.

    What was skipped was not tried: no canary is made of it. Without `max_in_flight` no more run at once than may still
    fail, so that `stop_after_failures` is never exceeded.
    """
    if one.stop_after_failures is not None and one.failed >= one.stop_after_failures:
        return Step("stop", canary_passed=one.canary_passed)
    passed, room = one.canary_passed or one.canary is None, CHUNK
    if not passed:
        if one.failed:
            return Step("hold")
        left = (one.canary or 0) - (one.planned - one.pending - one.skipped)
        passed = not one.running and (left <= 0 or not one.pending)
        if left <= 0 and not passed:
            return Step("wait")
        room = room if passed else min(room, left)
    if not one.pending:
        return Step("wait" if one.running else "complete", canary_passed=passed)
    if one.next_at is not None and one.next_at > now:
        return Step("wait", at=one.next_at, canary_passed=passed)
    if one.max_in_flight is not None:
        room = min(room, one.max_in_flight - one.running)
    elif one.stop_after_failures is not None:
        room = min(room, one.stop_after_failures - one.failed - one.running)
    if one.rate_per_s is not None:
        ahead_s = (now - _from(one, now)).total_seconds() + RATE_SPAN_S
        room = min(room, max(1, int(one.rate_per_s * ahead_s)))
    if room <= 0:
        return Step("wait", canary_passed=passed)
    return Step("start", min(room, one.pending), canary_passed=passed)


def next_start(one: Standing, *, started: int, now: datetime) -> datetime | None:
    """When the next item may start after `started` of them; None for at once."""
    if one.rate_per_s is None or not started:
        return None
    return _from(one, now) + timedelta(seconds=started / one.rate_per_s)


def _from(one: Standing, now: datetime) -> datetime:
    """From when on what starts now counts against the rate: since when it might have started."""
    return now if one.next_at is None else min(now, max(one.next_at, now - timedelta(seconds=LATE_MAX_S)))
