"""Runs of workflows of all tenants that have not ended, from their tickets: no schema is visited."""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from kernel.pools import WORKFLOW

Conn = psycopg.Connection[Any]

# By id, which follows the time of creation, so that pages do not move; the index has these tickets alone.
_RUNS = f"""
SELECT execution_id, tenant_id, job_id, schedule_id, trigger, state, actual_at, started_at, deadline, cancel_requested,
       wait_reason, extract(epoch FROM clock_timestamp() - coalesce(first_started_at, actual_at))::float8
FROM tickets_ticket
WHERE pool = '{WORKFLOW}' AND (%(tenant)s::int IS NULL OR tenant_id = %(tenant)s)
  AND (%(state)s::text IS NULL OR state = %(state)s) AND (%(after)s::uuid IS NULL OR execution_id > %(after)s)
ORDER BY execution_id LIMIT %(limit)s
"""
_COUNTS = f"""
SELECT state, count(*) FROM (SELECT state FROM tickets_ticket WHERE pool = '{WORKFLOW}' LIMIT %s) r GROUP BY state
"""


class LiveRun(NamedTuple):
    """A run as its ticket knows it. `looked_at` is when it is looked at next, `age_s` since it began or was due."""

    id: UUID
    tenant_id: int
    workflow_id: UUID
    schedule_id: UUID | None
    trigger: str
    state: str
    due_at: datetime
    started_at: datetime | None
    looked_at: datetime | None
    cancelling: bool
    wait_reason: str | None
    age_s: float


def runs_alive(
    conn: Conn, *, tenant_id: int | None, state: str, after: UUID | None, limit: int
) -> list[LiveRun]:  # fmt: skip
    """The oldest first: what is stuck is on the first page."""
    given = {"tenant": tenant_id, "state": state or None, "after": after, "limit": limit}
    return [LiveRun(*row) for row in conn.execute(_RUNS, given)]


def runs_counted(conn: Conn, *, most: int) -> dict[str, int]:
    """How many are in which state, of the first `most`."""
    return dict(conn.execute(_COUNTS, [most]).fetchall())
