"""Tickets of workflows' runs, in SQL. Nobody works on them: while they run, their deadline says when to look at them.

As in `store`: one statement a transition, in the connection's current transaction.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.tickets.store import ASK_TO_STOP, notify_ready
from apps.tickets.values import Started
from kernel.pools import WORKFLOW

Conn = psycopg.Connection[Any]
LOOK_MAX_S = 900  # a run is looked at so often, whatever happens

_BEGIN = f"""
UPDATE tickets_ticket t SET state = 'running', attempt = attempt + 1, fence = nextval('ticket_fence'), releases = 0,
       remote = true, worker_id = NULL, holder = '{WORKFLOW}', lease_s = {LOOK_MAX_S}, progress = NULL, start_by = NULL,
       first_queued_at = coalesce(first_queued_at, statement_timestamp()), started_at = statement_timestamp(),
       first_started_at = coalesce(first_started_at, statement_timestamp()), deadline = statement_timestamp()
WHERE execution_id = ANY(%s) AND state = 'ready' AND pool = '{WORKFLOW}'
  AND (start_by IS NULL OR start_by >= statement_timestamp())
RETURNING {", ".join("t." + name for name in Started._fields)}
"""

_DUE = f"""
SELECT {", ".join("t." + name for name in Started._fields)}, t.deadline FROM tickets_ticket t
WHERE pool = '{WORKFLOW}' AND state = 'running' AND deadline <= clock_timestamp() AND tenant_id <> ALL(%s::int[])
ORDER BY deadline LIMIT %s
"""

# Earlier than it was in any case: who has seen the former deadline must not put a later one over this.
_LOOK_AT = f"""
WITH found AS MATERIALIZED (
    SELECT execution_id FROM tickets_ticket
    WHERE execution_id = ANY(%s) AND pool = '{WORKFLOW}' AND state = 'running' ORDER BY execution_id FOR UPDATE)
UPDATE tickets_ticket t SET deadline = least(deadline - interval '1 microsecond', clock_timestamp())
WHERE t.execution_id = ANY(ARRAY(SELECT execution_id FROM found)) AND t.state = 'running'
"""

_GO_ON = f"""
UPDATE tickets_ticket SET fence = nextval('ticket_fence'), deadline = clock_timestamp(), cancel_requested = false
WHERE execution_id = %s AND pool = '{WORKFLOW}' AND state = 'running' RETURNING fence
"""

_LOOKED = """
UPDATE tickets_ticket SET deadline = %(next)s
WHERE execution_id = %(id)s AND fence = %(fence)s AND state = 'running' AND deadline = %(seen)s
"""


_LOCK = "SELECT 1 FROM tickets_ticket WHERE execution_id = ANY(%s) ORDER BY execution_id FOR UPDATE"
_STOP_WAITING = """
DELETE FROM tickets_ticket WHERE execution_id = ANY(%s) AND state IN ('blocked', 'ready', 'queued')
RETURNING execution_id, attempt, first_queued_at, first_started_at
"""
_STOP_RUNNING = f"""
UPDATE tickets_ticket SET {ASK_TO_STOP}
WHERE execution_id = ANY(%s) AND state = 'running' AND NOT cancel_requested RETURNING pool
"""


class Stopped(NamedTuple):
    """A ticket that waited and is gone; its execution is the caller's to end."""

    execution_id: UUID
    attempt: int
    first_queued_at: datetime | None
    first_started_at: datetime | None


class Due(NamedTuple):
    """A run that is to be looked at, and the deadline that said so."""

    started: Started
    seen: datetime


def begin(conn: Conn, ids: Sequence[UUID]) -> list[Started]:
    """ready -> running, each under a new fence; to be looked at now."""
    return [Started._make(row) for row in conn.execute(_BEGIN, [list(ids)])]


def due(conn: Conn, *, limit: int, not_tenants: Sequence[int] = ()) -> list[Due]:
    """Runs that are to be looked at, the longest due first."""
    return [Due(Started._make(row[:-1]), row[-1]) for row in conn.execute(_DUE, [list(not_tenants), limit])]


def look_at(conn: Conn, run_ids: Collection[UUID | None]) -> None:
    """Somebody is to look at these runs as soon as this transaction commits. Locks their tickets in id order."""
    wanted = [one for one in run_ids if one is not None]
    if wanted:
        conn.execute(_LOOK_AT, [wanted])
        notify_ready(conn, {WORKFLOW})


def go_on(conn: Conn, run_id: UUID) -> bool:
    """A run that had ended goes on before it was settled: under a new fence, so who was to settle it comes too late.

    False when it has no ticket that runs.
    """
    return conn.execute(_GO_ON, [run_id]).fetchone() is not None


def looked(conn: Conn, one: Due, *, next_at: datetime) -> None:
    """Look again at `next_at`, unless somebody asked for a look since."""
    conn.execute(
        _LOOKED, {"id": one.started.execution_id, "fence": one.started.fence, "seen": one.seen, "next": next_at}
    )  # fmt: skip


def stop(conn: Conn, execution_ids: Collection[UUID]) -> list[Stopped]:
    """What waits of these steps is taken away, what runs is asked to stop. Locks their tickets in id order."""
    ids = [list(execution_ids)]
    conn.execute(_LOCK, ids)
    stopped = [Stopped._make(row) for row in conn.execute(_STOP_WAITING, ids)]
    if any(row[0] == WORKFLOW for row in conn.execute(_STOP_RUNNING, ids)):
        notify_ready(conn, {WORKFLOW})
    return stopped
