"""Events in SQL. All functions take a psycopg connection and work in its current transaction."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg
from psycopg import sql

from apps.due import bells
from kernel.ids import uuid7
from kernel.rows import json_rows
from tenants.statements import run_in

Conn = psycopg.Connection[Any]
FIRST = UUID(int=0)
LAST = UUID(int=(1 << 128) - 1)


class NewEvent(NamedTuple):
    """An event to write. `data` is plain JSON without NUL characters."""

    id: UUID
    type: str
    at: datetime
    data: Mapping[str, Any]
    job_id: UUID | None = None
    schedule_id: UUID | None = None
    execution_id: UUID | None = None


class Position(NamedTuple):
    """A place in the order of events."""

    tx: int
    id: UUID


class EventRow(NamedTuple):
    """An event as it was read."""

    id: UUID
    tx: int
    type: str
    at: datetime
    job_id: UUID | None
    schedule_id: UUID | None
    execution_id: UUID | None
    data: str  # JSON text

    @property
    def position(self) -> Position:
        return Position(self.tx, self.id)


_EMIT = """
INSERT INTO {schema}.events_event (id, tx, type, at, job_id, schedule_id, execution_id, data)
SELECT m.id, pg_current_xact_id()::text::bigint, m.type, m.at, m.job_id, m.schedule_id, m.execution_id, m.data
FROM json_to_recordset($1::json)
     AS m(id uuid, type text, at timestamptz, data jsonb, job_id uuid, schedule_id uuid, execution_id uuid)
ON CONFLICT (id) DO NOTHING
"""

_READ = """
SELECT id, tx, type, at, job_id, schedule_id, execution_id, data::text FROM {schema}.events_event
WHERE (tx, id) > (%(tx)s, %(id)s) AND tx < %(bound)s
  AND (%(types)s::text[] IS NULL OR type = ANY(%(types)s::text[]))
  AND (%(job)s::uuid IS NULL OR job_id = %(job)s::uuid)
  AND (%(schedule)s::uuid IS NULL OR schedule_id = %(schedule)s::uuid)
  AND (%(execution)s::uuid IS NULL OR execution_id = %(execution)s::uuid)
ORDER BY tx, id LIMIT %(limit)s
"""

_ONE = "SELECT id, tx, type, at, job_id, schedule_id, execution_id, data::text FROM {schema}.events_event WHERE id = %s"


def new_event(
    type_: str, at: datetime, data: Mapping[str, Any], *, job_id: UUID | None = None, schedule_id: UUID | None = None,
    execution_id: UUID | None = None,
) -> NewEvent:  # fmt: skip
    """An event with an id of its own."""
    return NewEvent(uuid7(), type_, at, data, job_id, schedule_id, execution_id)


def emit(conn: Conn, schema: str, tenant_id: int, events: Sequence[NewEvent], *, ring: bool = True) -> None:
    """Writes events, and rings for whoever carries them out. May run inside a pipeline.

    `ring` is False where it is known that nobody has subscribed to anything.
    """
    if not events:
        return
    run_in(conn, _EMIT, schema, [json_rows(events)])
    if ring:
        bells.ring(conn, tenant_id)


def horizon(conn: Conn) -> int:
    """Whatever is written by a transaction below this number is committed, or will never be."""
    row = conn.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchone()
    assert row is not None
    return int(row[0])


def read_after(
    conn: Conn, schema: str, after: Position, *, limit: int, bound: int, types: Collection[str] | None = None,
    job_id: UUID | None = None, schedule_id: UUID | None = None, execution_id: UUID | None = None,
) -> list[EventRow]:  # fmt: skip
    """The next events in order after a position; `bound` is a horizon that was read in an earlier statement."""
    rows = conn.execute(
        _in(_READ, schema),
        {
            "tx": after.tx, "id": after.id, "bound": bound, "limit": limit, "job": job_id, "schedule": schedule_id,
            "execution": execution_id, "types": None if types is None else sorted(types),
        },
    )  # fmt: skip
    return [EventRow._make(row) for row in rows]


def read_one(conn: Conn, schema: str, event_id: UUID) -> EventRow | None:
    """One event; None when there is none, or none any more."""
    row = conn.execute(_in(_ONE, schema), [event_id]).fetchone()
    return None if row is None else EventRow._make(row)


def before(position: Position) -> Position:
    """The place right before a position: reading after it begins with that event."""
    if position.id == FIRST:
        return Position(position.tx - 1, LAST)
    return Position(position.tx, UUID(int=position.id.int - 1))


def body_of(event: EventRow) -> dict[str, Any]:
    """An event as it is told: over the API, and in the body of a webhook."""
    return {
        "id": str(event.id),
        "type": event.type,
        "timestamp": instant_text(event.at),
        "data": orjson.loads(event.data),
    }


def instant_text(at: datetime) -> str:
    """A time as it is told."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _in(query: str, schema: str) -> sql.Composed:
    return sql.SQL(query).format(schema=sql.Identifier(schema))
