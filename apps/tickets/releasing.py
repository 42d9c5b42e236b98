"""From waiting to queued: what is ready, what is taken already, and the marking under a new release number.

As in `store`: one statement a transition, in the connection's current transaction.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from apps.tickets.store import AGING, notify_pull
from apps.tickets.values import Candidate, Flow
from kernel.pools import PULL

Conn = psycopg.Connection[Any]


# Rows are found and locked in a materialised step: a sub-select may be run again for every outer row, and then the
# limit does not hold. They are changed by an array of their ids, which is looked up by key: for a join with so many
# rows the planner reads all tickets, whenever there are many, and there are none to change most of the time.
PROMOTE = """
WITH found AS MATERIALIZED (
    SELECT execution_id FROM tickets_ticket WHERE state = 'ready' AND rank IS NULL AND available_at <= %(now)s
    ORDER BY available_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE tickets_ticket t SET rank = available_at - priority * %(aging)s
WHERE t.execution_id = ANY(ARRAY(SELECT execution_id FROM found)) RETURNING t.pool, t.tenant_id, t.queue
"""

# In the index's order, so that no plan reads the table: statistics of a queue are always old, and while they say that
# many rows fit, a look at an empty pool without an order reads all tickets, each time that it is woken.
ANY_READY = """
SELECT 1 FROM tickets_ticket WHERE pool = %(pool)s AND state = 'ready' AND rank IS NOT NULL
ORDER BY lane, tenant_id, flow LIMIT 1
"""

FLOWS = """
WITH RECURSIVE flow AS (
    (SELECT tenant_id, flow, job_id, flow_limit, job_limit, lane FROM tickets_ticket
     WHERE pool = %(pool)s AND state = 'ready' AND rank IS NOT NULL ORDER BY lane, tenant_id, flow LIMIT 1)
    UNION ALL
    SELECT n.* FROM flow f CROSS JOIN LATERAL (
        SELECT tenant_id, flow, job_id, flow_limit, job_limit, lane FROM tickets_ticket
        WHERE pool = %(pool)s AND state = 'ready' AND rank IS NOT NULL
          AND (lane, tenant_id, flow) > (f.lane, f.tenant_id, f.flow)
        ORDER BY lane, tenant_id, flow LIMIT 1) n
) SELECT * FROM flow
"""

# Runs of serial schedules that have one queued or running are left out: at the head of a flow they would hide the rest.

CANDIDATES = """
SELECT c.* FROM unnest(%(tenants)s::int[], %(lanes)s::smallint[], %(flows)s::uuid[], %(limits)s::int[])
    AS f(tenant_id, lane, flow, most)
CROSS JOIN LATERAL (
    SELECT execution_id, tenant_id, flow, job_id, flow_limit, job_limit, queue, rank, actual_at,
           CASE WHEN guarded THEN schedule_id END, first_queued_at IS NULL
    FROM tickets_ticket t
    WHERE pool = %(pool)s AND lane = f.lane AND tenant_id = f.tenant_id AND flow = f.flow AND state = 'ready'
      AND rank IS NOT NULL AND (start_by IS NULL OR start_by >= %(now)s)
      AND NOT (guarded AND EXISTS (
          SELECT 1 FROM tickets_ticket b
          WHERE b.guarded AND b.schedule_id = t.schedule_id AND b.state IN ('queued', 'running')))
    ORDER BY rank LIMIT f.most FOR UPDATE SKIP LOCKED) c
"""

TAKEN = """
SELECT tenant_id, queue, flow, job_id, count(*), 0
FROM tickets_ticket WHERE pool = %(pool)s AND state = 'queued' GROUP BY 1, 2, 3, 4
UNION ALL
SELECT tenant_id, queue, flow, job_id, count(*), count(*)
FROM tickets_ticket WHERE pool = %(pool)s AND state = 'running' AND NOT remote GROUP BY 1, 2, 3, 4
UNION ALL
SELECT tenant_id, '', flow, job_id, count(*), 0
FROM tickets_ticket WHERE pool = %(pool)s AND state = 'running' AND remote GROUP BY 1, 3, 4
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
WHERE t.execution_id = ANY(ARRAY(SELECT execution_id FROM found)) AND t.state = 'queued' RETURNING t.execution_id
"""


def promote(conn: Conn, *, now: datetime, limit: int) -> int:
    """Ranks tickets whose time has come; returns how many."""
    parameters = {"now": now, "aging": AGING, "limit": limit}
    rows = conn.execute(PROMOTE, parameters).fetchall()
    notify_pull(conn, ((tenant_id, queue) for pool, tenant_id, queue in rows if pool == PULL))
    return len(rows)


def any_ready(conn: Conn, pool: str) -> bool:
    """Whether there is anything to release."""
    return conn.execute(ANY_READY, {"pool": pool}).fetchone() is not None


def flows(conn: Conn, pool: str) -> list[Flow]:
    """Who has something ready, by jumping from flow to flow in the index."""
    return [Flow._make(row) for row in conn.execute(FLOWS, {"pool": pool})]


def taken(conn: Conn, pool: str) -> list[tuple[int, str, UUID, UUID, int, int]]:
    """(tenant, queue, flow, job, count, running of these) of what is queued or running; outside is no queue, ""."""
    return conn.execute(TAKEN, {"pool": pool}).fetchall()


def candidates(conn: Conn, pool: str, wanted: Sequence[tuple[Flow, int]], *, now: datetime) -> list[Candidate]:
    """Locks up to so many of the best ready tickets of each flow; those that waited for too long are left out."""
    rows = conn.execute(
        CANDIDATES,
        {
            "pool": pool, "tenants": [flow.tenant_id for flow, _ in wanted], "flows": [flow.flow for flow, _ in wanted],
            "lanes": [flow.lane for flow, _ in wanted], "limits": [most for _, most in wanted], "now": now,
        },
    )  # fmt: skip
    return [Candidate._make(row) for row in rows]


def held_by_tenants(conn: Conn, tenant_ids: Sequence[int]) -> dict[int, int]:
    """How much of these tenants is queued or running, over all pools. The caller holds their rows (`lock_tenants`)."""
    ids = sorted(tenant_ids)
    rows = conn.execute(
        "SELECT tenant_id, count(*) FROM tickets_ticket"
        " WHERE state IN ('queued', 'running') AND tenant_id = ANY(%s) GROUP BY 1",
        [ids],
    )
    return {**dict.fromkeys(ids, 0), **{row[0]: row[1] for row in rows}}


def lock_tenants(conn: Conn, tenant_ids: Collection[int]) -> None:
    """Until the transaction ends nobody else admits work of these tenants; for those with a limit of runs, at once."""
    conn.execute("SELECT 1 FROM tenants_tenant WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", [sorted(tenant_ids)])


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
