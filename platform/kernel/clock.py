"""The only place that asks this machine's clock. Domain functions take `now`; entry points call these."""

import time
from collections.abc import Callable
from datetime import UTC, datetime


def utc_now() -> datetime:
    """This machine's wall clock, aware, UTC."""
    return datetime.now(UTC)


def monotonic_s() -> float:
    """Seconds that never go back; for time-outs and trust windows, never stored."""
    return time.monotonic()


def thread_cpu_s() -> float:
    """CPU seconds that the calling thread has used since it began."""
    return time.thread_time()


def within(seconds: float) -> Callable[[], bool]:
    """True until so many seconds have passed from now: for work that leaves the rest to its next run."""
    end = monotonic_s() + seconds
    return lambda: monotonic_s() < end
