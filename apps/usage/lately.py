"""What all tenants together have done in the last minutes, from their sums. For whoever measures the platform."""

from dataclasses import dataclass, field
from typing import Any

import psycopg

from apps.usage.figures import quantile_s

Conn = psycopg.Connection[Any]
WINDOW_S = 300

_SUMS = f"""
SELECT coalesce(sum(succeeded + dead + cancelled + expired), 0)::bigint, coalesce(sum(attempts), 0)::bigint,
       coalesce(sum(run_ms), 0)::bigint
FROM usage_rollup WHERE step_s = 60 AND starts_at >= date_trunc('minute', clock_timestamp() - interval '{WINDOW_S} s')
"""

_DISPATCH = f"""
SELECT u.i, sum(u.n)::bigint
FROM usage_rollup r CROSS JOIN LATERAL unnest(r.dispatch) WITH ORDINALITY AS u(n, i)
WHERE r.step_s = 60 AND r.starts_at >= date_trunc('minute', clock_timestamp() - interval '{WINDOW_S} s')
GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class Lately:
    """Executions that end in a second, how long an attempt takes on average, and the spread of dispatch lateness."""

    ended_per_s: float = 0.0
    run_s: float | None = None
    dispatch: dict[str, float] = field(default_factory=dict)


def read(conn: Conn) -> Lately:
    """The last WINDOW_S and the minute that they begin in; some seconds old."""
    row = conn.execute(_SUMS).fetchone()
    assert row is not None
    ended, attempts, run_ms = row
    counted = {int(bucket): int(n) for bucket, n in conn.execute(_DISPATCH)}
    histogram = [counted.get(bucket, 0) for bucket in range(1, max(counted, default=0) + 1)]
    dispatch: dict[str, float] = {"times": sum(histogram)}
    for name, share in (("p50_s", 0.5), ("p95_s", 0.95), ("p99_s", 0.99)):
        value = quantile_s(histogram, share)
        if value is not None:
            dispatch[name] = round(value, 4)
    return Lately(ended / WINDOW_S, run_ms / attempts / 1_000 if attempts else None, dispatch)
