"""Which operations want work: one narrow row for each that has not ended, for the dispatchers' loop.

There is no lease: whoever works on an operation holds its row for one short transaction, and others pass over it. The
row comes before the operation's own in the order of locks. Its time says whose turn it is: after a chunk an operation
goes to the back.
"""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

Conn = psycopg.Connection[Any]

_PUT = """
INSERT INTO due_dueoperation (operation_id, tenant_id, due_at, failures) VALUES (%s, %s, %s, 0)
ON CONFLICT (operation_id) DO UPDATE SET due_at = excluded.due_at, failures = 0
"""
_TAKE = """
SELECT operation_id, tenant_id, failures FROM due_dueoperation WHERE due_at <= %s
ORDER BY due_at, operation_id LIMIT 1 FOR UPDATE SKIP LOCKED
"""
_STANDING = """
SELECT greatest(0, coalesce(extract(epoch FROM clock_timestamp() - min(due_at)), 0))::float8,
       count(*) FILTER (WHERE failures >= %s)
FROM due_dueoperation
"""
FAILING = 3  # turns in a row


class DueOperation(NamedTuple):
    """An operation whose turn it is. `failures`: so many times in a row its turn could not be taken."""

    operation_id: UUID
    tenant_id: int
    failures: int


class Standing(NamedTuple):
    """How long the one that waits longest has been due, and how many could not be worked on several times in a row."""

    late_s: float
    failing: int


def put(conn: Conn, operation_id: UUID, *, tenant_id: int, due_at: datetime) -> None:
    """The operation wants work from then on; whatever was said before."""
    conn.execute(_PUT, [operation_id, tenant_id, due_at])


def any_due(conn: Conn) -> bool:
    """Whether it is the turn of any operation, by the database's clock."""
    return conn.execute("SELECT FROM due_dueoperation WHERE due_at <= clock_timestamp() LIMIT 1").rowcount > 0


def take(conn: Conn, *, now: datetime) -> DueOperation | None:
    """The operation that waits longest, locked; those that somebody works on are passed over."""
    row = conn.execute(_TAKE, [now]).fetchone()
    return None if row is None else DueOperation(*row)


def lock(conn: Conn, operation_id: UUID) -> None:
    """Waits for whoever works on it, and keeps others away; does nothing when it wants no work."""
    conn.execute("SELECT FROM due_dueoperation WHERE operation_id = %s FOR UPDATE", [operation_id])


def failed(conn: Conn, operation_id: UUID, *, due_at: datetime) -> None:
    """Its turn could not be taken: again then."""
    conn.execute(
        "UPDATE due_dueoperation SET due_at = %s, failures = failures + 1 WHERE operation_id = %s",
        [due_at, operation_id],
    )


def standing(conn: Conn) -> Standing:
    """Whether operations get on, for operators."""
    row = conn.execute(_STANDING, [FAILING]).fetchone()
    assert row is not None
    return Standing(float(row[0]), int(row[1]))


def remove(conn: Conn, operation_id: UUID) -> None:
    """It wants no work any more."""
    conn.execute("DELETE FROM due_dueoperation WHERE operation_id = %s", [operation_id])
