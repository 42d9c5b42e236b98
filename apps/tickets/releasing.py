"""From waiting to queued: what is ready, what is taken already, and the marking under a new release number.

As in `store`: one statement a transition, in the connection's current transaction.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
import psycopg

from apps.tickets.store import AGING, notify_pull, notify_ready
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

RELEASE = """
UPDATE tickets_ticket t SET state = 'queued', release = %(release)s, releases = releases + 1, queued_at = %(now)s,
       first_queued_at = coalesce(first_queued_at, %(now)s){delays}
WHERE execution_id = ANY(%(ids)s) AND state = 'ready' AND (start_by IS NULL OR start_by >= %(now)s)
RETURNING t.execution_id
"""
RELEASE_LATE = RELEASE.format(delays=", delays = coalesce(t.delays, %(delays)s::jsonb->>t.execution_id::text)")
RELEASE = RELEASE.format(delays="")

# Queued for too long: its message is lost or its worker is gone. Waits longer each time, at most five minutes.
RELEASE_AGAIN = """
WITH found AS MATERIALIZED (
    SELECT execution_id FROM tickets_ticket WHERE state = 'queued' AND queued_at < %(before)s AND pool = ANY(%(pools)s)
    ORDER BY queued_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE tickets_ticket t SET state = 'ready', rank = NULL,
       available_at = %(now)s + least(300, %(step)s * (2 ^ least(releases - 1, 8) - 1)) * interval '1 second'
WHERE t.execution_id = ANY(ARRAY(SELECT execution_id FROM found)) AND t.state = 'queued' RETURNING t.execution_id
"""


def promote(conn: Conn, *, now: datetime, limit: int, pool: str = "") -> int:
    """Ranks tickets whose time has come, of all pools, and tells who serves another one; returns how many."""
    parameters = {"now": now, "aging": AGING, "limit": limit}
    rows = conn.execute(PROMOTE, parameters).fetchall()
    notify_pull(conn, ((tenant_id, queue) for its, tenant_id, queue in rows if its == PULL))
    notify_ready(conn, {row[0] for row in rows} - {pool})
    return len(rows)


def move_to_queue(conn: Conn, ids: Sequence[UUID], queue: str) -> None:
    """Their tenant's queue is another one now than when these were made."""
    conn.execute("UPDATE tickets_ticket SET queue = %s WHERE execution_id = ANY(%s)", [queue, list(ids)])


def next_release(conn: Conn) -> int:
    """A release number that was never used."""
    row = ask_next_release(conn).fetchone()
    assert row is not None
    return int(row[0])


def ask_next_release(conn: Conn) -> psycopg.Cursor[tuple[int]]:
    """The same for a pipeline."""
    return conn.execute("SELECT nextval('ticket_release')")


def release(
    conn: Conn, ids: Sequence[UUID], *, release: int, now: datetime, delays: Mapping[UUID, str] | None = None
) -> list[UUID]:
    """ready -> queued under this release number, unless it is too late for it; returns the ids that went.

    `delays` is what held those back that are late, as JSON.
    """
    given: dict[str, Any] = {"ids": list(ids), "release": release, "now": now}
    if delays:
        given["delays"] = orjson.dumps({str(one): told for one, told in delays.items()}).decode()
    return [row[0] for row in conn.execute(RELEASE_LATE if delays else RELEASE, given)]


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
