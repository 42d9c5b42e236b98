"""What all tenants together have done in the last minutes, from their sums. For whoever measures the platform."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg

from apps.usage.figures import merged, within_bucket_s
from apps.usage.reading import spread

Conn = psycopg.Connection[Any]
WINDOW_S = 300
P99 = 0.99
# By the statement's time: with the clock's, which changes while it runs, the index could not be entered by it.
_SINCE = f"date_trunc('minute', statement_timestamp() - interval '{WINDOW_S} s')"

_SUMS = f"""
SELECT succeeded + dead + cancelled + expired, attempts, run_ms, dispatch
FROM usage_platformrollup WHERE step_s = 60 AND starts_at >= {_SINCE}
"""

_OF_TENANTS = f"""
SELECT tenant_id, sum(succeeded + dead + cancelled + expired)::bigint, sum(dead)::bigint, sum(attempts)::bigint,
       sum(attempts_failed)::bigint
FROM usage_rollup WHERE step_s = 60 AND starts_at >= {_SINCE}
GROUP BY 1
"""

# The bucket in which the first 99 % of a tenant's releases end, how many are before it, in it, and in all.
_LATENESS_OF_TENANTS = f"""
WITH bucket AS (
    SELECT r.tenant_id, u.i, sum(u.n)::bigint AS n
    FROM usage_rollup r CROSS JOIN LATERAL unnest(r.dispatch) WITH ORDINALITY AS u(n, i)
    WHERE r.step_s = 60 AND r.starts_at >= {_SINCE}
    GROUP BY 1, 2),
placed AS (
    SELECT tenant_id, i, n, sum(n) OVER (PARTITION BY tenant_id ORDER BY i)::bigint AS upto,
           sum(n) OVER (PARTITION BY tenant_id)::bigint AS total
    FROM bucket)
SELECT DISTINCT ON (tenant_id) tenant_id, i - 1, upto - n, n, total
FROM placed WHERE upto >= {P99} * total AND n > 0 ORDER BY tenant_id, i
"""


class OfTenant(NamedTuple):
    """What one tenant did: runs and attempts that ended, first releases and their dispatch lateness."""

    ended: int = 0
    dead: int = 0
    attempts: int = 0
    attempts_failed: int = 0
    released: int = 0
    dispatch_p99_s: float | None = None


@dataclass(frozen=True, slots=True)
class Lately:
    """Executions that end in a second, how long an attempt takes on average, and the spread of dispatch lateness."""

    ended_per_s: float = 0.0
    run_s: float | None = None
    dispatch: dict[str, float] = field(default_factory=dict)


def read(conn: Conn) -> Lately:
    """The last WINDOW_S and the minute that they begin in; some seconds old."""
    rows = conn.execute(_SUMS).fetchall()
    ended, attempts, run_ms = (sum(row[at] for row in rows) for at in range(3))
    late = spread(merged(row[3] for row in rows))
    dispatch = {name: round(value, 4) for name, value in late._asdict().items() if value is not None}
    return Lately(ended / WINDOW_S, run_ms / attempts / 1_000 if attempts else None, dispatch)


def by_tenant(conn: Conn) -> dict[int, OfTenant]:
    """The same time of each tenant that did something in it. A row each: percentiles are found by the database."""
    found = {tenant_id: OfTenant(*counts) for tenant_id, *counts in conn.execute(_OF_TENANTS)}
    for tenant_id, bucket, before, count, total in conn.execute(_LATENESS_OF_TENANTS):
        p99_s = round(within_bucket_s(bucket, (P99 * total - before) / count), 4)
        found[tenant_id] = found.get(tenant_id, OfTenant())._replace(released=total, dispatch_p99_s=p99_s)
    return found
