"""What workers of ours hold: the start of queued tickets, signs of life, and what nobody holds any more.

As in `store`: one statement a transition, in the connection's current transaction.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import psycopg

from apps.tickets.store import NOTHING
from apps.tickets.values import Lost, Started
from kernel.pools import WORKFLOW

Conn = psycopg.Connection[Any]

DEADLINE_GRACE_S = 30  # the executor ends the work at its time-out; the deadline is for when it could not
HELD_MAX_S = 900  # no attempt is alive for longer without a sign of its worker; a worker of ours extends what it holds

# The end of its time-out, of its total time-out, or of its lease, whichever comes first; least() passes over null.
_DEADLINE = f"""least({{now}} + least(timeout_s, {HELD_MAX_S}) * interval '1 second',
             coalesce(first_started_at, {{now}}) + total_timeout_s * interval '1 second')
       + interval '{DEADLINE_GRACE_S} seconds'"""

START = f"""
WITH found AS MATERIALIZED (
    SELECT execution_id FROM tickets_ticket WHERE execution_id = ANY(%(ids)s) AND release = %(release)s
    AND state = 'queued' AND (start_by IS NULL OR start_by >= clock_timestamp())
    AND tenant_id <> ALL(%(not_tenants)s::int[])
    ORDER BY execution_id LIMIT %(limit)s FOR UPDATE),
moment AS MATERIALIZED (SELECT clock_timestamp() AS now)
UPDATE tickets_ticket t SET state = 'running', attempt = attempt + 1, fence = nextval('ticket_fence'),
       worker_id = %(worker)s, started_at = moment.now, start_by = NULL,
       first_started_at = coalesce(first_started_at, moment.now), deadline = {_DEADLINE.format(now="moment.now")}
FROM found CROSS JOIN moment WHERE t.execution_id = found.execution_id AND t.state = 'queued'
RETURNING {", ".join("t." + name for name in Started._fields)}
"""

# Keeps its place in the order; what nobody had room for several times in a row waits a moment.
NOT_TAKEN = """
UPDATE tickets_ticket SET state = 'ready',
       available_at = CASE WHEN releases > 3 THEN %(now)s + interval '1 second' ELSE available_at END,
       rank = CASE WHEN releases > 3 THEN NULL ELSE rank END
WHERE execution_id = ANY(%(ids)s) AND release = %(release)s AND state = 'queued'
"""

LOST = f"""
SELECT {", ".join("t." + name for name in Started._fields)}, t.worker_id, t.deadline < clock_timestamp(), t.remote,
       t.remote AND t.deadline >= least(t.started_at + t.timeout_s * interval '1 second',
                                        t.first_started_at + t.total_timeout_s * interval '1 second')
FROM tickets_ticket t
WHERE t.execution_id = ANY(ARRAY(
    SELECT r.execution_id FROM tickets_ticket r LEFT JOIN tickets_worker w ON w.id = r.worker_id
    WHERE r.state = 'running' AND r.pool <> '{WORKFLOW}'
      AND (r.deadline < clock_timestamp() OR (NOT r.remote AND (w.id IS NULL OR (w.expires_at < clock_timestamp()
           AND pg_postmaster_start_time() < clock_timestamp() - %(grace)s * interval '1 second'))))
      AND r.execution_id > %(after)s AND (%(tenant)s::int IS NULL OR r.tenant_id = %(tenant)s::int)
    ORDER BY r.execution_id LIMIT %(limit)s))
  AND t.state = 'running' ORDER BY t.execution_id
"""

EXTEND = f"""
UPDATE tickets_ticket t SET deadline = {_DEADLINE.format(now="clock_timestamp()")}
FROM unnest(%s::uuid[], %s::bigint[]) AS m(execution_id, fence)
WHERE t.execution_id = m.execution_id AND t.fence = m.fence AND t.state = 'running' AND NOT t.remote
"""

TELL_PROGRESS = """
UPDATE tickets_ticket t SET progress = m.progress
FROM unnest(%s::uuid[], %s::bigint[], %s::jsonb[]) AS m(execution_id, fence, progress)
WHERE t.execution_id = m.execution_id AND t.fence = m.fence AND t.state = 'running'
"""

DISOWN = """
UPDATE tickets_ticket t SET deadline = clock_timestamp() - interval '1 second'
FROM unnest(%s::uuid[], %s::bigint[]) AS m(execution_id, fence)
WHERE t.execution_id = m.execution_id AND t.fence = m.fence AND t.state = 'running' AND NOT t.remote
"""


def start(
    conn: Conn, ids: Sequence[UUID], *, release: int, worker: UUID, limit: int, not_tenants: Sequence[int] = ()
) -> list[Started]:
    """queued -> running for at most `limit` of these, where the release number is still that one.

    What is past its `start_by` is not started, whoever comes first: this or its expiry.
    """
    parameters = {"ids": list(ids), "release": release, "worker": worker, "limit": limit}
    rows = conn.execute(START, parameters | {"not_tenants": list(not_tenants)})
    return [Started._make(row) for row in rows]


def put_back(conn: Conn, ids: Sequence[UUID], *, release: int, now: datetime) -> int:
    """queued -> ready, for what a worker had no slot for."""
    return conn.execute(NOT_TAKEN, {"ids": list(ids), "release": release, "now": now}).rowcount


def lost(
    conn: Conn, *, limit: int, grace_s: float, after: UUID = NOTHING, tenant_id: int | None = None
) -> list[Lost]:  # fmt: skip
    """Running tickets, of one tenant or of all, whose worker's lease has run out or whose deadline has passed.

    What is held outside has no worker: only its deadline counts, which is its lease or its time-out. A run of a
    workflow has neither: its deadline says when to look at it.

    In id order from `after` on. A database that has started within `grace_s` seconds was away itself: no lease could
    be renewed, so one that has run out says nothing yet.
    """
    rows = conn.execute(LOST, {"limit": limit, "grace": grace_s, "after": after, "tenant": tenant_id})
    width = len(Started._fields)
    return [Lost(Started._make(row[:width]), *row[width:]) for row in rows]


def extend(conn: Conn, pairs: Sequence[tuple[UUID, int]]) -> None:
    """The worker still holds these: their deadlines move on by their time-out, at most by HELD_MAX_S."""
    conn.execute(EXTEND, [[one[0] for one in pairs], [one[1] for one in pairs]])


def tell_progress(conn: Conn, told: Sequence[tuple[UUID, int, str]]) -> None:
    """What running attempts say of themselves, as JSON text; the latest counts."""
    conn.execute(TELL_PROGRESS, [[one[0] for one in told], [one[1] for one in told], [one[2] for one in told]])


def disown(conn: Conn, pairs: Sequence[tuple[UUID, int]]) -> None:
    """The worker does not hold these any more: their deadlines end now, and reconcile ends the attempts as lost."""
    conn.execute(DISOWN, [[one[0] for one in pairs], [one[1] for one in pairs]])


def alive(conn: Conn, pairs: Sequence[tuple[UUID, int]]) -> dict[tuple[UUID, int], Literal["running", "waiting"]]:
    """Which of these attempts run, and which were the last of an execution that waits for its next one."""
    rows = conn.execute(
        "SELECT t.execution_id, t.fence, t.state = 'running' FROM unnest(%s::uuid[], %s::bigint[])"
        " AS m(execution_id, fence) JOIN tickets_ticket t USING (execution_id, fence)",
        [[one[0] for one in pairs], [one[1] for one in pairs]],
    )
    return {(row[0], row[1]): "running" if row[2] else "waiting" for row in rows}
