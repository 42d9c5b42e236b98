"""Executions that are alive and that nothing will ever start: each gets a ticket again."""

from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.dispatch.findings import CHUNK, NOTHING, Finding, Found, in_schema
from apps.schedules.keyed import flows_of_executions
from apps.schedules.retry import MAX_ATTEMPTS
from apps.tickets import store as tickets
from apps.tickets.values import BACKFILL, lane_of, start_by
from kernel.ids import attempt_id
from kernel.limitrules import Flow
from kernel.pools import pool_of
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]
TRIES_LOOKED_AT = 2 * MAX_ATTEMPTS  # those that were handed back count too

_LOCK_EXECUTIONS = "SELECT 1 FROM {schema}.executions_execution WHERE id = ANY(%s) ORDER BY id FOR UPDATE"

_TRIES = """
SELECT coalesce(max(number), 0), count(*) FILTER (WHERE state IN ('failed', 'timed_out', 'lost'))
FROM {schema}.executions_attempt WHERE id = ANY(%s)
"""

_ALIVE = """
SELECT e.id, e.run_key, e.job_id, e.job_version, e.schedule_id, e.schedule_version, e.trigger, e.priority, e.nominal_at,
       e.actual_at, e.payload IS NOT NULL, j.kind, jv.queue, coalesce((e.overrides->>'timeout_s')::int, jv.timeout_s),
       CASE WHEN j.paused_at IS NULL THEN jv.max_concurrency ELSE 0 END,
       v.own_payload, coalesce((v.definition->>'max_queue_age_s')::int, jv.max_queue_age_s), jv.total_timeout_s,
       EXISTS (SELECT 1 FROM {schema}.workflows_dependency w WHERE w.child_id = e.id AND w.met IS NOT TRUE),
       e.workflow_run_id IS NOT NULL
       OR EXISTS (SELECT 1 FROM {schema}.workflows_dependency w WHERE w.parent_id = e.id AND w.met IS NULL)
FROM {schema}.executions_execution e
JOIN {schema}.schedules_job j ON j.id = e.job_id
JOIN {schema}.schedules_jobversion jv ON jv.job_id = e.job_id AND jv.version = e.job_version
LEFT JOIN {schema}.schedules_scheduleversion v ON v.schedule_id = e.schedule_id AND v.version = e.schedule_version
WHERE e.finished_at IS NULL AND e.id > %s AND (%s::uuid[] IS NULL OR e.id = ANY(%s))
  AND NOT EXISTS (SELECT 1 FROM tickets_ticket t WHERE t.execution_id = e.id)
  AND NOT EXISTS (SELECT 1 FROM due_dueentry d WHERE d.key = e.id)
ORDER BY e.id LIMIT %s
"""


def executions(conn: Conn, tenancy: Tenancy, after: UUID, dry_run: bool) -> Found:
    """Executions that are alive and that nothing will ever start."""
    rows = conn.execute(in_schema(_ALIVE, tenancy), [after, None, None, CHUNK]).fetchall()
    last = rows[-1][0] if len(rows) == CHUNK else None
    if rows and not dry_run:
        ids = [row[0] for row in rows]
        conn.execute(
            in_schema(_LOCK_EXECUTIONS, tenancy), [ids]
        )  # whoever made a ticket meanwhile is seen in the next look
        rows = conn.execute(in_schema(_ALIVE, tenancy), [NOTHING, ids, ids, CHUNK]).fetchall()
        flows = flows_of_executions(conn, tenancy.schema, [row[0] for row in rows])
        for row in rows:
            flow = flows.get(row[0], Flow(row[2]))
            tickets.insert(conn, _ticket_of(row, tenancy, flow, _tries(conn, tenancy, row[0])))
    return [Finding("execution_without_ticket", tenancy.slug, row[0], "ticket made again") for row in rows], last


def _tries(conn: Conn, tenancy: Tenancy, execution_id: UUID) -> tuple[int, int]:
    """The number of its last attempt that has ended, and how many count against the retry policy."""
    ids = [attempt_id(execution_id, number) for number in range(1, TRIES_LOOKED_AT + 1)]
    row = conn.execute(in_schema(_TRIES, tenancy), [ids]).fetchone()
    return (row[0], row[1]) if row else (0, 0)


def _ticket_of(row: tuple[Any, ...], tenancy: Tenancy, flow: Flow, tries: tuple[int, int]) -> tickets.Ticket:
    (execution_id, run_key, job_id, job_version, schedule_id, schedule_version, trigger, priority, nominal_at,
     actual_at, own_payload, kind, queue, timeout_s, limit, schedule_payload, max_queue_age_s, total_timeout_s,
     blocked, followed,
    ) = row  # fmt: skip
    pool = pool_of(kind, queue)
    available: datetime = actual_at
    return tickets.Ticket(
        execution_id=execution_id, tenant_id=tenancy.id, job_id=job_id, job_version=job_version,
        schedule_id=schedule_id, schedule_version=schedule_version, run_key=run_key, trigger=trigger,
        nominal_at=nominal_at, actual_at=actual_at, pool=pool, queue=queue or tenancy.queue(pool), priority=priority,
        timeout_s=timeout_s, flow=flow.flow, flow_limit=flow.limit, key=flow.key, job_limit=limit,
        lane=lane_of(trigger), guarded=schedule_id is not None,
        payload_from="execution" if own_payload else "schedule" if schedule_payload else "job",
        state="blocked" if blocked else "ready", followed=followed,
        available_at=available, rank=None, attempt=tries[0], failures=tries[1],
        start_by=start_by(available, max_queue_age_s, tried=tries[0] > 0 or lane_of(trigger) == BACKFILL),
        total_timeout_s=total_timeout_s,
    )  # fmt: skip
