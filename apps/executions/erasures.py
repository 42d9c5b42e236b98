"""Which executions were erased. What carries that out everywhere is above (`apps.archive.erasing`)."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from kernel.errors import Conflict
from tenants.statements import in_schema

Conn = psycopg.Connection[Any]


class Erased(NamedTuple):
    """An execution that was erased, or is to be where `done_at` is None."""

    execution_id: UUID
    asked_id: UUID
    at: datetime
    reason: str
    done_at: datetime | None


_COLUMNS = ", ".join(Erased._fields)
_ADD = """
INSERT INTO {schema}.executions_erasure (execution_id, asked_id, at, by, reason)
SELECT m.id, %s, %s, %s, %s FROM unnest(%s::uuid[]) AS m(id) ORDER BY m.id
ON CONFLICT (execution_id) DO NOTHING RETURNING execution_id
"""
_DONE = """
UPDATE {schema}.executions_erasure SET done_at = %s WHERE execution_id = ANY(%s) AND done_at IS NULL
"""


def add(
    conn: Conn, schema: str, ids: Collection[UUID], *, asked_id: UUID, at: datetime, by: str, reason: str
) -> list[UUID]:
    """Notes that these are to be erased; those that were not noted before."""
    rows = conn.execute(in_schema(_ADD, schema), [asked_id, at, by, reason, sorted(ids)])
    return sorted(row[0] for row in rows)


def done(conn: Conn, schema: str, ids: Collection[UUID], *, at: datetime) -> None:
    """Nothing is left of these anywhere."""
    conn.execute(in_schema(_DONE, schema), [at, sorted(ids)])


def of(conn: Conn, schema: str, ids: Collection[UUID]) -> dict[UUID, Erased]:
    """Those of these that were erased, by their ids."""
    query = f"SELECT {_COLUMNS} FROM {{schema}}.executions_erasure WHERE execution_id = ANY(%s)"
    return {row[0]: Erased._make(row) for row in conn.execute(in_schema(query, schema), [list(ids)])}


def asked(conn: Conn, schema: str, asked_id: UUID) -> list[Erased]:
    """What one request erases, in the order of the ids."""
    query = f"SELECT {_COLUMNS} FROM {{schema}}.executions_erasure WHERE asked_id = %s ORDER BY execution_id"
    return [Erased._make(row) for row in conn.execute(in_schema(query, schema), [asked_id])]


def undone(conn: Conn, schema: str, *, after: UUID, limit: int) -> Sequence[Erased]:
    """The next that are not through, in the order of the ids."""
    query = f"""
        SELECT {_COLUMNS} FROM {{schema}}.executions_erasure
        WHERE done_at IS NULL AND execution_id > %s ORDER BY execution_id LIMIT %s
    """
    return [Erased._make(row) for row in conn.execute(in_schema(query, schema), [after, limit])]


def refuse_erased(conn: Conn, schema: str, ids: Collection[UUID]) -> None:
    """Conflict when one of these was erased: what it would run again with is gone."""
    found = of(conn, schema, ids)
    if found:
        raise Conflict(f"Execution {min(found)} was erased; there is nothing left to run again.", code="erased")
