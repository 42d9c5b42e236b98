"""Pull queues in SQL: that there is one, whether it is paused, who asks it for work, and what waits in it."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from apps.tickets.store import notify_pull

Conn = psycopg.Connection[Any]
SEEN_STEP_S = 10
CONSUMER_KEPT_S = 3_600
CONSUMERS_MAX = 200  # of one queue; more are not noted

_SEEN = f"""
INSERT INTO tickets_consumer (tenant_id, queue, name, seen_at)
SELECT %(tenant)s, %(queue)s, %(name)s, clock_timestamp()
WHERE EXISTS (SELECT 1 FROM tickets_consumer WHERE tenant_id = %(tenant)s AND queue = %(queue)s AND name = %(name)s)
   OR (SELECT count(*) FROM tickets_consumer WHERE tenant_id = %(tenant)s AND queue = %(queue)s) < {CONSUMERS_MAX}
ON CONFLICT (tenant_id, queue, name) DO UPDATE SET seen_at = excluded.seen_at
WHERE tickets_consumer.seen_at < excluded.seen_at - interval '{SEEN_STEP_S} seconds'
"""

_READ = """
SELECT q.name, q.created_at, q.paused_at, q.paused_reason,
       coalesce(d.ready, 0), coalesce(d.running, 0), coalesce(d.blocked, 0), d.oldest
FROM tickets_pullqueue q LEFT JOIN (
    SELECT queue, count(*) FILTER (WHERE state = 'ready') AS ready,
           count(*) FILTER (WHERE state = 'running') AS running,
           count(*) FILTER (WHERE state = 'blocked') AS blocked,
           min(available_at) FILTER (WHERE state = 'ready' AND available_at <= clock_timestamp()) AS oldest
    FROM tickets_ticket
    WHERE pool = 'pull' AND tenant_id = %(tenant)s AND (%(name)s::text IS NULL OR queue = %(name)s) GROUP BY queue) d
  ON d.queue = q.name
WHERE q.tenant_id = %(tenant)s AND (%(name)s::text IS NULL OR q.name = %(name)s)
ORDER BY q.name
"""

_WAITED_FOR = """
SELECT m.tenant_id, m.queue FROM unnest(%s::int[], %s::text[]) AS m(tenant_id, queue)
WHERE EXISTS (SELECT 1 FROM tickets_ticket t WHERE t.pool = 'pull' AND t.tenant_id = m.tenant_id AND t.queue = m.queue
                 AND t.state = 'ready' AND t.rank IS NOT NULL)
   OR EXISTS (SELECT 1 FROM tickets_ticket t WHERE t.pool = 'pull' AND t.tenant_id = m.tenant_id AND t.queue = m.queue
                 AND t.state = 'ready' AND t.rank IS NULL AND t.available_at <= clock_timestamp())
"""


class Admission(NamedTuple):
    """What decides whether a tenant's queue gives anything out now."""

    active: bool
    max_running: int | None
    max_runs_per_min: int | None
    runs_burst: int | None
    known: bool
    paused: bool


class QueueRow(NamedTuple):
    """A queue and what is in it. `oldest` is since when the oldest of those that could start has waited."""

    name: str
    created_at: datetime
    paused_at: datetime | None
    paused_reason: str
    ready: int
    running: int
    blocked: int
    oldest: datetime | None


class ConsumerRow(NamedTuple):
    """Who asked a queue for work."""

    queue: str
    name: str
    seen_at: datetime


_LOCK = """
SELECT t.status = 'active' AND NOT t.dispatch_paused AND NOT EXISTS (
           SELECT 1 FROM tenants_dispatchpause z
           WHERE z.pool IN ('', 'pull') AND (z.tenant_id IS NULL OR z.tenant_id = t.id)),
       p.max_running, p.max_runs_per_min, p.runs_burst
FROM tenants_tenant t JOIN tenants_plan p ON p.id = t.plan_id WHERE t.id = %s FOR NO KEY UPDATE OF t
"""


def put(conn: Conn, *, tenant_id: int, name: str, now: datetime) -> None:
    """Makes the queue known; nothing happens when it is."""
    conn.execute(
        "INSERT INTO tickets_pullqueue (tenant_id, name, created_at, paused_reason) VALUES (%s, %s, %s, '')"
        " ON CONFLICT DO NOTHING",
        [tenant_id, name, now],
    )


def lock_tenant(conn: Conn, *, tenant_id: int, queue: str) -> Admission | None:
    """Until the transaction ends nobody else admits work of this tenant from a pull queue; None when it is gone.

    The tenant's row, as release does for tenants with a limit: the one lock serves both.
    """
    locked = conn.execute(_LOCK, [tenant_id]).fetchone()
    if locked is None:
        return None
    found = conn.execute(
        "SELECT paused_at IS NOT NULL FROM tickets_pullqueue WHERE tenant_id = %s AND name = %s", [tenant_id, queue]
    ).fetchone()
    return Admission._make((*locked, found is not None, bool(found and found[0])))


def known(conn: Conn, *, tenant_id: int, name: str) -> bool:
    """Whether the tenant has this queue."""
    if "\0" in name:  # PostgreSQL has no such text
        return False
    query = "SELECT 1 FROM tickets_pullqueue WHERE tenant_id = %s AND name = %s"
    return conn.execute(query, [tenant_id, name]).fetchone() is not None


def pause(conn: Conn, *, tenant_id: int, name: str, now: datetime | None, reason: str) -> bool | None:
    """Pauses the queue, or resumes it when `now` is None. False when it was so already, None when there is none."""
    if not known(conn, tenant_id=tenant_id, name=name):
        return None
    changed = conn.execute(
        "UPDATE tickets_pullqueue SET paused_at = %(now)s, paused_reason = %(reason)s"
        " WHERE tenant_id = %(tenant)s AND name = %(name)s AND (paused_at IS NULL) <> (%(now)s::timestamptz IS NULL)",
        {"now": now, "reason": reason, "tenant": tenant_id, "name": name},
    )
    return changed.rowcount > 0


def seen(conn: Conn, *, tenant_id: int, queue: str, name: str) -> None:
    """Notes that a consumer asked for work, to some seconds."""
    conn.execute(_SEEN, {"tenant": tenant_id, "queue": queue, "name": name})


def read(conn: Conn, *, tenant_id: int, name: str | None = None) -> list[QueueRow]:
    """The tenant's queues with what is in them, by name; or this one."""
    if name is not None and "\0" in name:
        return []
    return [QueueRow._make(row) for row in conn.execute(_READ, {"tenant": tenant_id, "name": name})]


def consumers(conn: Conn, *, tenant_id: int) -> list[ConsumerRow]:
    """Who asked for work within the last hour, the latest first."""
    rows = conn.execute(
        "SELECT queue, name, seen_at FROM tickets_consumer WHERE tenant_id = %s"
        " AND seen_at > clock_timestamp() - %s * interval '1 second' ORDER BY seen_at DESC",
        [tenant_id, CONSUMER_KEPT_S],
    )
    return [ConsumerRow._make(row) for row in rows]


def forget_consumers(conn: Conn) -> int:
    """Removes those that have not asked for an hour."""
    return conn.execute(
        "DELETE FROM tickets_consumer WHERE seen_at < clock_timestamp() - %s * interval '1 second'", [CONSUMER_KEPT_S]
    ).rowcount


def with_something(conn: Conn, queues: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """Of these (tenant, queue) those in which something is ready, whether or not it may go."""
    asked: Sequence[tuple[int, str]] = list(queues)
    return conn.execute(_WAITED_FOR, [[one[0] for one in asked], [one[1] for one in asked]]).fetchall()


def notify(conn: Conn, *, tenant_id: int, name: str) -> None:
    """Tells those who wait at the queue, when this transaction commits, to look."""
    notify_pull(conn, [(tenant_id, name)])
