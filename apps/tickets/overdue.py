"""Tickets that waited past their `start_by`, found through a partial index of those that have one, in any pool."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg

from apps.tickets.values import Overdue

Conn = psycopg.Connection[Any]

# Looked for without a lock, then locked in id order; what starts meanwhile is passed over, whoever holds it. An array
# of ids is looked up by key; a join with them could read all tickets. No time passes for tenants that stand still.
_OVERDUE = """
    SELECT {columns} FROM tickets_ticket o WHERE start_by < %(now)s AND state IN ('ready', 'queued')
    AND tenant_id <> ALL(%(not_tenants)s::int[])
    AND NOT EXISTS (SELECT 1 FROM tenants_tenant s WHERE s.id = o.tenant_id AND s.status <> 'active')
    AND (%(only_tenants)s::int[] IS NULL OR tenant_id = ANY(%(only_tenants)s::int[]))
    ORDER BY start_by LIMIT %(limit)s"""
OVERDUE = f"SELECT DISTINCT tenant_id FROM ({_OVERDUE.format(columns='tenant_id')}) AS found"
EXPIRE = f"""
WITH found AS MATERIALIZED ({_OVERDUE.format(columns="execution_id")}), held AS MATERIALIZED (
    SELECT execution_id FROM tickets_ticket WHERE execution_id = ANY(ARRAY(SELECT execution_id FROM found))
    AND start_by < %(now)s AND state IN ('ready', 'queued') ORDER BY execution_id FOR UPDATE SKIP LOCKED)
DELETE FROM tickets_ticket t
WHERE t.execution_id = ANY(ARRAY(SELECT execution_id FROM held)) AND t.start_by < %(now)s
AND t.state IN ('ready', 'queued')
RETURNING {", ".join("t." + name for name in Overdue._fields)}
"""

ANY = "SELECT EXISTS (SELECT 1 FROM tickets_ticket WHERE start_by < %s AND state IN ('ready', 'queued'))"


def any_overdue(conn: Conn, *, now: datetime) -> bool:
    """Whether some ticket waited past its `start_by`, of any tenant: a look that costs next to nothing."""
    row = conn.execute(ANY, [now]).fetchone()
    return bool(row and row[0])


def tenants_of(conn: Conn, *, now: datetime, limit: int, not_tenants: Sequence[int] = ()) -> list[int]:
    """Tenants of the first so many tickets that waited for too long."""
    wanted = {"now": now, "limit": limit, "not_tenants": list(not_tenants), "only_tenants": None}
    return [row[0] for row in conn.execute(OVERDUE, wanted)]


def expire(
    conn: Conn, *, now: datetime, limit: int, not_tenants: Sequence[int] = (), only_tenants: Sequence[int] | None = None
) -> list[Overdue]:
    """Deletes tickets that waited past their `start_by`, the oldest first; their executions are the caller's to end."""
    wanted = {
        "now": now, "limit": limit, "not_tenants": list(not_tenants),
        "only_tenants": None if only_tenants is None else list(only_tenants),
    }  # fmt: skip
    return [Overdue._make(row) for row in conn.execute(EXPIRE, wanted)]
