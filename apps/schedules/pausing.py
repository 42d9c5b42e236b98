"""Pausing a schedule without the ORM: the platform itself does it when a receiver says that it is gone."""

from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from apps.due import entries
from apps.schedules.passed import pass_over

Conn = psycopg.Connection[Any]

_PAUSE = """
UPDATE {schema}.schedules_schedule
SET status = 'paused', paused_reason = %s, revision = revision + 1, updated_at = clock_timestamp()
WHERE id = %s AND status = 'active' AND deleted_at IS NULL RETURNING updated_at
"""

_AUDIT = """
INSERT INTO audit_auditevent (at, tenant_id, actor, action, object_type, object_id, allowed, reason, request_id)
VALUES (clock_timestamp(), %s, 'system', 'schedule.pause', 'schedule', %s, true, %s, '')
"""


def pause_by_system(conn: Conn, schema: str, *, tenant_id: int, schedule_id: UUID, reason: str) -> bool:
    """active -> paused, in the caller's transaction; the due entry goes first: fire and pause meet on that row.

    What was due and not yet fired has a row that says why it did not run, as with any pause.
    """
    found = entries.lock(conn, [schedule_id])
    query = sql.SQL(_PAUSE).format(schema=sql.Identifier(schema))
    row = conn.execute(query, [reason, schedule_id]).fetchone()
    if row is None:
        return False
    pass_over(conn, schema, found, now=row[0], reason="schedule_paused", by="system")
    entries.remove(conn, [schedule_id])
    conn.execute(_AUDIT, [tenant_id, str(schedule_id), reason])
    return True
