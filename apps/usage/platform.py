"""What the platform did, over all tenants together, from its own sums: a row each minute, hour and day."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from apps.usage.figures import COLUMNS, HISTOGRAMS, merged, start_of
from apps.usage.reading import PERIODS_MAX, STEP_S, Period, Spread, periods, spread

Conn = psycopg.Connection[Any]
WINDOW = timedelta(minutes=5)  # of lateness
COMPARED = timedelta(hours=1)
WEEK = timedelta(days=7)

_NAMES = [*COLUMNS.values(), *HISTOGRAMS.values()]
_HISTORY = f"""
SELECT starts_at, {", ".join(_NAMES)} FROM usage_platformrollup
WHERE step_s = %s AND starts_at >= %s AND starts_at < %s ORDER BY starts_at LIMIT {PERIODS_MAX}
"""
_DISPATCH = """
SELECT dispatch FROM usage_platformrollup
WHERE step_s = 60 AND starts_at >= %s AND starts_at <= %s AND dispatch IS NOT NULL
"""
_ENDED = """
SELECT coalesce(sum(succeeded + dead + cancelled + expired), 0)::bigint, coalesce(sum(dead), 0)::bigint,
       coalesce(sum(attempts), 0)::bigint, coalesce(sum(attempts_failed), 0)::bigint
FROM usage_platformrollup WHERE step_s = 60 AND starts_at >= %s AND starts_at < %s
"""


class Rate(NamedTuple):
    """Runs that ended and attempts that ended, each with how many of them failed."""

    ended: int
    dead: int
    attempts: int
    attempts_failed: int

    @property
    def failing(self) -> float | None:
        """The share of attempts that failed; None of nothing."""
        return self.attempts_failed / self.attempts if self.attempts else None


class Compared(NamedTuple):
    """The last hour, and the same hour a week ago; that is None where nothing was counted then."""

    since: datetime
    now: Rate
    week_ago: Rate | None


def history(conn: Conn, *, step: str, start: datetime, end: datetime) -> list[Period]:
    """Periods ("minute", "hour", "day") that begin from `start` on and before `end`; empty ones are left out.

    Minutes are kept for eight days. What was done is there some seconds later.
    """
    return periods(conn.execute(_HISTORY, [STEP_S[step], start, end]).fetchall())


def lateness(conn: Conn, *, now: datetime, window: timedelta = WINDOW) -> Spread:
    """Dispatch lateness of the first releases in the last minutes, with how many there were."""
    rows = conn.execute(_DISPATCH, [start_of(now - window, 60), now])
    return spread(merged(row[0] for row in rows))


def failure_rate(conn: Conn, *, now: datetime) -> Compared:
    """How much failed in the last hour against the same hour last week."""
    since = start_of(now - COMPARED, 60)
    before = _rate(conn, since - WEEK, start_of(now, 60) - WEEK)
    return Compared(since, _rate(conn, since, now), before if before.attempts else None)


def _rate(conn: Conn, start: datetime, end: datetime) -> Rate:
    row = conn.execute(_ENDED, [start, end]).fetchone()
    assert row is not None
    return Rate._make(row)
