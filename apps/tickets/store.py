"""Tickets in SQL: one statement a transition, each naming the id, the state and the guard of kernel.transitions.

All functions take a psycopg connection and work in its current transaction; none of them commits.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from apps.tickets.values import LANES, Current, Replaced, Ticket
from kernel.pools import POOLS, PULL, WORKFLOW
from kernel.rows import json_rows

Conn = psycopg.Connection[Any]

READY_CHANNEL = "shardbeat_ready"
PULL_CHANNEL = "shardbeat_pull"  # "tenant queue", or nothing for all
NOTHING = UUID(int=0)
NOTIFIED_ONE_BY_ONE = 50
# Whoever locks tickets of any state does it in this order: the end of a run holds its own ticket while it decides on
# those that wait for it, so what is blocked comes last.
LOCK_ORDER = "(state = 'blocked'), execution_id"
AGING = timedelta(seconds=60)  # one step of priority is worth a minute of waiting: nothing starves
REMOTE_CANCEL_GRACE_S = 10  # to hear of a cancel and stop
COPY_IN = f"COPY tickets_ticket ({', '.join(Ticket._fields)}, releases, cancel_requested) FROM STDIN"

INSERT_FEW = (
    f"INSERT INTO tickets_ticket ({', '.join(Ticket._fields)}, releases, cancel_requested) "
    f"SELECT {', '.join(Ticket._fields)}, 0, false FROM json_populate_recordset(null::tickets_ticket, %s::json)"
)

INSERT = (
    f"INSERT INTO tickets_ticket ({', '.join(Ticket._fields)}, releases, cancel_requested) "
    f"VALUES ({', '.join(['%s'] * len(Ticket._fields))}, 0, false)"
)

LOCK_CURRENT = """
SELECT t.execution_id, t.fence, t.cancel_requested, t.followed, clock_timestamp()
FROM unnest(%s::uuid[], %s::bigint[]) AS m(execution_id, fence)
JOIN tickets_ticket t ON t.execution_id = m.execution_id AND t.fence = m.fence
WHERE t.state = 'running' ORDER BY t.execution_id FOR UPDATE OF t
"""

END = """
DELETE FROM tickets_ticket t USING unnest(%s::uuid[], %s::bigint[]) AS m(execution_id, fence)
WHERE t.execution_id = m.execution_id AND t.fence = m.fence AND t.state = 'running'
"""

TRY_AGAIN = """
UPDATE tickets_ticket t SET state = 'ready', rank = NULL, available_at = m.available_at, failures = m.failures,
       releases = 0, worker_id = NULL, started_at = NULL, deadline = NULL, remote = false, holder = '', lease_s = NULL,
       progress = NULL, start_by = t.first_started_at + t.total_timeout_s * interval '1 second',
       wait_reason = m.wait_reason
FROM unnest(%s::uuid[], %s::bigint[], %s::timestamptz[], %s::int[], %s::text[])
    AS m(execution_id, fence, available_at, failures, wait_reason)
WHERE t.execution_id = m.execution_id AND t.fence = m.fence AND t.state = 'running'
"""

CANCEL_WAITING = """
DELETE FROM tickets_ticket WHERE execution_id = %s AND tenant_id = %s AND state IN ('blocked', 'ready', 'queued')
RETURNING attempt, first_queued_at, first_started_at, followed
"""

# Whoever holds it outside learns of it from a heartbeat and gets a moment to stop. A workflow's run is looked at now.
ASK_TO_STOP = f"""cancel_requested = true, deadline = CASE
    WHEN pool = '{WORKFLOW}' THEN least(deadline - interval '1 microsecond', clock_timestamp())
    WHEN remote THEN least(deadline, clock_timestamp() + interval '{REMOTE_CANCEL_GRACE_S} seconds')
    ELSE deadline END"""

# As long as nothing was tried since the attempt of that number.
TAKE_BACK = """
DELETE FROM tickets_ticket
WHERE execution_id = %s AND tenant_id = %s AND attempt = %s AND state IN ('ready', 'queued') RETURNING followed
"""

CANCEL_RUNNING = f"""
UPDATE tickets_ticket SET {ASK_TO_STOP} WHERE execution_id = %s AND tenant_id = %s AND state = 'running'
RETURNING fence
"""

# A newer run of the same schedule takes their place.
REPLACE_WAITING = """
WITH waiting AS (
    SELECT execution_id FROM tickets_ticket
    WHERE schedule_id = ANY(%(schedules)s) AND state IN ('blocked', 'ready', 'queued') AND (guarded OR %(unguarded)s)
    ORDER BY execution_id FOR UPDATE)
DELETE FROM tickets_ticket t
WHERE t.execution_id = ANY(ARRAY(SELECT execution_id FROM waiting)) AND t.state IN ('blocked', 'ready', 'queued')
RETURNING t.tenant_id, t.execution_id, t.attempt, t.first_queued_at, t.first_started_at, t.followed
"""

CANCEL_RUNNING_OF = f"""
WITH running AS (
    SELECT execution_id FROM tickets_ticket WHERE guarded AND schedule_id = ANY(%s) AND state = 'running'
    ORDER BY execution_id FOR UPDATE)
UPDATE tickets_ticket t SET {ASK_TO_STOP}
WHERE t.execution_id = ANY(ARRAY(SELECT execution_id FROM running)) AND t.state = 'running' AND NOT t.cancel_requested
"""

# By the partial indexes, none of which is by tenant alone: one more would cost every run.
ALIVE_OF_TENANT = """
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM tickets_ticket WHERE tenant_id = %(tenant)s AND pool = ANY(%(pools)s)
             AND lane = ANY(%(lanes)s) AND state = 'ready' AND rank IS NOT NULL LIMIT %(most)s) ready)
     + (SELECT count(*) FROM tickets_ticket WHERE tenant_id = %(tenant)s AND state = 'ready' AND rank IS NULL)
     + (SELECT count(*) FROM tickets_ticket WHERE tenant_id = %(tenant)s AND state = 'blocked')
     + (SELECT count(*) FROM tickets_ticket WHERE tenant_id = %(tenant)s AND state = 'queued')
     + (SELECT count(*) FROM tickets_ticket WHERE tenant_id = %(tenant)s AND state = 'running')
"""

# Of many at a time: what is not ready is read once for all of them.
ALIVE_OF_TENANTS = """
WITH others AS MATERIALIZED (
    SELECT tenant_id, count(*) AS n FROM (
        SELECT tenant_id FROM tickets_ticket WHERE state = 'ready' AND rank IS NULL
        UNION ALL SELECT tenant_id FROM tickets_ticket WHERE state = 'blocked'
        UNION ALL SELECT tenant_id FROM tickets_ticket WHERE state = 'queued'
        UNION ALL SELECT tenant_id FROM tickets_ticket WHERE state = 'running') one
    WHERE tenant_id = ANY(%(tenants)s) GROUP BY 1)
SELECT m.tenant_id, coalesce(o.n, 0) + (SELECT count(*) FROM (
           SELECT 1 FROM tickets_ticket t WHERE t.tenant_id = m.tenant_id AND pool = ANY(%(pools)s)
            AND lane = ANY(%(lanes)s) AND state = 'ready' AND rank IS NOT NULL LIMIT m.most) ready)
FROM unnest(%(tenants)s::int[], %(most)s::int[]) AS m(tenant_id, most) LEFT JOIN others o ON o.tenant_id = m.tenant_id
"""


def new_rank(available_at: datetime, priority: int) -> datetime:
    """The order of release inside a lane: earlier comes first, and a step of priority is worth AGING."""
    return available_at - priority * AGING


def copy_in(conn: Conn, tickets: Iterable[Ticket]) -> None:
    """Adds many tickets. Must not run inside a pipeline."""
    with conn.cursor() as cursor, cursor.copy(COPY_IN) as copy:
        for ticket in tickets:
            copy.write_row((*ticket, 0, False))


def insert_few(conn: Conn, tickets: Sequence[Ticket]) -> None:
    """Adds some tickets in one statement, which is fit for a pipeline; many go faster with `copy_in`."""
    conn.execute(INSERT_FEW, [json_rows(tickets)])


def insert(conn: Conn, ticket: Ticket) -> None:
    """Adds one ticket and wakes the release loops."""
    conn.execute(INSERT, ticket)
    if ticket.pool == PULL:
        notify_pull(conn, {(ticket.tenant_id, ticket.queue)})
    else:
        notify_ready(conn, {ticket.pool})


def add(conn: Conn, new: Sequence[Ticket]) -> None:
    """Adds tickets and wakes who waits for them. Must not run inside a pipeline."""
    if not new:
        return
    copy_in(conn, new)
    notify_pull(conn, {(one.tenant_id, one.queue) for one in new if one.pool == PULL})
    notify_ready(conn, {one.pool for one in new})


def notify_ready(conn: Conn, pools: Iterable[str] | None = None) -> None:
    """Tells the release loops of these pools, or all, when this transaction commits, that something may go."""
    told = [""] if pools is None else sorted(set(pools) - {PULL})
    if told:
        conn.execute("SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload", [READY_CHANNEL, told])


def notify_pull(conn: Conn, queues: Iterable[tuple[int, str]]) -> None:
    """Tells those who wait at these (tenant, queue), when this transaction commits, that something is ready."""
    told = sorted(set(queues))
    if len(told) > NOTIFIED_ONE_BY_ONE:
        notify_all_pulling(conn)
    elif told:
        payloads = [f"{tenant_id} {queue}" for tenant_id, queue in told]
        conn.execute("SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload", [PULL_CHANNEL, payloads])


def notify_all_pulling(conn: Conn) -> None:
    """As `notify_pull`, to everybody who waits at any queue."""
    conn.execute("SELECT pg_notify(%s, '')", [PULL_CHANNEL])


def lock_current(conn: Conn, pairs: Sequence[tuple[UUID, int]]) -> tuple[dict[tuple[UUID, int], Current], datetime]:
    """Locks, in id order, those (execution, fence) that still are what runs.

    Also the database's time, which is of no meaning when none of them is.
    """
    rows = conn.execute(LOCK_CURRENT, [[one[0] for one in pairs], [one[1] for one in pairs]]).fetchall()
    now = max((row[4] for row in rows), default=datetime.max.replace(tzinfo=UTC))
    return {(row[0], row[1]): Current(row[2], row[3]) for row in rows}, now


def end(conn: Conn, pairs: Sequence[tuple[UUID, int]]) -> None:
    """Deletes tickets that were locked as current."""
    conn.execute(END, [[one[0] for one in pairs], [one[1] for one in pairs]])


def try_again(conn: Conn, rows: Sequence[tuple[UUID, int, datetime, int, str]]) -> None:
    """running -> ready at (execution, fence, available_at, failures, why), for tickets that were locked as current."""
    conn.execute(TRY_AGAIN, [list(column) for column in zip(*rows, strict=True)])


def cancel_waiting(conn: Conn, execution_id: UUID, *, tenant_id: int) -> tuple[Any, ...] | None:
    """Deletes a ticket that waits; its (attempt, first_queued_at, first_started_at, followed).

    None when it does not wait.
    """
    return conn.execute(CANCEL_WAITING, [execution_id, tenant_id]).fetchone()


def take_back(conn: Conn, execution_id: UUID, *, tenant_id: int, attempt: int) -> bool | None:
    """Deletes a ticket that waits for its first start since that attempt; whether others wait for its execution.

    None when it has started since, or is not there.
    """
    row = conn.execute(TAKE_BACK, [execution_id, tenant_id, attempt]).fetchone()
    return None if row is None else bool(row[0])


def cancel_running(conn: Conn, execution_id: UUID, *, tenant_id: int) -> bool:
    """Asks the worker to stop; False when it does not run."""
    return conn.execute(CANCEL_RUNNING, [execution_id, tenant_id]).fetchone() is not None


def is_running(conn: Conn, execution_id: UUID) -> bool:
    """Whether somebody works on it."""
    query = "SELECT FROM tickets_ticket WHERE execution_id = %s AND state = 'running'"
    return conn.execute(query, [execution_id]).rowcount > 0


def alive_of_schedules(conn: Conn, schedule_ids: Sequence[UUID]) -> dict[UUID, int]:
    """How many guarded executions of each schedule are alive."""
    rows = conn.execute(
        "SELECT schedule_id, count(*) FROM tickets_ticket WHERE guarded AND schedule_id = ANY(%s) GROUP BY 1",
        [list(schedule_ids)],
    )
    return {row[0]: row[1] for row in rows}


def alive_of_schedule(conn: Conn, schedule_id: UUID) -> int:
    """How many executions of a schedule are alive, whatever its policy. Reads all tickets: for people's requests."""
    row = conn.execute("SELECT count(*) FROM tickets_ticket WHERE schedule_id = %s", [schedule_id]).fetchone()
    assert row is not None
    return int(row[0])


def alive_of_tenant(conn: Conn, tenant_id: int, *, most: int | None = None) -> int:
    """How many executions of a tenant have a ticket; those that are ready count up to `most`."""
    row = conn.execute(
        ALIVE_OF_TENANT, {"tenant": tenant_id, "pools": list(POOLS), "lanes": list(LANES), "most": most}
    ).fetchone()
    assert row is not None
    return int(row[0])


def alive_of_tenants(conn: Conn, most: Mapping[int, int]) -> dict[int, int]:
    """How many executions of each of these tenants have a ticket; those that are ready count up to its `most`."""
    parameters = {"tenants": list(most), "most": list(most.values()), "pools": list(POOLS), "lanes": list(LANES)}
    return dict(conn.execute(ALIVE_OF_TENANTS, parameters).fetchall())


def replace_waiting(conn: Conn, schedule_ids: Sequence[UUID], *, unguarded: bool = False) -> list[Replaced]:
    """Deletes the tickets of these schedules that wait; their executions are the caller's to end.

    `unguarded` includes runs that no overlap policy counts, and reads all tickets.
    """
    rows = conn.execute(REPLACE_WAITING, {"schedules": list(schedule_ids), "unguarded": unguarded})
    return [Replaced._make(row) for row in rows]


def cancel_running_of(conn: Conn, schedule_ids: Sequence[UUID]) -> int:
    """Asks the workers to stop the guarded runs of these schedules; returns how many."""
    return conn.execute(CANCEL_RUNNING_OF, [list(schedule_ids)]).rowcount


def lock(conn: Conn, ids: Sequence[UUID]) -> None:
    """Locks tickets in their order, whatever their state."""
    conn.execute(
        f"SELECT 1 FROM tickets_ticket WHERE execution_id = ANY(%s) ORDER BY {LOCK_ORDER} FOR UPDATE", [list(ids)]
    )


def remove(conn: Conn, ids: Sequence[UUID]) -> None:
    """Deletes tickets whose execution does not exist or has ended: for repairs only."""
    conn.execute("DELETE FROM tickets_ticket WHERE execution_id = ANY(%s)", [list(ids)])


def lock_runs_of(conn: Conn, schedule_ids: Sequence[UUID]) -> None:
    """Locks the guarded runs of these schedules in id order, whether they wait or run."""
    conn.execute(
        "SELECT 1 FROM tickets_ticket WHERE guarded AND schedule_id = ANY(%s) ORDER BY execution_id FOR UPDATE",
        [list(schedule_ids)],
    )
