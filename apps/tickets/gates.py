"""The limit of a job's live tickets: how many may be queued or running at once, none while it is paused."""

from typing import Any
from uuid import UUID

import psycopg

from apps.tickets.store import notify_all_pulling, notify_ready

Conn = psycopg.Connection[Any]
CLOSED = 0

# What waits for a worker goes back to ready when the job is paused: its message then finds nothing to start.
_SET = """
WITH live AS (
    SELECT execution_id FROM tickets_ticket WHERE tenant_id = %(tenant)s AND job_id = %(job)s
    ORDER BY execution_id FOR UPDATE)
UPDATE tickets_ticket t
SET job_limit = %(limit)s,
    state = CASE WHEN t.state = 'queued' AND %(limit)s = 0 THEN 'ready' ELSE t.state END
FROM live WHERE t.execution_id = live.execution_id
"""


def set_limit(conn: Conn, *, tenant_id: int, job_id: UUID, limit: int | None) -> int:
    """All live tickets of the job follow its limit from now on; CLOSED stops new starts. Returns how many there are.

    Runs that have begun are not stopped.
    """
    parameters = {"tenant": tenant_id, "job": job_id, "limit": limit}
    changed = conn.execute(_SET, parameters).rowcount
    if changed and limit != CLOSED:
        notify_ready(conn)
        notify_all_pulling(conn)
    return changed
