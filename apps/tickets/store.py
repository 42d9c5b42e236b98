"""Tickets in SQL: one statement a transition, each naming the id, the state and the guard of kernel.transitions.

All functions take a psycopg connection and work in its current transaction; none of them commits.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import psycopg

from apps.tickets.values import NO_GATE, Candidate, Flow, Lost, Replaced, Started, Ticket
from kernel.pools import PULL

Conn = psycopg.Connection[Any]
READY_CHANNEL = "shardbeat_ready"
PULL_CHANNEL = "shardbeat_pull"  # "tenant queue", or nothing for all
NOTHING = UUID(int=0)
NOTIFIED_ONE_BY_ONE = 50
AGING = timedelta(seconds=60)  # one step of priority is worth a minute of waiting: nothing starves
# What is made up for comes after live work of its tenant that became due up to an hour later, whatever the priorities.
CATCH_UP_YIELDS = timedelta(hours=1)
DEADLINE_GRACE_S = 30  # the executor ends the work at its time-out; the deadline is for when it could not
HELD_MAX_S = 900  # no attempt is alive for longer without a sign of its worker; a worker of ours extends what it holds
REMOTE_CANCEL_GRACE_S = 10  # to hear of a cancel and stop


COPY_IN = f"COPY tickets_ticket ({', '.join(Ticket._fields)}, releases, cancel_requested) FROM STDIN"
INSERT = (
    f"INSERT INTO tickets_ticket ({', '.join(Ticket._fields)}, releases, cancel_requested) "
    f"VALUES ({', '.join(['%s'] * len(Ticket._fields))}, 0, false)"
)

# Rows are found and locked in a materialised step: a sub-select may be run again for every outer row, and then the
# limit does not hold.
PROMOTE = """
WITH found AS MATERIALIZED (
    SELECT execution_id FROM tickets_ticket WHERE state = 'ready' AND rank IS NULL AND available_at <= %(now)s
    ORDER BY available_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE tickets_ticket t SET rank = available_at - priority * %(aging)s
       + CASE WHEN trigger = 'catch_up' THEN %(yields)s ELSE interval '0' END
FROM found WHERE t.execution_id = found.execution_id RETURNING t.pool, t.tenant_id, t.queue
"""

FLOWS = """
WITH RECURSIVE flow AS (
    (SELECT tenant_id, gate, gate_limit FROM tickets_ticket
     WHERE pool = %(pool)s AND state = 'ready' AND rank IS NOT NULL ORDER BY tenant_id, gate LIMIT 1)
    UNION ALL
    SELECT n.tenant_id, n.gate, n.gate_limit FROM flow f CROSS JOIN LATERAL (
        SELECT tenant_id, gate, gate_limit FROM tickets_ticket
        WHERE pool = %(pool)s AND state = 'ready' AND rank IS NOT NULL AND (tenant_id, gate) > (f.tenant_id, f.gate)
        ORDER BY tenant_id, gate LIMIT 1) n
) SELECT tenant_id, gate, gate_limit FROM flow
"""

# Runs of serial schedules that have one queued or running are left out: at the head of a flow they would hide the rest.

CANDIDATES = """
SELECT c.* FROM unnest(%(tenants)s::int[], %(gates)s::uuid[], %(limits)s::int[]) AS f(tenant_id, gate, most)
CROSS JOIN LATERAL (
    SELECT execution_id, tenant_id, gate, gate_limit, queue, rank, actual_at, CASE WHEN guarded THEN schedule_id END
    FROM tickets_ticket t
    WHERE pool = %(pool)s AND tenant_id = f.tenant_id AND gate = f.gate AND state = 'ready' AND rank IS NOT NULL
      AND (start_by IS NULL OR start_by >= %(now)s)
      AND NOT (guarded AND EXISTS (
          SELECT 1 FROM tickets_ticket b
          WHERE b.guarded AND b.schedule_id = t.schedule_id AND b.state IN ('queued', 'running')))
    ORDER BY rank LIMIT f.most FOR UPDATE SKIP LOCKED) c
"""

TAKEN = """
SELECT tenant_id, queue, gate, count(*), 0
FROM tickets_ticket WHERE pool = %(pool)s AND state = 'queued' GROUP BY 1, 2, 3
UNION ALL
SELECT tenant_id, queue, gate, count(*), count(*)
FROM tickets_ticket WHERE pool = %(pool)s AND state = 'running' AND NOT remote GROUP BY 1, 2, 3
UNION ALL
SELECT tenant_id, '', gate, count(*), 0
FROM tickets_ticket WHERE pool = %(pool)s AND state = 'running' AND remote GROUP BY 1, 3
"""

RELEASE = """
UPDATE tickets_ticket SET state = 'queued', release = %(release)s, releases = releases + 1, queued_at = %(now)s,
       first_queued_at = coalesce(first_queued_at, %(now)s)
WHERE execution_id = ANY(%(ids)s) AND state = 'ready' AND (start_by IS NULL OR start_by >= %(now)s)
RETURNING execution_id
"""

# Queued for too long: its message is lost or its worker is gone. Waits longer each time, at most five minutes.
RELEASE_AGAIN = """
WITH found AS MATERIALIZED (
    SELECT execution_id FROM tickets_ticket WHERE state = 'queued' AND queued_at < %(before)s AND pool = ANY(%(pools)s)
    ORDER BY queued_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE tickets_ticket t SET state = 'ready', rank = NULL,
       available_at = %(now)s + least(300, %(step)s * (2 ^ least(releases - 1, 8) - 1)) * interval '1 second'
FROM found WHERE t.execution_id = found.execution_id AND t.state = 'queued' RETURNING t.execution_id
"""

# The end of its time-out, of its total time-out, or of its lease, whichever comes first; least() passes over null.
_DEADLINE = f"""least({{now}} + least(timeout_s, {HELD_MAX_S}) * interval '1 second',
             coalesce(first_started_at, {{now}}) + total_timeout_s * interval '1 second')
       + interval '{DEADLINE_GRACE_S} seconds'"""

START = f"""
WITH found AS MATERIALIZED (
    SELECT execution_id FROM tickets_ticket WHERE execution_id = ANY(%(ids)s) AND release = %(release)s
    AND state = 'queued' AND (start_by IS NULL OR start_by >= clock_timestamp())
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

LOCK_CURRENT = """
SELECT t.execution_id, t.fence, t.cancel_requested, clock_timestamp()
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
RETURNING attempt, first_queued_at, first_started_at
"""

# Whoever holds it outside learns of it from a heartbeat and gets a moment to stop.
_ASK_TO_STOP = f"""cancel_requested = true, deadline = CASE WHEN remote
    THEN least(deadline, clock_timestamp() + interval '{REMOTE_CANCEL_GRACE_S} seconds') ELSE deadline END"""

CANCEL_RUNNING = f"""
UPDATE tickets_ticket SET {_ASK_TO_STOP} WHERE execution_id = %s AND tenant_id = %s AND state = 'running'
RETURNING fence
"""

# A newer run of the same schedule takes their place.
REPLACE_WAITING = """
WITH waiting AS (
    SELECT execution_id FROM tickets_ticket
    WHERE schedule_id = ANY(%(schedules)s) AND state IN ('blocked', 'ready', 'queued') AND (guarded OR %(unguarded)s)
    ORDER BY execution_id FOR UPDATE)
DELETE FROM tickets_ticket t USING waiting w
WHERE t.execution_id = w.execution_id AND t.state IN ('blocked', 'ready', 'queued')
RETURNING t.tenant_id, t.execution_id, t.attempt, t.first_queued_at, t.first_started_at
"""

CANCEL_RUNNING_OF = f"""
WITH running AS (
    SELECT execution_id FROM tickets_ticket WHERE guarded AND schedule_id = ANY(%s) AND state = 'running'
    ORDER BY execution_id FOR UPDATE)
UPDATE tickets_ticket t SET {_ASK_TO_STOP} FROM running r
WHERE t.execution_id = r.execution_id AND t.state = 'running' AND NOT t.cancel_requested
"""

LOST = f"""
SELECT {", ".join("t." + name for name in Started._fields)}, t.worker_id, t.deadline < clock_timestamp(), t.remote,
       t.remote AND t.deadline >= least(t.started_at + t.timeout_s * interval '1 second',
                                        t.first_started_at + t.total_timeout_s * interval '1 second')
FROM tickets_ticket t
WHERE t.execution_id IN (
    SELECT r.execution_id FROM tickets_ticket r LEFT JOIN tickets_worker w ON w.id = r.worker_id
    WHERE r.state = 'running'
      AND (r.deadline < clock_timestamp() OR (NOT r.remote AND (w.id IS NULL OR (w.expires_at < clock_timestamp()
           AND pg_postmaster_start_time() < clock_timestamp() - %(grace)s * interval '1 second'))))
      AND r.execution_id > %(after)s
    ORDER BY r.execution_id LIMIT %(limit)s)
  AND t.state = 'running'
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


def new_rank(available_at: datetime, priority: int, *, catch_up: bool = False) -> datetime:
    """The order of release: earlier comes first, and a step of priority is worth AGING. Catch-up runs yield."""
    return available_at - priority * AGING + (CATCH_UP_YIELDS if catch_up else timedelta())


def gate_of(job_id: UUID, limit: int | None) -> UUID:
    """What a ticket queues behind: its job when that has a limit."""
    return NO_GATE if limit is None else job_id


def copy_in(conn: Conn, tickets: Iterable[Ticket]) -> None:
    """Adds many tickets. Must not run inside a pipeline."""
    with conn.cursor() as cursor, cursor.copy(COPY_IN) as copy:
        for ticket in tickets:
            copy.write_row((*ticket, 0, False))


def insert(conn: Conn, ticket: Ticket) -> None:
    """Adds one ticket and wakes the release loops."""
    conn.execute(INSERT, ticket)
    if ticket.pool == PULL:
        notify_pull(conn, {(ticket.tenant_id, ticket.queue)})
    else:
        notify_ready(conn)


def notify_ready(conn: Conn) -> None:
    """Tells the release loops, when this transaction commits, that something is ready."""
    conn.execute("SELECT pg_notify(%s, '')", [READY_CHANNEL])


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


def promote(conn: Conn, *, now: datetime, limit: int) -> int:
    """Ranks tickets whose time has come; returns how many."""
    parameters = {"now": now, "aging": AGING, "yields": CATCH_UP_YIELDS, "limit": limit}
    rows = conn.execute(PROMOTE, parameters).fetchall()
    notify_pull(conn, ((tenant_id, queue) for pool, tenant_id, queue in rows if pool == PULL))
    return len(rows)


def any_ready(conn: Conn, pool: str) -> bool:
    """Whether there is anything to release."""
    row = conn.execute(
        "SELECT EXISTS (SELECT 1 FROM tickets_ticket WHERE pool = %s AND state = 'ready' AND rank IS NOT NULL)", [pool]
    ).fetchone()
    return bool(row and row[0])


def flows(conn: Conn, pool: str) -> list[Flow]:
    """Who has something ready, by jumping from flow to flow in the index."""
    return [Flow._make(row) for row in conn.execute(FLOWS, {"pool": pool})]


def taken(conn: Conn, pool: str) -> list[tuple[int, str, UUID, int, int]]:
    """(tenant, queue, gate, count, running of these) of what is queued or running; outside is no queue, ""."""
    return conn.execute(TAKEN, {"pool": pool}).fetchall()


def candidates(conn: Conn, pool: str, wanted: Sequence[tuple[Flow, int]], *, now: datetime) -> list[Candidate]:
    """Locks up to so many of the best ready tickets of each flow; those that waited for too long are left out."""
    rows = conn.execute(
        CANDIDATES,
        {
            "pool": pool, "tenants": [flow.tenant_id for flow, _ in wanted], "gates": [flow.gate for flow, _ in wanted],
            "limits": [most for _, most in wanted], "now": now,
        },
    )  # fmt: skip
    return [Candidate._make(row) for row in rows]


def held_by_tenants(conn: Conn, tenant_ids: Sequence[int]) -> dict[int, int]:
    """How much of these tenants is queued or running, over all pools; until the transaction ends nobody adds to it.

    Whoever admits work of a tenant with a limit takes this lock first, in id order.
    """
    ids = sorted(tenant_ids)
    conn.execute("SELECT 1 FROM tenants_tenant WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", [ids])
    rows = conn.execute(
        "SELECT tenant_id, count(*) FROM tickets_ticket"
        " WHERE state IN ('queued', 'running') AND tenant_id = ANY(%s) GROUP BY 1",
        [ids],
    )
    return {**dict.fromkeys(ids, 0), **{row[0]: row[1] for row in rows}}


def move_to_queue(conn: Conn, ids: Sequence[UUID], queue: str) -> None:
    """Their tenant's queue is another one now than when these were made."""
    conn.execute("UPDATE tickets_ticket SET queue = %s WHERE execution_id = ANY(%s)", [queue, list(ids)])


def next_release(conn: Conn) -> int:
    """A release number that was never used."""
    row = conn.execute("SELECT nextval('ticket_release')").fetchone()
    assert row is not None
    return int(row[0])


def release(conn: Conn, ids: Sequence[UUID], *, release: int, now: datetime) -> list[UUID]:
    """ready -> queued under this release number, unless it is too late for it; returns the ids that went."""
    rows = conn.execute(RELEASE, {"ids": list(ids), "release": release, "now": now})
    return [row[0] for row in rows]


def release_again(conn: Conn, *, pools: Sequence[str], now: datetime, bound_s: float, limit: int) -> list[UUID]:
    """queued -> ready for what no worker has started within `bound_s` seconds."""
    rows = conn.execute(
        RELEASE_AGAIN,
        {
            "pools": list(pools), "now": now, "before": now - timedelta(seconds=bound_s), "step": bound_s,
            "limit": limit,
        },
    )  # fmt: skip
    return [row[0] for row in rows]


def start(conn: Conn, ids: Sequence[UUID], *, release: int, worker: UUID, limit: int) -> list[Started]:
    """queued -> running for at most `limit` of these, where the release number is still that one.

    What is past its `start_by` is not started, whoever comes first: this or its expiry.
    """
    rows = conn.execute(START, {"ids": list(ids), "release": release, "worker": worker, "limit": limit})
    return [Started._make(row) for row in rows]


def put_back(conn: Conn, ids: Sequence[UUID], *, release: int, now: datetime) -> int:
    """queued -> ready, for what a worker had no slot for."""
    return conn.execute(NOT_TAKEN, {"ids": list(ids), "release": release, "now": now}).rowcount


def lock_current(conn: Conn, pairs: Sequence[tuple[UUID, int]]) -> tuple[dict[tuple[UUID, int], bool], datetime]:
    """Locks, in id order, those (execution, fence) that still are what runs; the value says "cancel requested".

    Also the database's time, which is of no meaning when none of them is.
    """
    rows = conn.execute(LOCK_CURRENT, [[one[0] for one in pairs], [one[1] for one in pairs]]).fetchall()
    now = max((row[3] for row in rows), default=datetime.max.replace(tzinfo=UTC))
    return {(row[0], row[1]): row[2] for row in rows}, now


def end(conn: Conn, pairs: Sequence[tuple[UUID, int]]) -> None:
    """Deletes tickets that were locked as current."""
    conn.execute(END, [[one[0] for one in pairs], [one[1] for one in pairs]])


def try_again(conn: Conn, rows: Sequence[tuple[UUID, int, datetime, int, str]]) -> None:
    """running -> ready at (execution, fence, available_at, failures, why), for tickets that were locked as current."""
    conn.execute(TRY_AGAIN, [list(column) for column in zip(*rows, strict=True)])


def cancel_waiting(conn: Conn, execution_id: UUID, *, tenant_id: int) -> tuple[Any, ...] | None:
    """Deletes a ticket that waits; its (attempt, first_queued_at, first_started_at), None when it does not wait."""
    return conn.execute(CANCEL_WAITING, [execution_id, tenant_id]).fetchone()


def cancel_running(conn: Conn, execution_id: UUID, *, tenant_id: int) -> bool:
    """Asks the worker to stop; False when it does not run."""
    return conn.execute(CANCEL_RUNNING, [execution_id, tenant_id]).fetchone() is not None


def lost(conn: Conn, *, limit: int, grace_s: float, after: UUID = NOTHING) -> list[Lost]:
    """Running tickets whose worker's lease has run out or whose deadline has passed.

    What is held outside has no worker: only its deadline counts, which is its lease or its time-out.

    In id order from `after` on. A database that has started within `grace_s` seconds was away itself: no lease could
    be renewed, so one that has run out says nothing yet.
    """
    rows = conn.execute(LOST, {"limit": limit, "grace": grace_s, "after": after})
    width = len(Started._fields)
    return [Lost(Started._make(row[:width]), *row[width:]) for row in rows]


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


def replace_waiting(conn: Conn, schedule_ids: Sequence[UUID], *, unguarded: bool = False) -> list[Replaced]:
    """Deletes the tickets of these schedules that wait; their executions are the caller's to end.

    `unguarded` includes runs that no overlap policy counts, and reads all tickets.
    """
    rows = conn.execute(REPLACE_WAITING, {"schedules": list(schedule_ids), "unguarded": unguarded})
    return [Replaced._make(row) for row in rows]


def cancel_running_of(conn: Conn, schedule_ids: Sequence[UUID]) -> int:
    """Asks the workers to stop the guarded runs of these schedules; returns how many."""
    return conn.execute(CANCEL_RUNNING_OF, [list(schedule_ids)]).rowcount


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


def lock(conn: Conn, ids: Sequence[UUID]) -> None:
    """Locks tickets in id order, whatever their state."""
    conn.execute(
        "SELECT 1 FROM tickets_ticket WHERE execution_id = ANY(%s) ORDER BY execution_id FOR UPDATE", [list(ids)]
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
