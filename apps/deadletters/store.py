"""Dead letters in SQL."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

Conn = psycopg.Connection[Any]


class Letter(NamedTuple):
    """A new dead letter; `error` is JSON text."""

    id: UUID
    execution_id: UUID
    job_id: UUID
    schedule_id: UUID | None
    fingerprint: str
    error: str
    attempts: int
    created_at: datetime


_ADD = """
INSERT INTO {schema}.deadletters_deadletter
    (id, execution_id, job_id, schedule_id, fingerprint, error, attempts, created_at, resolution, note, resolved_by)
SELECT m.id, m.execution_id, m.job_id, m.schedule_id, m.fingerprint, m.error::jsonb, m.attempts, m.created_at,
       '', '', ''
FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[], %s::uuid[], %s::text[], %s::text[], %s::int[], %s::timestamptz[])
     AS m(id, execution_id, job_id, schedule_id, fingerprint, error, attempts, created_at)
ON CONFLICT DO NOTHING
"""

_RESOLVE = """
UPDATE {schema}.deadletters_deadletter
SET resolved_at = %s, resolution = %s, note = %s, resolved_by = %s
WHERE id = %s AND resolved_at IS NULL RETURNING execution_id
"""

_RESOLVE_OF = """
UPDATE {schema}.deadletters_deadletter
SET resolved_at = %s, resolution = %s, resolved_by = %s
WHERE execution_id = %s AND resolved_at IS NULL
"""


def add(conn: Conn, schema: str, letters: Sequence[Letter]) -> None:
    """Adds dead letters; an execution has at most one that is open."""
    query = sql.SQL(_ADD).format(schema=sql.Identifier(schema))
    conn.execute(query, [list(column) for column in zip(*letters, strict=True)])


def resolve(
    conn: Conn, schema: str, letter_id: UUID, *, resolution: str, now: datetime, note: str = "", by: str
) -> UUID | None:
    """Closes an open dead letter; its execution's id, None when it was not open."""
    query = sql.SQL(_RESOLVE).format(schema=sql.Identifier(schema))
    row = conn.execute(query, [now, resolution, note, by, letter_id]).fetchone()
    return row[0] if row else None


def resolve_of_execution(
    conn: Conn, schema: str, execution_id: UUID, *, resolution: str, now: datetime, by: str
) -> None:
    """Closes the open dead letter of an execution, when it has one."""
    query = sql.SQL(_RESOLVE_OF).format(schema=sql.Identifier(schema))
    conn.execute(query, [now, resolution, by, execution_id])
