"""Tickets of executions that wait for others to end, in SQL; and the mark of those whose end somebody waits for."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.tickets.store import AGING, LOCK_ORDER, notify_pull, notify_ready
from kernel.pools import PULL

Conn = psycopg.Connection[Any]

_FOLLOW = f"""
WITH live AS (
    SELECT execution_id FROM tickets_ticket WHERE execution_id = ANY(%(ids)s) AND tenant_id = %(tenant)s
    ORDER BY {LOCK_ORDER} FOR UPDATE)
UPDATE tickets_ticket t SET followed = true FROM live WHERE t.execution_id = live.execution_id
RETURNING t.execution_id
"""

_LOCK = """
SELECT execution_id FROM tickets_ticket WHERE execution_id = ANY(%s) AND state = 'blocked'
ORDER BY execution_id FOR UPDATE
"""

# It became due when it could start: its queue age and its place in line count from then.
_UNBLOCK = """
UPDATE tickets_ticket
SET state = 'ready', available_at = greatest(available_at, %(now)s), actual_at = greatest(actual_at, %(now)s),
    start_by = start_by + (greatest(actual_at, %(now)s) - actual_at),
    rank = CASE WHEN available_at <= %(now)s THEN %(now)s - priority * %(aging)s::interval END
WHERE execution_id = ANY(%(ids)s) AND state = 'blocked'
RETURNING execution_id, tenant_id, pool, queue, actual_at
"""

_END = """
DELETE FROM tickets_ticket WHERE execution_id = ANY(%s) AND state = 'blocked' RETURNING execution_id
"""

_BLOCKED = """
SELECT execution_id FROM tickets_ticket WHERE tenant_id = %s AND state = 'blocked' AND execution_id > %s
ORDER BY execution_id LIMIT %s
"""


class Unblocked(NamedTuple):
    """An execution that may start now, or at its own time where that is later."""

    execution_id: UUID
    tenant_id: int
    pool: str
    queue: str
    actual_at: datetime


def follow(conn: Conn, ids: Collection[UUID], *, tenant_id: int) -> list[UUID]:
    """Locks these live tickets and marks that somebody waits for their end; returns those that there are."""
    return [row[0] for row in conn.execute(_FOLLOW, {"ids": list(ids), "tenant": tenant_id})]


def lock(conn: Conn, ids: Sequence[UUID]) -> list[UUID]:
    """Locks those of these tickets that are blocked, in id order."""
    return [row[0] for row in conn.execute(_LOCK, [list(ids)])]


def unblock(conn: Conn, ids: Sequence[UUID], *, now: datetime) -> list[Unblocked]:
    """blocked -> ready, and wakes who waits for them; returns those that went."""
    found = [Unblocked._make(row) for row in conn.execute(_UNBLOCK, {"ids": list(ids), "now": now, "aging": AGING})]
    notify_pull(conn, {(one.tenant_id, one.queue) for one in found if one.pool == PULL})
    notify_ready(conn, {one.pool for one in found})
    return found


def end(conn: Conn, ids: Sequence[UUID]) -> list[UUID]:
    """Deletes tickets that are blocked; their executions are the caller's to end. Returns those that there were."""
    return [row[0] for row in conn.execute(_END, [list(ids)])]


def of_tenant(conn: Conn, tenant_id: int, *, after: UUID, limit: int) -> list[UUID]:
    """Executions of a tenant that wait for others, in id order, later than `after`."""
    return [row[0] for row in conn.execute(_BLOCKED, [tenant_id, after, limit])]
