"""The facts of the overview: bounded reads of the tenant's own tables, and of the live tables by key from there.

No page reads more than about COUNTED_MAX rows; where there is more, the counts say so.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import sql

from apps.portal.standing import COUNTED_MAX, Facts
from apps.tickets.values import BACKFILL
from kernel.eventtypes import DELIVERY
from kernel.ids import first_id_at
from tenants import door
from tenants.models import Tenant

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SCHEDULES_READ = 5_000
NEXT_SHOWN = 6

_RUNS = """
SELECT true, coalesce(t.state, e.state), count(*),
       min(t.available_at) FILTER (WHERE t.rank IS NOT NULL AND t.job_limit IS DISTINCT FROM 0 AND t.lane < %s)
FROM (SELECT id, state FROM {schema}.executions_execution WHERE finished_at IS NULL AND trigger <> %s
      ORDER BY id LIMIT %s) e
LEFT JOIN tickets_ticket t ON t.execution_id = e.id
GROUP BY 2
UNION ALL
SELECT false, coalesce(t.state, e.state), count(*), NULL FROM (
    SELECT id, state FROM {schema}.executions_execution WHERE id >= %s AND trigger <> %s
    ORDER BY id DESC LIMIT %s
) e LEFT JOIN tickets_ticket t ON t.execution_id = e.id GROUP BY 2
"""
_DUE = """
WITH due AS MATERIALIZED (
    SELECT s.id, s.name, d.due_at, d.parked <> '' AS parked FROM (
        SELECT id, name FROM {schema}.schedules_schedule WHERE deleted_at IS NULL AND status <> 'completed'
        ORDER BY id DESC LIMIT %(read)s
    ) s JOIN due_dueentry d ON d.key = s.id
)
SELECT NULL, NULL, min(due_at) FILTER (WHERE NOT parked AND due_at <= %(now)s), count(*) FILTER (WHERE parked) FROM due
UNION ALL
(SELECT id, name, due_at, 0 FROM due WHERE NOT parked AND due_at > %(now)s ORDER BY due_at LIMIT %(shown)s)
"""
_COUNTS = """
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM {schema}.schedules_schedule WHERE deleted_at IS NULL LIMIT %(most)s) s),
    (SELECT count(*) FROM (SELECT 1 FROM {schema}.schedules_job WHERE deleted_at IS NULL LIMIT %(most)s) j),
    (SELECT count(*) FROM (SELECT 1 FROM {schema}.deadletters_deadletter WHERE resolved_at IS NULL LIMIT %(most)s) d),
    (SELECT count(*) FROM (SELECT 1 FROM {schema}.deadletters_deadletter
                           WHERE resolved_at IS NULL AND id >= %(day)s LIMIT %(most)s) d),
    (SELECT array_agg(destination ORDER BY destination) FROM (
        SELECT destination FROM tickets_breaker WHERE tenant_id = %(tenant)s AND state <> 'closed' LIMIT 10) b),
    EXISTS (SELECT 1 FROM tenants_dispatchpause WHERE pool = '' AND tenant_id IS NULL)
"""


class Next(NamedTuple):
    """A run ahead."""

    id: UUID
    name: str
    at: datetime


class Looked(NamedTuple):
    facts: Facts
    ahead: list[Next]


def look(tenant: Tenant, *, now: datetime) -> Looked:
    """In the tenant's schema."""
    runs = _rows(_RUNS, tenant, [BACKFILL, DELIVERY, COUNTED_MAX + 1, first_id_at(now - HOUR), DELIVERY, COUNTED_MAX])
    alive = {state: (count, oldest) for is_alive, state, count, oldest in runs if is_alive}
    hour = {state: count for is_alive, state, count, _ in runs if not is_alive}
    (_, _, overdue_at, parked), *served = _rows(
        _DUE, tenant, {"read": SCHEDULES_READ, "now": now, "shown": NEXT_SHOWN}
    )  # fmt: skip
    ahead = sorted((Next(key, name, at) for key, name, at, _ in served), key=lambda one: one.at)
    counts = {"most": COUNTED_MAX + 1, "day": first_id_at(now - DAY), "tenant": tenant.pk}
    ((schedules, jobs, letters, letters_lately, breakers, all_paused),) = _rows(_COUNTS, tenant, counts)
    facts = Facts(
        now=now, status=tenant.status, dispatch_paused=tenant.dispatch_paused or all_paused,
        schedules=schedules, jobs=jobs,
        ready=_count(alive, "ready"), queued=_count(alive, "queued"), running=_count(alive, "running"),
        delayed=_count(alive, "scheduled"), oldest_ready_at=alive.get("ready", (0, None))[1],
        overdue_at=overdue_at, letters=letters, letters_lately=letters_lately,
        breakers=tuple(breakers or ()), parked=parked,
        last_hour=hour, hour_capped=sum(hour.values()) >= COUNTED_MAX, next_at=ahead[0].at if ahead else None,
    )  # fmt: skip
    return Looked(facts, ahead)


def _count(alive: dict[str, tuple[int, Any]], state: str) -> int:
    return alive.get(state, (0, None))[0]


def _rows(query: str, tenant: Tenant, parameters: Any) -> list[Any]:
    return door.raw().execute(sql.SQL(query).format(schema=sql.Identifier(tenant.schema_name)), parameters).fetchall()
