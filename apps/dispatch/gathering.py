"""What release needs to know of tenants before it shares a pool's room among them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from apps.dispatch.admission import Facts
from apps.dispatch.capacity import Capacity
from apps.tickets import waiting
from apps.tickets.values import Rate
from apps.usage import rates
from kernel.pools import SPANNED
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]


class Gathered(NamedTuple):
    """Facts of each tenant in hand, and the buckets of those whose plan has a rate."""

    facts: dict[int, Facts]
    rates: dict[int, Rate]


def gather(conn: Conn, pool: str, tenancies: Mapping[int, Tenancy], capacity: Capacity, *, now: datetime) -> Gathered:
    """Locks the tenants that have a limit over several pools, in id order, and reads how much of it is used.

    In a pool that jobs move out of and into each of their limits is such a one.
    """
    active = [one for one in tenancies.values() if one.is_open(pool)]
    limited = [one.id for one in active if one.max_running is not None]
    rated = {one.id: (one.max_runs_per_min, one.runs_burst) for one in active if one.max_runs_per_min is not None}
    spanning = [one.id for one in active] if pool in SPANNED else []
    if limited or rated or spanning:
        waiting.lock_tenants(conn, {*limited, *rated, *spanning})
    held = waiting.held_by_tenants(conn, limited) if limited else {}
    left = rates.left(conn, rated, now=now) if rated else {}
    facts = {
        one.id: Facts(
            now=now, tenant_active=not one.suspended, dispatch_paused=not (one.active or one.suspended),
            platform_paused="" in one.paused, pool_paused=pool in one.paused,
            max_running=one.max_running, tenant_use=held.get(one.id, 0), max_slots=one.max_slots.get(pool),
            pool_use=capacity.held[one.id], tenant_rate=left.get(one.id),
            pool_slots=capacity.slots.get(one.queue(pool), 0),
        )
        for one in tenancies.values()
    }  # fmt: skip
    return Gathered(facts, left)
