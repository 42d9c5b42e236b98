"""The limit of a job's live tickets: how many may be queued or running at once, none while it is paused."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import orjson
import psycopg

from apps.tickets.store import LOCK_ORDER, notify_all_pulling, notify_ready
from kernel.limitrules import Flow

Conn = psycopg.Connection[Any]
CLOSED = 0

# What waits for a worker goes back to ready when the job is paused: its message then finds nothing to start.
_SET = f"""
WITH live AS (
    SELECT execution_id FROM tickets_ticket WHERE tenant_id = %(tenant)s AND job_id = %(job)s
    ORDER BY {LOCK_ORDER} FOR UPDATE)
UPDATE tickets_ticket t
SET job_limit = %(limit)s,
    state = CASE WHEN t.state = 'queued' AND %(limit)s = 0 THEN 'ready' ELSE t.state END
FROM live WHERE t.execution_id = live.execution_id
"""


_LIVE = f"""
SELECT execution_id FROM tickets_ticket WHERE tenant_id = %s AND job_id = %s ORDER BY {LOCK_ORDER} FOR UPDATE
"""

_SET_FLOWS = """
UPDATE tickets_ticket t SET flow = m.flow, flow_limit = m.flow_limit, key = m.key
FROM json_to_recordset(%s::json) AS m(execution_id uuid, flow uuid, flow_limit int, key text)
WHERE t.execution_id = m.execution_id AND (t.flow, t.flow_limit, t.key) IS DISTINCT FROM (m.flow, m.flow_limit, m.key)
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


def live_of_job(conn: Conn, *, tenant_id: int, job_id: UUID) -> list[UUID]:
    """The executions of a job that have a ticket; their tickets are locked."""
    return [row[0] for row in conn.execute(_LIVE, [tenant_id, job_id])]


def set_flows(conn: Conn, flows: Mapping[UUID, Flow]) -> None:
    """These tickets, which the caller has locked, queue behind these flows from now on."""
    if not flows:
        return
    rows = [
        {"execution_id": one, "flow": flow.flow, "flow_limit": flow.limit, "key": flow.key}
        for one, flow in flows.items()
    ]
    conn.execute(_SET_FLOWS, [orjson.dumps(rows).decode()])
    notify_ready(conn)
    notify_all_pulling(conn)
