"""Worker leases in SQL: one row a process, renewed by one statement whatever it runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg
from psycopg.rows import args_row

from apps.tickets.values import LiveWorker

Conn = psycopg.Connection[Any]


class Beat(NamedTuple):
    """What a heartbeat tells: the database's time, and whether operators told the process to stand back."""

    now: datetime
    drain_wanted: bool


RENEW = """
INSERT INTO tickets_worker
    (id, host, pid, version, pools, slots, queues, started_at, expires_at, draining, skew_ms, stats, "group")
VALUES (%(id)s, %(host)s, %(pid)s, %(version)s, %(pools)s, %(slots)s::jsonb, %(queues)s, clock_timestamp(),
        clock_timestamp() + %(ttl)s * interval '1 second', %(draining)s, %(skew_ms)s, %(stats)s::jsonb, %(group)s)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, slots = excluded.slots, queues = excluded.queues,
       draining = excluded.draining OR tickets_worker.drain_wanted, "group" = excluded."group",
       skew_ms = excluded.skew_ms, stats = excluded.stats
RETURNING clock_timestamp(), drain_wanted
"""

LIVE = """
SELECT id, (slots->>%(pool)s)::int, queues, "group" FROM tickets_worker
WHERE expires_at > clock_timestamp() AND NOT draining AND %(pool)s = ANY(pools)
"""


def renew(
    conn: Conn, *, worker: UUID, host: str, pid: int, version: str, slots: Mapping[str, int], queues: Sequence[str],
    ttl_s: float, draining: bool, skew_ms: int, stats: Mapping[str, Any], group: str = "",
) -> Beat:  # fmt: skip
    """Extends the process's lease."""
    row = conn.execute(
        RENEW,
        {
            "id": worker, "host": host, "pid": pid, "version": version, "pools": sorted(slots),
            "slots": orjson.dumps(slots).decode(), "queues": list(queues), "ttl": ttl_s, "draining": draining,
            "skew_ms": skew_ms, "stats": orjson.dumps(stats).decode(), "group": group,
        },
    ).fetchone()  # fmt: skip
    assert row is not None
    return Beat._make(row)


def drain(conn: Conn, worker: UUID, *, wanted: bool) -> bool:
    """Tells a worker to stand back, or to take work again; False when it is gone or was told so already.

    Release hands it nothing more from now on. With its next heartbeat it stops listening; what it runs goes on.
    """
    query = (
        "UPDATE tickets_worker SET drain_wanted = %s, draining = draining OR %s"
        " WHERE id = %s AND drain_wanted <> %s AND expires_at > clock_timestamp()"
    )
    return conn.execute(query, [wanted, wanted, worker, wanted]).rowcount > 0


def live(conn: Conn, pool: str) -> list[LiveWorker]:
    """Workers that serve a pool now."""
    return ask_live(conn, pool).fetchall()


def ask_live(conn: Conn, pool: str) -> psycopg.Cursor[LiveWorker]:
    """The same for a pipeline."""
    return conn.cursor(row_factory=args_row(LiveWorker)).execute(LIVE, {"pool": pool})


def remove(conn: Conn, worker: UUID) -> None:
    """The process has ended in order; what it still held comes back as lost at once."""
    conn.execute("DELETE FROM tickets_worker WHERE id = %s", [worker])


def held_by(conn: Conn, worker: UUID) -> dict[tuple[UUID, int], float]:
    """(execution, fence) that the database says this worker runs, and the seconds left to the deadline."""
    rows = conn.execute(
        "SELECT execution_id, fence, extract(epoch FROM deadline - clock_timestamp())::float8 FROM tickets_ticket"
        " WHERE worker_id = %s AND state = 'running'",
        [worker],
    )
    return {(row[0], row[1]): row[2] for row in rows}


def cancelled_of(conn: Conn, worker: UUID) -> list[tuple[UUID, int]]:
    """(execution, fence) of this worker that somebody asked to cancel."""
    return conn.execute(
        "SELECT execution_id, fence FROM tickets_ticket"
        " WHERE worker_id = %s AND cancel_requested AND state = 'running'",
        [worker],
    ).fetchall()


def prune(conn: Conn, *, older_than_s: float) -> int:
    """Removes rows of workers that ended long ago without a word."""
    return conn.execute(
        "DELETE FROM tickets_worker WHERE expires_at < clock_timestamp() - %s * interval '1 second'", [older_than_s]
    ).rowcount
