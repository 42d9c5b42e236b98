"""Why a schedule does not run, or when it will: from its row, its due entry and what became of its occurrences."""

from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from apps.dispatch.explaining.causes import Facts, Row, cause_at, cause_now, is_paused, notes_of, status_of
from apps.dispatch.explaining.ended import By
from apps.dispatch.explaining.trail import last_by
from apps.dispatch.explaining.values import Disposition, Explanation
from apps.due.leases import IMPLAUSIBLE_S
from apps.schedules import timing
from apps.schedules.timing_errors import TimingInvalid
from kernel.errors import NotFound
from tenants import door
from tenants.models import Tenant
from tenants.registry import PAUSED

Conn = psycopg.Connection[Any]
RECENT = 10  # dispositions shown

_FACTS = f"""
SELECT s.name, s.status, s.paused_reason, s.paused_at, s.resume_at, v.created_at, v.spec, s.job_id, j.name, j.kind,
       j.paused_at, j.paused_reason, d.due_at, d.nominal_at, coalesce(d.parked, ''), d.shard, d.runs_done,
       l.owner IS NOT NULL AND l.expires_at > clock_timestamp()
           AND l.expires_at < clock_timestamp() + interval '{IMPLAUSIBLE_S} s', l.expires_at, p.host, p.pid,
       t.status, t.dispatch_paused OR '' = ANY({PAUSED}),
       (SELECT count(*) FROM tickets_ticket r WHERE r.guarded AND r.schedule_id = s.id)
FROM {{schema}}.schedules_schedule s
JOIN {{schema}}.schedules_scheduleversion v ON v.schedule_id = s.id AND v.version = s.version
JOIN {{schema}}.schedules_job j ON j.id = s.job_id
JOIN tenants_tenant t ON t.id = %(tenant)s
LEFT JOIN due_dueentry d ON d.key = s.id
LEFT JOIN due_shardlease l ON l.kind = 'fire' AND l.shard = d.shard
LEFT JOIN due_dispatcher p ON p.id = l.owner
WHERE s.id = %(id)s AND s.deleted_at IS NULL
"""

_RECENT = """
SELECT e.id, e.nominal_at, coalesce(t.state, e.state), e.reason, e.count, e.actual_at, e.until_at
FROM {schema}.executions_execution e LEFT JOIN tickets_ticket t ON t.execution_id = e.id
WHERE e.schedule_id = %(id)s AND e.trigger IN ('schedule', 'catch_up')
  AND (%(until)s::timestamptz IS NULL OR e.nominal_at <= %(until)s)
ORDER BY e.nominal_at DESC LIMIT %(most)s
"""


def schedule_explain(
    tenant: Tenant, schedule_id: UUID, *, now: datetime, at: datetime | None = None, named: bool = False,
    operator: bool = False,
) -> Explanation:  # fmt: skip
    """Why it does not run, or when it will; with `at` what became or becomes of that instant. NotFound.

    `named`: persons by name. `operator`: with what is the platform's own (hosts of dispatchers).
    """
    conn = door.raw()
    facts = _facts(conn, tenant, schedule_id)
    rows = _rows(conn, tenant, schedule_id, until=at, most=RECENT if at is None else 1)
    notes: list[str] = []
    try:
        spec = timing.spec_from_json(facts.spec)
    except TimingInvalid as error:
        spec, notes = None, [f"Its trigger can't be read: {error}"]
    if at is not None and spec is not None:
        verdict = cause_at(schedule_id, facts, spec, rows, at=at.replace(microsecond=0), now=now)
    else:
        by = _paused_by(tenant, schedule_id, facts, now, named=named)
        verdict = cause_now(schedule_id, facts, spec, rows, by=by, now=now, operator=operator)
        notes += notes_of(facts, spec, rows, now)
    return Explanation(
        "schedule", schedule_id, facts.name, status_of(facts, now), now, verdict, notes=notes,
        next_at=None if facts.parked else facts.due_at, recent=[Disposition(*row[:5]) for row in rows],
    )  # fmt: skip


def _paused_by(tenant: Tenant, schedule_id: UUID, facts: Facts, now: datetime, *, named: bool) -> By | None:
    if is_paused(facts, now):
        return last_by(tenant, schedule_id, ["schedule.pause"], named=named)
    if facts.job_paused_at is not None:
        return last_by(tenant, facts.job_id, ["job.pause", "workflow.pause"], named=named)
    return None


def _facts(conn: Conn, tenant: Tenant, schedule_id: UUID) -> Facts:
    query = sql.SQL(_FACTS).format(schema=sql.Identifier(tenant.schema_name))
    row = conn.execute(query, {"id": schedule_id, "tenant": tenant.pk}).fetchone()
    if row is None:
        raise NotFound("There is no such schedule.")
    return Facts._make(row)


def _rows(conn: Conn, tenant: Tenant, schedule_id: UUID, *, until: datetime | None, most: int) -> list[Row]:
    query = sql.SQL(_RECENT).format(schema=sql.Identifier(tenant.schema_name))
    found = conn.execute(query, {"id": schedule_id, "until": until, "most": most})
    return [Row._make(row) for row in found]
