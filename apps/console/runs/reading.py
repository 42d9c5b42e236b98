"""What belongs to a run, besides its own row and its attempts: one statement, of the tenant's schema."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from apps.executions.reading import ExecutionRow
from apps.executions.reading_attempts import AttemptRow
from tenants.models import Tenant

Conn = psycopg.Connection[Any]


class Around(NamedTuple):
    """Members that are JSON are texts. `letter` is the newest dead letter, `machines` names workers and dispatchers."""

    job_name: str | None
    job_kind: str
    target: str | None
    job_payload: str | None
    schedule_name: str | None
    timezone: str
    own_payload: bool  # of the schedule's version
    schedule_payload: str | None
    delays: str | None
    pool: str | None
    queue: str | None
    release: int | None
    releases: int | None
    worker_id: UUID | None
    remote: bool
    holder: str
    deadline: datetime | None
    expires_at: datetime | None  # until when its worker's lease goes
    draining: bool
    letter_id: UUID | None
    letter_resolution: str
    letter_fingerprint: str
    machines: str | None


_AROUND = """
SELECT j.name, coalesce(j.kind, ''), v.target::text, v.payload::text, s.name,
       coalesce(n.definition ->> 'timezone', 'UTC'), coalesce(n.own_payload, false), n.payload::text,
       coalesce(e.delays::text, t.delays), t.pool, t.queue, t.release, t.releases, t.worker_id,
       coalesce(t.remote, false), coalesce(t.holder, ''), t.deadline, w.expires_at, coalesce(w.draining, false),
       l.id, coalesce(l.resolution, ''), coalesce(l.fingerprint, ''),
       (SELECT jsonb_object_agg(id, host || ':' || pid)::text FROM (
            SELECT id, host, pid FROM tickets_worker WHERE id = ANY(%(machines)s)
            UNION ALL SELECT id, host, pid FROM due_dispatcher WHERE id = ANY(%(machines)s)) m)
FROM (SELECT %(id)s::uuid AS id) x
LEFT JOIN {schema}.schedules_job j ON j.id = %(job)s
LEFT JOIN {schema}.schedules_jobversion v ON v.job_id = %(job)s AND v.version = %(job_version)s
LEFT JOIN {schema}.schedules_schedule s ON s.id = %(schedule)s
LEFT JOIN {schema}.schedules_scheduleversion n ON n.schedule_id = %(schedule)s AND n.version = %(schedule_version)s
LEFT JOIN {schema}.executions_execution e ON e.id = x.id
LEFT JOIN tickets_ticket t ON t.execution_id = x.id AND t.tenant_id = %(tenant)s
LEFT JOIN tickets_worker w ON w.id = t.worker_id
LEFT JOIN LATERAL (
    SELECT id, resolution, fingerprint FROM {schema}.deadletters_deadletter WHERE execution_id = x.id
    ORDER BY id DESC LIMIT 1) l ON true
"""


def around_of(conn: Conn, tenant: Tenant, row: ExecutionRow, attempts: Iterable[AttemptRow]) -> Around:
    """Also of a run that is only in the archive: then there is what has stayed in the tables."""
    machines = {one.worker_id for one in attempts if one.worker_id is not None}
    dispatcher = dispatcher_of(row)
    given = {
        "id": row.id, "tenant": tenant.pk, "job": row.job_id, "job_version": row.job_version,
        "schedule": row.schedule_id, "schedule_version": row.schedule_version,
        "machines": [*machines, *([dispatcher] if dispatcher else [])],
    }  # fmt: skip
    found = conn.execute(sql.SQL(_AROUND).format(schema=sql.Identifier(tenant.schema_name)), given).fetchone()
    assert found is not None
    return Around._make(found)


def dispatcher_of(row: ExecutionRow) -> UUID | None:
    """The dispatcher that fired it, when one did."""
    try:
        return UUID(row.fired_by.rpartition("/")[0])
    except ValueError:
        return None
