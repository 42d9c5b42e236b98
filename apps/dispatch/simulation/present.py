"""The platform as it is set up now, as settings of a simulation: tenants, plans, jobs, live workers."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings as django_settings
from psycopg import sql

from apps.dispatch.simulation.settings import Costs, JobSetting, Settings, TenantSetting
from kernel.pools import CELERY_POOLS, pool_of
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]

_PLANS = "SELECT t.id, p.name FROM tenants_tenant t JOIN tenants_plan p ON p.id = t.plan_id"
_SLOTS = 'SELECT "group", slots FROM tickets_worker WHERE expires_at > clock_timestamp() AND NOT draining'
_DISPATCHERS = "SELECT count(*) FROM due_dispatcher WHERE expires_at > clock_timestamp()"
_JOBS = """
SELECT j.id, j.name, j.kind, v.queue, v.max_concurrency, v.max_queue_age_s, v.rate_limit, v.concurrency_key, j.paused_at
FROM {0}.schedules_job j JOIN {0}.schedules_jobversion v ON v.job_id = j.id AND v.version = j.version
WHERE j.id = ANY(%s)
"""


def present_settings(
    conn: Conn, tenancies: Iterable[Tenancy], jobs: Mapping[int, Iterable[UUID]], costs: Costs
) -> tuple[Settings, dict[tuple[int, UUID], int]]:
    """Settings as of now for these tenants and their jobs, and the numbers of the jobs in it."""
    plans: dict[int, str] = {row[0]: row[1] for row in conn.execute(_PLANS)}
    tenants: dict[int, TenantSetting] = {}
    found: dict[int, JobSetting] = {}
    numbers: dict[tuple[int, UUID], int] = {}
    for tenancy in tenancies:
        tenants[tenancy.id] = TenantSetting(
            id=tenancy.id, slug=tenancy.slug, weight=max(1, tenancy.weight), plan=plans.get(tenancy.id, ""),
            own_queue=tenancy.own_queue,
            group=tenancy.group, active=tenancy.active, max_running=tenancy.max_running, max_live=tenancy.max_live,
            runs_per_min=tenancy.max_runs_per_min, runs_burst=tenancy.runs_burst,
            max_runs_per_day=tenancy.max_runs_per_day, reserved=dict(tenancy.reserved),
            max_slots=dict(tenancy.max_slots), shared_queues=django_settings.SHARED_QUEUES,
        )  # fmt: skip
        wanted = sorted(set(jobs.get(tenancy.id, ())))
        rows = {row[0]: row for row in conn.execute(_in(_JOBS, tenancy.schema), [wanted])} if wanted else {}
        for job_id in wanted:
            number = len(found) + 1
            numbers[tenancy.id, job_id] = number
            found[number] = _job(number, tenancy.id, job_id, rows.get(job_id))
    return (
        Settings(
            tenants=tenants, jobs=found, slots=live_slots(conn), costs=costs,
            prefetch=django_settings.PREFETCH_FACTOR, release_batch=django_settings.RELEASE_BATCH,
        ),
        numbers,
    )  # fmt: skip


def live_slots(conn: Conn) -> dict[tuple[str, str], int]:
    """Slots of the workers that are alive now, by pool and group."""
    slots: dict[tuple[str, str], int] = {}
    for group, by_pool in conn.execute(_SLOTS):
        for pool, count in by_pool.items():
            if pool in CELERY_POOLS:
                slots[pool, group] = slots.get((pool, group), 0) + int(count)
    return slots


def live_workers(conn: Conn) -> set[UUID]:
    """The ids of the workers that are alive now."""
    return {row[0] for row in conn.execute("SELECT id FROM tickets_worker WHERE expires_at > clock_timestamp()")}


def live_dispatchers(conn: Conn) -> int:
    """How many there are now; at least one, or nothing would fire."""
    row = conn.execute(_DISPATCHERS).fetchone()
    return max(1, int(row[0]) if row else 1)


def _job(number: int, tenant: int, job_id: UUID, row: tuple[Any, ...] | None) -> JobSetting:
    if row is None:  # deliveries of webhooks have no job of their own
        return JobSetting(id=number, tenant=tenant, name=str(job_id), pool="http")
    _, name, kind, queue, most, age, rate, key, paused_at = row
    return JobSetting(
        id=number, tenant=tenant, name=name, pool=pool_of(kind, queue),
        max_concurrency=0 if paused_at is not None else most, max_queue_age_s=age,
        rate=None if not rate else (rate["runs"], float(rate["per_s"]), rate["burst"]),
        key_max=None if not key else int(key["max"]),
    )  # fmt: skip


def _in(query: str, schema: str) -> sql.Composed:
    return sql.SQL(query).format(sql.Identifier(schema))
