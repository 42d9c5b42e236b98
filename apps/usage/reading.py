"""Figures of a tenant's past, as they are shown to people."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from apps.usage.figures import COLUMNS, HISTOGRAMS, quantile_s

Conn = psycopg.Connection[Any]
STEP_S = {"minute": 60, "hour": 3_600, "day": 86_400}
PERIODS_MAX = 1_500  # in one answer

_NAMES = [*COLUMNS.values(), *HISTOGRAMS.values()]
_HISTORY = f"""
SELECT starts_at, {", ".join(_NAMES)} FROM usage_rollup
WHERE tenant_id = %s AND step_s = %s AND starts_at >= %s AND starts_at < %s ORDER BY starts_at LIMIT {PERIODS_MAX}
"""


class Spread(NamedTuple):
    """How many there were and how they were spread, in seconds; None of nothing."""

    times: int
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None


class Period(NamedTuple):
    """A minute, an hour or a day."""

    starts_at: datetime
    counts: dict[str, int]
    spreads: dict[str, Spread]


def history(conn: Conn, *, tenant_id: int, step: str, start: datetime, end: datetime) -> list[Period]:
    """Periods that begin from `start` on and before `end`, in order; those without anything are left out."""
    return periods(conn.execute(_HISTORY, [tenant_id, STEP_S[step], start, end]).fetchall())


def periods(rows: Sequence[Sequence[Any]]) -> list[Period]:
    """What rows of a table of figures say: when each begins, then COLUMNS, then HISTOGRAMS."""
    found = []
    for starts_at, *values in rows:
        named = dict(zip(_NAMES, values, strict=True))
        counts = {name: int(named[name]) for name in COLUMNS.values()}
        found.append(Period(starts_at, counts, {name: spread(named[name]) for name in HISTOGRAMS.values()}))
    return found


def spread(histogram: Sequence[int] | None) -> Spread:
    """What a histogram says."""
    p50, p95, p99 = (quantile_s(histogram, share) for share in (0.5, 0.95, 0.99))
    return Spread(sum(histogram or ()), p50, p95, p99)
