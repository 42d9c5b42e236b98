"""Which tenant an id is of, and what it is an id of."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from kernel.ids import made_at
from tenants import door

Conn = psycopg.Connection[Any]
SCHEMAS = 50  # tenants that are looked into at a time: the server plans each of their tables anew
STATEMENT_MS = 2_000
AROUND = timedelta(minutes=1)  # ids carry the clock of the process that made them
STEPS = (60, 3_600, 86_400)  # seconds of a roll-up row; the shortest that is kept for so long is asked

# What a row of the trail is about -> what it is. The trail is asked last: its rows say what was, not what is.
IN_TRAIL = {
    "schedule": "schedule", "job": "job", "workflow": "job", "execution": "execution", "workflow_run": "execution",
    "operation": "operation", "dead_letter": "deadletter", "calendar": "calendar", "webhook": "webhook",
}  # fmt: skip
_SHARED = """
SELECT kind, tenant_id FROM (
    SELECT 1 AS rank, 'execution' AS kind, tenant_id FROM tickets_ticket WHERE execution_id = %(id)s
    UNION ALL SELECT 2, kind, tenant_id FROM due_dueentry WHERE key = %(id)s
    UNION ALL SELECT 3, CASE action WHEN 'backfill' THEN action ELSE 'operation' END, tenant_id
              FROM due_operationoutline WHERE operation_id = %(id)s
    UNION ALL SELECT 4, 'worker', NULL FROM tickets_worker WHERE id = %(id)s
    UNION ALL SELECT 5, 'dispatcher', NULL FROM due_dispatcher WHERE id = %(id)s
    UNION ALL SELECT 6, 'member', tenant_id FROM tenants_member WHERE uid = %(id)s
    UNION ALL (SELECT 7, object_type, tenant_id FROM audit_auditevent
               WHERE object_id = %(text)s AND object_type = ANY(%(types)s) ORDER BY id LIMIT 1)
) found ORDER BY rank LIMIT 1
"""
# Tenants that had runs then, in the order of their ids, from `after` on.
_ACTIVE = """
SELECT t.id, t.schema_name FROM (
    SELECT DISTINCT tenant_id FROM usage_rollup
    WHERE step_s = %(step)s AND starts_at >= %(from)s AND starts_at <= %(to)s AND tenant_id > %(after)s
) active JOIN tenants_tenant t ON t.id = active.tenant_id WHERE t.status <> 'deleting' ORDER BY t.id LIMIT %(limit)s
"""
_HISTORY = {
    "execution": "executions_execution",
    "deadletter": "deadletters_deadletter",
    "attempt": "executions_attempt",
}
_ALL = {
    **_HISTORY, "schedule": "schedules_schedule", "job": "schedules_job", "operation": "operations_operation",
    "calendar": "schedules_calendar", "webhook": "webhooks_webhook",
}  # fmt: skip


class Place(NamedTuple):
    """What an id is of. `tenant_id` is None of what is no tenant's."""

    kind: str
    tenant_id: int | None


class TooSlow(Exception):
    """The histories could not be looked into now."""


class Looked(NamedTuple):
    """`after` is the tenant from which on others are still to be looked into; None: there are none."""

    place: Place | None
    tenants: int
    after: int | None


def in_shared(conn: Conn, key: UUID) -> Place | None:
    """What the shared tables know of an id: one statement, each part of it by an index."""
    row = conn.execute(_SHARED, {"id": key, "text": str(key), "types": list(IN_TRAIL)}).fetchone()
    return Place(IN_TRAIL.get(row[0], row[0]), row[1]) if row else None


def in_history(conn: Conn, key: UUID, *, now: datetime, after: int = 0) -> Looked:
    """Looks for what has ended, in up to SCHEMAS tenants that had runs when the id was made. TooSlow."""
    if key.version != 7 or key.int >> 80 > (now + AROUND).timestamp() * 1_000:
        return Looked(None, 0, None)
    made = made_at(key)
    active = _active(conn, made, after)
    some = active[:SCHEMAS]
    place = _look(some, key, _HISTORY) if some else None
    return Looked(place, len(some), some[-1][0] if len(active) > SCHEMAS and place is None else None)


def in_tenant(tenant_id: int, schema: str, key: UUID) -> Place | None:
    """Looks for anything in one tenant. TooSlow."""
    return _look([(tenant_id, schema)], key, _ALL)


def _active(conn: Conn, made: datetime, after: int) -> list[tuple[int, str]]:
    for step_s in STEPS:
        wanted = {
            "step": step_s, "from": made - AROUND - timedelta(seconds=step_s), "to": made + AROUND, "after": after,
            "limit": SCHEMAS + 1,
        }  # fmt: skip
        if rows := conn.execute(_ACTIVE, wanted).fetchall():
            return rows
    return []


def _look(tenants: Sequence[tuple[int, str]], key: UUID, tables: dict[str, str]) -> Place | None:
    """One statement on a connection that is closed afterwards: the server's process would remember each table."""
    selects = [
        sql.SQL("(SELECT {kind}, {tenant}::int FROM {table} WHERE id = %(id)s)").format(
            kind=sql.Literal(kind), tenant=sql.Literal(tenant_id), table=sql.Identifier(schema, table)
        )
        for tenant_id, schema in tenants
        for kind, table in tables.items()
    ]
    wanted = sql.SQL(" UNION ALL ").join(selects) + sql.SQL(" LIMIT 1")
    try:
        with door.connect("find") as conn:
            conn.execute(f"SET statement_timeout = {STATEMENT_MS}")
            row = conn.execute(wanted, {"id": key}).fetchone()
    except (psycopg.errors.QueryCanceled, psycopg.errors.UndefinedTable) as error:  # a tenant is just being deleted
        raise TooSlow from error
    return Place(row[0], row[1]) if row else None
