"""Admission of runs that somebody asks for: submitted, triggered, run again, replayed, one or a thousand at once.

Call it inside the transaction that makes the runs, after the locks on schedules and jobs and before anything is
written: until that transaction ends nobody else gets past the same limits.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from apps.due import delayed
from apps.tickets import store as tickets
from apps.usage import counting, deltas, draining, notices, pressure
from apps.usage.counting import day_ends_at
from apps.usage.figures import COUNTED, SUBMITTED, Tally
from kernel.errors import QuotaExceeded
from tenants.models import Tenant

Conn = psycopg.Connection[Any]
LIVE_QUOTA = "max_live"
LIVE_TURNS = 71_003  # class of the advisory locks under which tenants with a max_live take turns


class Admitted(NamedTuple):
    """How many of the wanted runs may be made, and why not the others."""

    runs: int
    refusal: QuotaExceeded | None


def admit_runs(conn: Conn, tenant: Tenant, n: int, now: datetime) -> None:
    """Counts `n` runs that the caller makes in this transaction, or none: QuotaExceeded with quota, limit and use.

    Overloaded where the whole platform has no room.
    """
    pressure.admit(conn)
    counts, live = _locked(conn, tenant, now)
    refusal = _room(conn, tenant, counts, live, n, now)[1]
    if refusal is not None:
        raise refusal
    _count(conn, tenant, n, counts, live, now)


def admit_up_to(conn: Conn, tenant: Tenant, n: int, now: datetime) -> Admitted:
    """Counts as many of `n` runs as there is room for; the caller makes exactly so many in this transaction.

    Overloaded where the whole platform has no room.
    """
    if n:
        pressure.admit(conn)
    counts, live = _locked(conn, tenant, now)
    room, refusal = _room(conn, tenant, counts, live, n, now)
    _count(conn, tenant, room, counts, live, now)
    return Admitted(room, refusal)


class _Live(NamedTuple):
    use: int
    most: int


def live_of(conn: Conn, tenant_id: int, *, most: int | None = None) -> int:
    """Executions of a tenant that are not finished, delayed ones too; those that are ready count up to `most`."""
    return tickets.alive_of_tenant(conn, tenant_id, most=most) + delayed.count_of_tenant(conn, tenant_id)


def live_of_tenants(conn: Conn, most: Mapping[int, int]) -> dict[int, int]:
    """The same of many tenants in two statements."""
    waiting = delayed.count_of_tenants(conn, list(most))
    return {tenant: n + waiting.get(tenant, 0) for tenant, n in tickets.alive_of_tenants(conn, most).items()}


def _locked(conn: Conn, tenant: Tenant, now: datetime) -> tuple[counting.Count | None, _Live | None]:
    """Where the tenant stands; nobody else is admitted until this transaction ends. None where there is no limit."""
    live = None
    if tenant.plan.max_live is not None:
        conn.execute("SELECT pg_advisory_xact_lock(%s, %s)", [LIVE_TURNS, tenant.pk])
        live = _Live(live_of(conn, tenant.pk, most=tenant.plan.max_live), tenant.plan.max_live)
    count = None
    if tenant.plan.max_runs_per_day is not None:
        count = counting.lock(conn, [tenant.pk], now=now).get(tenant.pk)
    return count, live


def _room(
    conn: Conn, tenant: Tenant, count: counting.Count | None, live: _Live | None, n: int, now: datetime
) -> tuple[int, QuotaExceeded | None]:
    room, refusal = n, None
    if live is not None and live.use + room > live.most:
        room = max(0, live.most - live.use)
        detail = f"The plan allows {live.most:,} executions that are not finished; wait for some, or cancel some."
        refusal = QuotaExceeded(
            detail, quota=LIVE_QUOTA, limit=live.most, use=live.use,
            retry_after_s=draining.retry_after_s(conn, tenant.pk, over=live.use + n - live.most, now=now),
        )  # fmt: skip
    if count is not None and count.room(room) < room:
        room = count.room(room)
        ends_at = day_ends_at(now)
        detail = f"The plan allows {count.most:,} runs a day; the next day begins at {ends_at:%Y-%m-%dT%H:%M:%SZ}."
        refusal = QuotaExceeded(
            detail, quota=counting.QUOTA, limit=count.most, use=count.runs, resets_at=ends_at.isoformat(),
            retry_after_s=max(1, int((ends_at - now).total_seconds()) + 1),
        )  # fmt: skip
    return room, refusal


def _count(conn: Conn, tenant: Tenant, n: int, count: counting.Count | None, live: _Live | None, now: datetime) -> None:
    if n <= 0:
        return
    tally = Tally()
    tally.add(tenant.pk, SUBMITTED, n)
    if count is not None:
        counting.take(conn, {tenant.pk: n}, {tenant.pk: count}, now=now)
        tally.add(tenant.pk, COUNTED, n)
    if live is not None:
        notices.crossed(
            conn, tenant.pk, quota=LIVE_QUOTA, limit=live.most, before=live.use, after=live.use + n, now=now
        )
    deltas.add(conn, tally, now=now)
