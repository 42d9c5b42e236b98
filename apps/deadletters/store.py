"""Dead letters in SQL."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from tenants.statements import in_schema, run_in

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

_LOCK_OPEN = """
SELECT id FROM {schema}.deadletters_deadletter WHERE id = ANY(%s) AND resolved_at IS NULL ORDER BY id FOR UPDATE
"""

_RESOLVE_MANY = """
WITH open AS MATERIALIZED (
    SELECT id FROM {schema}.deadletters_deadletter WHERE id = ANY($1) AND resolved_at IS NULL ORDER BY id FOR UPDATE)
UPDATE {schema}.deadletters_deadletter d
SET resolved_at = $2, resolution = $3, note = $4, resolved_by = $5
FROM open WHERE d.id = open.id AND d.resolved_at IS NULL RETURNING d.id
"""

_OPEN_AGAIN = """
UPDATE {schema}.deadletters_deadletter
SET resolved_at = NULL, resolution = '', note = '', resolved_by = ''
WHERE id = %s AND resolution = 'replayed' RETURNING execution_id
"""

_REOPEN = """
UPDATE {schema}.deadletters_deadletter d
SET resolved_at = NULL, resolution = '', note = '', resolved_by = ''
WHERE d.id = %s AND d.resolution = 'resolved' AND NOT EXISTS (
    SELECT 1 FROM {schema}.deadletters_deadletter o WHERE o.execution_id = d.execution_id AND o.resolved_at IS NULL)
RETURNING d.execution_id
"""

_NOTE = "UPDATE {schema}.deadletters_deadletter SET note = %s WHERE id = %s AND resolved_at IS NOT NULL"

_RESOLVE_OF = """
UPDATE {schema}.deadletters_deadletter
SET resolved_at = %s, resolution = %s, resolved_by = %s
WHERE execution_id = %s AND resolved_at IS NULL
"""


def add(conn: Conn, schema: str, letters: Sequence[Letter]) -> None:
    """Adds dead letters; an execution has at most one that is open."""
    conn.execute(in_schema(_ADD, schema), [list(column) for column in zip(*letters, strict=True)])


def lock_open(conn: Conn, schema: str, ids: Collection[UUID]) -> set[UUID]:
    """Locks those that are open, in id order; their ids."""
    return {row[0] for row in conn.execute(in_schema(_LOCK_OPEN, schema), [list(ids)])}


def resolve_many(
    conn: Conn, schema: str, ids: Collection[UUID], *, resolution: str, now: datetime, note: str = "", by: str
) -> set[UUID]:  # fmt: skip
    """Closes open dead letters, locked in id order; the ids of those that were open."""
    rows = run_in(conn, _RESOLVE_MANY, schema, [list(ids), now, resolution, note, by])
    return {row[0] for row in rows}


def open_again(conn: Conn, schema: str, letter_id: UUID) -> UUID | None:
    """Takes a replay back; the execution's id, None when the letter was not replayed."""
    row = conn.execute(in_schema(_OPEN_AGAIN, schema), [letter_id]).fetchone()
    return row[0] if row else None


def reopen(conn: Conn, schema: str, letter_id: UUID) -> UUID | None:
    """Opens a letter that was resolved; the execution's id, None when it was not, or another one is open."""
    row = conn.execute(in_schema(_REOPEN, schema), [letter_id]).fetchone()
    return row[0] if row else None


def annotate(conn: Conn, schema: str, letter_id: UUID, note: str) -> None:
    """Says more about a letter that is closed."""
    conn.execute(in_schema(_NOTE, schema), [note, letter_id])


def resolve_of_execution(
    conn: Conn, schema: str, execution_id: UUID, *, resolution: str, now: datetime, by: str
) -> None:
    """Closes the open dead letter of an execution, when it has one."""
    conn.execute(in_schema(_RESOLVE_OF, schema), [now, resolution, by, execution_id])
