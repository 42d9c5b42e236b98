"""max_runs_per_min of plans as token buckets: in any time t at most `burst + t * max_runs_per_min / 60 s` runs go.

What does not fit waits. Whoever releases runs of a tenant with such a limit holds the tenant's row until its
transaction ends, so that reading and taking are one step (see `apps.tickets.waiting.lock_tenants`).
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import psycopg

from apps.tickets import buckets
from apps.tickets.values import WHOLE_TENANT, Rate, tenant_rate
from apps.usage import notices

Conn = psycopg.Connection[Any]
QUOTA = "max_runs_per_min"
PerMin = tuple[int, int | None]  # a plan's runs in a minute, and its burst when it says one


def left(conn: Conn, limits: Mapping[int, PerMin], *, now: datetime) -> dict[int, Rate]:
    """What each of these tenants may have released now."""
    wanted = {tenant_id: tenant_rate(*limit) for tenant_id, limit in limits.items()}
    return buckets.of_tenants(conn, wanted, now=now)


def take(conn: Conn, released: Mapping[int, int], rates: Mapping[int, Rate], *, now: datetime) -> None:
    """So many were released, of what `left` said in this transaction."""
    used = {(tenant_id, WHOLE_TENANT): count for tenant_id, count in released.items()}
    buckets.take(conn, used, {(tenant_id, WHOLE_TENANT): rate for tenant_id, rate in rates.items()}, now=now)


def held_back(conn: Conn, tenant_id: int, *, per_min: int, now: datetime) -> None:
    """The tenant's rate makes runs wait: it is told once a day."""
    notices.crossed(conn, tenant_id, quota=QUOTA, limit=per_min, before=0, after=per_min, now=now)


def used(conn: Conn, tenant_id: int, per_min: int | None, burst: int | None, *, now: datetime) -> int:
    """How much of its bucket is spent, as a part of a minute's runs; 0 without a rate.

    Only whole tokens count: all of it is spent when the next run has to wait.
    """
    if per_min is None:
        return 0
    rate = left(conn, {tenant_id: (per_min, burst)}, now=now)[tenant_id]
    return round(per_min * (1 - max(0, math.floor(rate.tokens)) / rate.burst))
