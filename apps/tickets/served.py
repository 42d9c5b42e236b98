"""Queues and who listens to them: tickets that wait where nobody does, and queues that everybody has left.

As in `store`: one statement a transition, in the connection's current transaction.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.tickets.values import LANES
from kernel.pools import CELERY_POOLS, SYSTEM_QUEUE

Conn = psycopg.Connection[Any]

# Their messages mean nothing any more, wherever those are: the next release has another number. They keep their place
# in the order, and it was no release that counts for the back-off.
PUT_BACK = """
WITH found AS MATERIALIZED (
    SELECT execution_id FROM tickets_ticket WHERE state = 'queued' AND pool = %(pool)s AND queue <> ALL(%(served)s)
    ORDER BY queued_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE tickets_ticket t SET state = 'ready', releases = greatest(releases - 1, 0)
FROM found WHERE t.execution_id = found.execution_id AND t.state = 'queued' RETURNING t.execution_id
"""

_LISTENED = "SELECT DISTINCT unnest(queues) AS name FROM tickets_worker WHERE expires_at > clock_timestamp()"

REMEMBER = f"""
INSERT INTO tickets_brokerqueue (name, pool)
SELECT name, %(pool)s::text FROM ({_LISTENED}) AS listened
WHERE name LIKE %(pool)s::text || '.%%' AND name <> %(system)s
ON CONFLICT DO NOTHING
"""

LEFT = f"""
SELECT q.name FROM tickets_brokerqueue q
WHERE q.pool = %(pool)s AND q.name NOT IN ({_LISTENED})
  AND NOT EXISTS (SELECT 1 FROM tickets_ticket t WHERE t.state = 'queued' AND t.queue = q.name)
ORDER BY q.name LIMIT %(limit)s
"""

# Jumps from tenant to tenant, so that what a tenant has ready costs one look, however much it is.
WAITING = """
SELECT p.pool, t.id FROM tenants_tenant t CROSS JOIN unnest(%(pools)s::text[]) AS p(pool)
WHERE EXISTS (SELECT 1 FROM tickets_ticket k WHERE k.pool = p.pool AND k.tenant_id = t.id AND k.lane = ANY(%(lanes)s)
              AND k.state = 'ready' AND k.rank IS NOT NULL)
"""

HELD = """
SELECT queue, count(*) FILTER (WHERE state = 'queued'), count(*) FILTER (WHERE state = 'running')
FROM tickets_ticket WHERE pool = ANY(%(pools)s) AND state IN ('queued', 'running') AND NOT remote GROUP BY 1
"""


class LiveProcess(NamedTuple):
    """A worker process whose lease is valid."""

    id: UUID
    group: str
    host: str
    pid: int
    slots: dict[str, int]
    queues: list[str]
    draining: bool


def put_back(conn: Conn, pool: str, *, served: Collection[str], limit: int) -> list[UUID]:
    """queued -> ready for what waits on a queue that no live worker listens to. The caller holds the pool's lease."""
    rows = conn.execute(PUT_BACK, {"pool": pool, "served": sorted(served), "limit": limit})
    return [row[0] for row in rows]


def remember(conn: Conn, pool: str) -> None:
    """Notes the queues of a pool that workers listen to now."""
    conn.execute(REMEMBER, {"pool": pool, "system": SYSTEM_QUEUE})


def left(conn: Conn, pool: str, *, limit: int) -> list[str]:
    """Queues of a pool that nobody listens to any more and on which nothing is queued."""
    return [row[0] for row in conn.execute(LEFT, {"pool": pool, "limit": limit})]


def forget(conn: Conn, names: Sequence[str]) -> None:
    """These queues are gone from the broker."""
    conn.execute("DELETE FROM tickets_brokerqueue WHERE name = ANY(%s)", [list(names)])


def processes(conn: Conn) -> list[LiveProcess]:
    """All workers whose lease is valid."""
    rows = conn.execute(
        'SELECT id, "group", host, pid, slots, queues, draining FROM tickets_worker'
        ' WHERE expires_at > clock_timestamp() ORDER BY "group", host, pid'
    )
    return [LiveProcess._make(row) for row in rows]


def held(conn: Conn) -> dict[str, tuple[int, int]]:
    """(queued, running) of each queue that has some."""
    return {row[0]: (row[1], row[2]) for row in conn.execute(HELD, {"pools": list(CELERY_POOLS)})}


def waiting(conn: Conn) -> list[tuple[str, int]]:
    """(pool, tenant) that have something ready for our workers."""
    return conn.execute(WAITING, {"pools": list(CELERY_POOLS), "lanes": list(LANES)}).fetchall()
