"""The facts of the overview: bounded reads of the tenant's own tables, and of the live tables by key from there.

No page reads more than about COUNTED_MAX rows; where there is more, the counts say so.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import sql

from apps.deadletters.models import DeadLetter
from apps.portal.standing import COUNTED_MAX, Facts
from apps.schedules.models import Job
from apps.tickets.models import Breaker
from kernel.ids import first_id_at
from tenants import door
from tenants.models import Tenant

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SCHEDULES_READ = 5_000
NEXT_SHOWN = 6

_ALIVE = """
SELECT coalesce(t.state, e.state), count(*),
       min(t.available_at) FILTER (WHERE t.rank IS NOT NULL AND t.gate_limit IS DISTINCT FROM 0)
FROM (SELECT id, state FROM {schema}.executions_execution WHERE finished_at IS NULL ORDER BY id LIMIT %s) e
LEFT JOIN tickets_ticket t ON t.execution_id = e.id
GROUP BY 1
"""
_LAST_HOUR = """
SELECT coalesce(t.state, e.state), count(*) FROM (
    SELECT id, state FROM {schema}.executions_execution WHERE id >= %s ORDER BY id DESC LIMIT %s
) e LEFT JOIN tickets_ticket t ON t.execution_id = e.id GROUP BY 1
"""
_DUE = """
SELECT s.id, s.name, d.due_at, d.parked FROM (
    SELECT id, name FROM {schema}.schedules_schedule WHERE deleted_at IS NULL AND status <> 'completed'
    ORDER BY id DESC LIMIT %s
) s JOIN due_dueentry d ON d.key = s.id ORDER BY d.due_at
"""
_SCHEDULES = "SELECT count(*) FROM (SELECT 1 FROM {schema}.schedules_schedule WHERE deleted_at IS NULL LIMIT %s) s"


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
    alive = {state: (count, oldest) for state, count, oldest in _rows(_ALIVE, tenant, [COUNTED_MAX + 1])}
    hour = dict(_rows(_LAST_HOUR, tenant, [first_id_at(now - HOUR), COUNTED_MAX]))
    due = _rows(_DUE, tenant, [SCHEDULES_READ])
    served = [(key, name, at) for key, name, at, parked in due if not parked]
    ahead = [Next(key, name, at) for key, name, at in served if at > now]
    passed = [at for _, _, at in served if at <= now]
    letters = DeadLetter.objects.filter(resolved_at=None)
    facts = Facts(
        now=now, status=tenant.status, dispatch_paused=tenant.dispatch_paused,
        schedules=_rows(_SCHEDULES, tenant, [COUNTED_MAX + 1])[0][0],
        jobs=Job.objects.filter(deleted_at=None)[:COUNTED_MAX].count(),
        ready=_count(alive, "ready"), queued=_count(alive, "queued"), running=_count(alive, "running"),
        delayed=_count(alive, "scheduled"), oldest_ready_at=alive.get("ready", (0, None))[1],
        overdue_at=min(passed, default=None), letters=letters[: COUNTED_MAX + 1].count(),
        letters_lately=letters.filter(created_at__gt=now - DAY)[: COUNTED_MAX + 1].count(),
        breakers=tuple(_shut(tenant)), parked=sum(bool(parked) for *_, parked in due),
        last_hour=hour, hour_capped=sum(hour.values()) >= COUNTED_MAX, next_at=ahead[0].at if ahead else None,
    )  # fmt: skip
    return Looked(facts, ahead[:NEXT_SHOWN])


def _shut(tenant: Tenant) -> list[str]:
    found = Breaker.objects.filter(tenant_id=tenant.pk).exclude(state="closed").order_by("destination")
    return list(found.values_list("destination", flat=True)[:10])


def _count(alive: dict[str, tuple[int, Any]], state: str) -> int:
    return alive.get(state, (0, None))[0]


def _rows(query: str, tenant: Tenant, parameters: list[Any]) -> list[Any]:
    return door.raw().execute(sql.SQL(query).format(schema=sql.Identifier(tenant.schema_name)), parameters).fetchall()
