"""When a backfill makes no further run for now, so that live work finds its places. Pure."""

from dataclasses import dataclass
from datetime import datetime

PRESSED = "live_work_waits"  # for slots of the pool, too long: one run at a time is left, so that nothing starves
NEXT_IS_NEAR = "next_run_is_near"  # the schedule's own, beside which no other one may be
RUNS_ALREADY = "overlap"  # a run of the schedule is alive
LEAST_GAP_S = 1.0


@dataclass(frozen=True, slots=True)
class Live:
    """How live work is: whether it waits too long in the pool, when the schedule is due, how long a run takes."""

    pressed: bool
    next_due: datetime | None
    run_s: float | None


def holds(live: Live, *, running: int, serial: bool, now: datetime) -> str:
    """Why a backfill with so many runs in flight waits; empty when it may go on.

    A `serial` one leaves the gap before the next run of the schedule alone when no run of it is likely to fit.
    """
    if live.pressed and running > 0:
        return PRESSED
    if not serial or live.next_due is None:
        return ""
    needed = max(LEAST_GAP_S, live.run_s or 0.0)
    return NEXT_IS_NEAR if (live.next_due - now).total_seconds() <= needed else ""
