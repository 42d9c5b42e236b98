"""Token buckets in SQL: what a rate lets go now. In any time t at most `burst + per_s * t` runs of an owner go.

A job's row exists while its definition has a rate (`filling`); the tenant's own (owner all zeros) is made when it is
first used and follows the plan. Whoever takes tokens holds the rows from the reading on: a job's are locked here,
passing over what somebody else holds (that job gets nothing then); the tenant's is covered by the lock on its row.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from apps.tickets.values import WHOLE_TENANT, Rate

Conn = psycopg.Connection[Any]
AHEAD_MAX = timedelta(minutes=1)  # a row that is further ahead was written by a wrong clock: it holds nobody up

_OF_JOBS = """
SELECT {columns} FROM unnest(%(tenants)s::int[], %(jobs)s::uuid[]) AS m(tenant_id, owner)
JOIN tickets_bucket b ON b.tenant_id = m.tenant_id AND b.owner = m.owner
"""
_LIMITED = _OF_JOBS.format(columns="b.owner")
_READ = _OF_JOBS.format(columns="b.owner, b.per_s, b.burst, b.tokens, b.at")
_LOCK = _READ + " ORDER BY b.tenant_id, b.owner FOR UPDATE OF b SKIP LOCKED"

# Whether the job of a flow `f` has a rate.
RATED = "EXISTS (SELECT FROM tickets_bucket b WHERE b.tenant_id = f.tenant_id AND b.owner = f.job_id)"

# The instant never goes back, or a clock that steps back and forth again would give tokens for that time twice.
LATER_AT = f"""CASE WHEN b.at > excluded.at + interval '{AHEAD_MAX.total_seconds()} seconds' THEN excluded.at
                ELSE greatest(b.at, excluded.at) END"""

_TAKE = f"""
INSERT INTO tickets_bucket AS b (tenant_id, owner, per_s, burst, tokens, at)
SELECT m.*, %(now)s FROM unnest(%(tenants)s::int[], %(owners)s::uuid[], %(per_s)s::float8[], %(bursts)s::int[],
                                %(tokens)s::float8[]) AS m ORDER BY 1, 2
ON CONFLICT (tenant_id, owner) DO UPDATE SET per_s = excluded.per_s, burst = excluded.burst, tokens = excluded.tokens,
       at = {LATER_AT}
"""


def of_jobs(conn: Conn, jobs: Mapping[UUID, int], *, now: datetime, lock: bool = True) -> dict[UUID, Rate]:
    """What these jobs (with their tenants) may start now, of those that have a rate; nothing where another takes."""
    if not jobs:
        return {}
    wanted = {"jobs": list(jobs), "tenants": list(jobs.values())}
    limited = [row[0] for row in conn.execute(_LIMITED, wanted)]
    if not limited:
        return {}
    some = {"jobs": limited, "tenants": [jobs[job] for job in limited]}
    found = {row[0]: _rate(*row[1:], now=now) for row in conn.execute(_LOCK if lock else _READ, some)}
    return {job: found.get(job, Rate(1.0, 1, 0.0)) for job in limited}


def of_tenants(conn: Conn, rates: Mapping[int, tuple[float, int]], *, now: datetime) -> dict[int, Rate]:
    """What tenants with such a (per_s, burst) may start now. The caller holds their rows (`waiting.lock_tenants`)."""
    if not rates:
        return {}
    rows = conn.execute(
        "SELECT tenant_id, per_s, burst, tokens, at FROM tickets_bucket WHERE tenant_id = ANY(%s) AND owner = %s",
        [sorted(rates), WHOLE_TENANT],
    )
    left = {row[0]: _rate(*row[1:], now=now).tokens for row in rows}
    return {
        tenant_id: Rate(per_s, burst, min(float(burst), left.get(tenant_id, float(burst))))
        for tenant_id, (per_s, burst) in rates.items()
    }


def take(
    conn: Conn, used: Mapping[tuple[int, UUID], int], rates: Mapping[tuple[int, UUID], Rate], *, now: datetime
) -> None:
    """So many went of (tenant, owner), of what was read in this transaction."""
    rows = [(*key, rates[key], count) for key, count in used.items() if key in rates and count]
    if not rows:
        return
    conn.execute(
        _TAKE,
        {
            "now": now, "tenants": [row[0] for row in rows], "owners": [row[1] for row in rows],
            "per_s": [row[2].per_s for row in rows], "bursts": [row[2].burst for row in rows],
            "tokens": [row[2].tokens - row[3] for row in rows],
        },
    )  # fmt: skip


def refilled(rate: Rate, at: datetime, now: datetime) -> Rate:
    """A bucket that was so at an instant, as it is now."""
    if at > now + AHEAD_MAX:
        return rate._replace(tokens=float(rate.burst))
    return rate.after(max(0.0, (now - at).total_seconds()))


def _rate(per_s: float, burst: int, tokens: float, at: datetime, *, now: datetime) -> Rate:
    return refilled(Rate(per_s, burst, tokens), at, now)
