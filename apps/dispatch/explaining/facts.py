"""What admission is told of one waiting run, read from live rows: the rules answer for it as they do in release.

Six short statements. What is queued or running is read whole, as each pass of release does; the rest by key.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from apps.dispatch.admission import Facts
from apps.dispatch.explaining.dependencies import open_parents
from apps.dispatch.explaining.places import places_of
from apps.dispatch.explaining.rows import Lengths, Run, ahead_of, lengths_of, released_per_s
from apps.due.leases import IMPLAUSIBLE_S
from apps.tickets import buckets, holds
from apps.tickets.breakers import WAIT_REASON
from apps.tickets.values import WHOLE_TENANT, Rate, tenant_rate
from apps.workflows.dependencies.depending_reading import Parent, parents_of
from kernel.pools import CELERY_POOLS, POOL_NUMBER, PULL, WORKFLOW
from tenants.models import Tenant
from tenants.provisioning import queue_for
from tenants.registry import PAUSED

Conn = psycopg.Connection[Any]

_SHARED = f"""
SELECT t.status, t.dispatch_paused, p.max_running, p.max_runs_per_min, p.runs_burst, pp.max_slots,
       bt.tokens, bt.at, bj.per_s, bj.burst, bj.tokens, bj.at,
       l.owner IS NOT NULL AND l.expires_at > clock_timestamp()
           AND l.expires_at < clock_timestamp() + interval '{IMPLAUSIBLE_S} s', l.expires_at,
       b.state, coalesce(CASE b.state WHEN 'open' THEN b.retry_at ELSE b.probe_until END, b.changed_at), b.reason,
       {PAUSED}
FROM tenants_tenant t JOIN tenants_plan p ON p.id = t.plan_id
LEFT JOIN tenants_planpool pp ON pp.plan_id = p.id AND pp.pool = %(pool)s
LEFT JOIN tickets_bucket bt ON bt.tenant_id = t.id AND bt.owner = %(whole)s
LEFT JOIN tickets_bucket bj ON bj.tenant_id = t.id AND bj.owner = %(job)s
LEFT JOIN due_shardlease l ON l.kind = 'release' AND l.shard = %(shard)s
LEFT JOIN tickets_breaker b ON b.tenant_id = t.id AND b.destination = %(destination)s
WHERE t.id = %(tenant)s
"""

_USED_PART = """
SELECT tenant_id, pool, job_id, flow, guarded, schedule_id, remote FROM tickets_ticket WHERE state = '{state}'
"""
_USED = f"""
SELECT count(*) FILTER (WHERE pool <> '{WORKFLOW}'), count(*) FILTER (WHERE pool = %(pool)s AND NOT remote),
       count(*) FILTER (WHERE job_id = %(job)s), count(*) FILTER (WHERE flow = %(flow)s),
       count(*) FILTER (WHERE guarded AND schedule_id = %(schedule)s)
FROM ({_USED_PART.format(state="queued")} UNION ALL {_USED_PART.format(state="running")}) used
WHERE tenant_id = %(tenant)s
"""

_HOLDS = """
SELECT code, since, "limit", use FROM tickets_hold
WHERE pool = %(pool)s AND tenant_id = %(tenant)s AND (flow IS NULL OR flow = %(flow)s) AND seen_at > %(fresh)s
ORDER BY since LIMIT 50
"""


class Shared(NamedTuple):
    """The tenant, its plan, its buckets, who releases the pool, and the breaker that the run waits for."""

    status: str
    dispatch_paused: bool
    max_running: int | None
    max_runs_per_min: int | None
    runs_burst: int | None
    max_slots: int | None
    tenant_tokens: float | None
    tenant_at: datetime | None
    job_per_s: float | None
    job_burst: int | None
    job_tokens: float | None
    job_at: datetime | None
    is_released: bool
    lease_until: datetime | None
    breaker_state: str | None
    breaker_until: datetime | None
    breaker_reason: str | None
    paused: list[str]  # pools that operators hold back


class Used(NamedTuple):
    """Queued or running runs of the tenant."""

    tenant: int
    pool: int
    job: int
    flow: int
    schedule: int


class HoldRow(NamedTuple):
    """What release says that it holds back, of the tenant or of this flow."""

    code: str
    since: datetime
    limit: int | None
    use: int | None


@dataclass(frozen=True, slots=True)
class Known:
    """The facts, and what else the words need."""

    facts: Facts
    shared: Shared
    ahead: int
    lengths: Lengths
    released_per_s: float
    holds: tuple[HoldRow, ...]
    queue: str
    destination: str
    consumers: int  # live workers that serve its queue
    parents: Sequence[Parent] = ()  # executions that it depends on, while it is blocked


def known_of(conn: Conn, tenant: Tenant, run: Run, *, now: datetime) -> Known:
    """All about a run that waits. The tenant is read with its plan."""
    # What is ready follows its tenant to its queue of today; what was handed out stays where it was put.
    queue = run.queue if run.pool == PULL or run.now_state == "queued" else queue_for(tenant, run.pool)
    destination = _destination(run)
    shared = _shared(conn, tenant, run, destination)
    used = _used(conn, tenant, run)
    lengths = lengths_of(conn, tenant, run.job_id)
    held = _held(conn, tenant, run, now)
    places = None if run.pool not in CELERY_POOLS else places_of(conn, tenant, run, queue)
    fair = None if places and places.is_kept else 0 if any(one.code == "fair_share" for one in held) else None
    held_by_breaker = bool(destination) and run.rank is None
    parents = parents_of(conn, tenant.schema_name, run.id) if run.now_state == "blocked" else []
    facts = Facts(
        now=now, tenant_active=shared.status == "active", dispatch_paused=shared.dispatch_paused,
        platform_paused="" in shared.paused, pool_paused=run.pool in shared.paused,
        job_limit=0 if run.job_paused_at is not None else run.job_limit, queue_paused=run.queue_paused_at is not None,
        available_at=_available_at(run, held_by_breaker=held_by_breaker), start_by=run.start_by,
        blocked_by=len(open_parents(parents)) or int(run.now_state == "blocked"),
        overlap_busy=run.guarded and used.schedule > 0,
        job_use=used.job, tenant_use=used.tenant, max_running=shared.max_running, pool_use=used.pool,
        max_slots=shared.max_slots, key_use=used.flow, flow_limit=run.flow_limit,
        tenant_rate=_tenant_rate(shared, now),
        job_rate=_rate(shared.job_per_s, shared.job_burst, shared.job_tokens, shared.job_at, now),
        breaker_open=held_by_breaker and run.available_at is not None and run.available_at > now,
        breaker_until=run.available_at if held_by_breaker else None, pool_slots=places.slots if places else None,
        queue_room=places.room if places else None, fair=fair,
        run_s=lengths.median_s,
    )  # fmt: skip
    return Known(
        facts, shared, ahead_of(conn, tenant, run) if run.rank is not None else 0, lengths,
        released_per_s(conn, tenant, now=now), held, queue, destination,
        consumers=places.consumers if places else 0, parents=parents,
    )  # fmt: skip


def _destination(run: Run) -> str:
    """Of the breaker that the run waits for: its ticket says so."""
    code, _, destination = (run.wait_reason or "").partition(" ")
    return destination if code == WAIT_REASON and not run.releases else ""


def _available_at(run: Run, *, held_by_breaker: bool) -> datetime | None:
    """A run that waits for a breaker is due; it is the breaker that keeps it."""
    if held_by_breaker:
        return None
    return run.available_at if run.available_at is not None else run.due_at


def _shared(conn: Conn, tenant: Tenant, run: Run, destination: str) -> Shared:
    row = conn.execute(
        _SHARED,
        {
            "tenant": tenant.pk, "pool": run.pool, "whole": WHOLE_TENANT, "job": run.job_id,
            "shard": POOL_NUMBER.get(run.pool), "destination": destination,
        },
    ).fetchone()  # fmt: skip
    assert row is not None
    return Shared._make(row)


def _used(conn: Conn, tenant: Tenant, run: Run) -> Used:
    given = {
        "tenant": tenant.pk, "pool": run.pool, "job": run.job_id, "flow": run.flow or run.job_id,
        "schedule": run.schedule_id,
    }  # fmt: skip
    row = conn.execute(_USED, given).fetchone()
    assert row is not None
    return Used._make(row)


def _held(conn: Conn, tenant: Tenant, run: Run, now: datetime) -> tuple[HoldRow, ...]:
    given = {"pool": run.pool, "tenant": tenant.pk, "flow": run.flow or run.job_id, "fresh": now - holds.FRESH}
    return tuple(HoldRow._make(row) for row in conn.execute(_HOLDS, given))


def _tenant_rate(shared: Shared, now: datetime) -> Rate | None:
    """Of the plan as it is now; full where nothing was taken yet."""
    if shared.max_runs_per_min is None:
        return None
    per_s, burst = tenant_rate(shared.max_runs_per_min, shared.runs_burst)
    left = _rate(per_s, burst, shared.tenant_tokens, shared.tenant_at, now)
    return left or Rate(per_s, burst, float(burst))


def _rate(
    per_s: float | None, burst: int | None, tokens: float | None, at: datetime | None, now: datetime
) -> Rate | None:
    """A bucket as it is by now."""
    if per_s is None or burst is None or tokens is None or at is None:
        return None
    return buckets.refilled(Rate(per_s, burst, tokens), at, now)
