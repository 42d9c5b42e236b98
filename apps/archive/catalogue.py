"""The batches of a tenant: each change names the state that it comes from, so that two processes can't both make it.

Instants are the database's. Whoever works at a batch touches it; one that nobody touched for ABANDONED_S is taken over.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg

from apps.archive.models import OPEN_STATES, READABLE_STATES
from kernel.ids import uuid7
from tenants.models import Tenant
from tenants.statements import in_schema

Conn = psycopg.Connection[Any]
FORMAT = 1  # of the files that are written; older ones are read, too
ABANDONED_S = 120
NOTE_CHARS = 300


class Batch(NamedTuple):
    """A row of the catalogue."""

    id: UUID
    day: date
    seq: int
    path: str
    state: str
    format: int
    counts: dict[str, int]
    bytes: int
    manifest_sha256: str
    min_id: UUID | None
    max_id: UUID | None
    cursor: UUID | None
    kept_back: list[str]
    replaces: UUID | None
    keep_until: datetime | None
    note: str
    created_at: datetime
    done_at: datetime | None
    abandoned: bool


class Written(NamedTuple):
    """What is known of a batch once its files are whole."""

    counts: Mapping[str, int]
    bytes: int
    manifest_sha256: str
    min_id: UUID
    max_id: UUID
    nominal_from: datetime | None
    nominal_to: datetime | None


_COLUMNS = f"""
id, day, seq, path, state, format, counts, bytes, manifest_sha256, min_id, max_id, cursor, kept_back, replaces,
keep_until, note, created_at, done_at, touched_at < clock_timestamp() - {ABANDONED_S} * interval '1 second'
"""
_TABLE = "{schema}.archive_archivebatch"

# While a batch is open no other is begun; who begins at the same moment gets the same number and is refused.
_BEGIN = f"""
INSERT INTO {_TABLE} (id, day, seq, path, state, format, counts, bytes, manifest_sha256, kept_back, replaces, note,
                      created_at, touched_at)
SELECT %(id)s, %(day)s, coalesce((SELECT max(seq) FROM {_TABLE} WHERE day = %(day)s), 0) + 1, %(path)s, 'writing',
       %(format)s, '{{{{}}}}', 0, '', '[]', %(replaces)s, '', clock_timestamp(), clock_timestamp()
WHERE %(replaces)s::uuid IS NOT NULL OR NOT EXISTS (
    SELECT 1 FROM {_TABLE} WHERE state = ANY(%(open)s) AND replaces IS NULL)
ON CONFLICT (day, seq) DO NOTHING RETURNING {_COLUMNS}
"""
_TOUCH = f"UPDATE {_TABLE} SET touched_at = clock_timestamp() WHERE id = %s AND state = %s"
_WRITTEN = f"""
UPDATE {_TABLE} SET state = 'written', counts = %(counts)s, bytes = %(bytes)s, manifest_sha256 = %(manifest_sha256)s,
    min_id = %(min_id)s, max_id = %(max_id)s, nominal_from = %(nominal_from)s, nominal_to = %(nominal_to)s,
    touched_at = clock_timestamp()
WHERE id = %(id)s AND state = 'writing' RETURNING {_COLUMNS}
"""
_VERIFIED = f"""
UPDATE {_TABLE} SET state = 'verified', verified_at = clock_timestamp(), touched_at = clock_timestamp()
WHERE id = %s AND state = 'written' RETURNING {_COLUMNS}
"""
_ADVANCE = f"""
UPDATE {_TABLE} SET cursor = %(to)s, kept_back = kept_back || %(kept)s::jsonb, touched_at = clock_timestamp()
WHERE id = %(id)s AND state = %(state)s AND cursor IS NOT DISTINCT FROM %(cursor)s
"""
_DONE = f"""
UPDATE {_TABLE} SET state = 'done', done_at = clock_timestamp(), note = '' WHERE id = %s AND state = 'verified'
"""
_TAKE_PLACE = f"""
UPDATE {_TABLE} n SET state = 'done', verified_at = clock_timestamp(), done_at = coalesce(o.done_at, clock_timestamp())
FROM {_TABLE} o WHERE n.id = %s AND n.state = 'written' AND o.id = n.replaces AND o.state = 'replaced'
"""
_RESTORING = f"""
UPDATE {_TABLE} SET state = 'restoring', kept_back = %s, keep_until = %s,
    touched_at = clock_timestamp()
WHERE id = %s AND state = 'done'
"""
_END = f"""
UPDATE {_TABLE} SET state = %s, ended_at = clock_timestamp(), touched_at = clock_timestamp()
WHERE id = %s AND state = ANY(%s)
"""


def folder_of(schema: str, tenant_id: int) -> str:
    """Where the files of a tenant are. Its number is in it: a later tenant may have the same schema's name."""
    return f"{schema}-{tenant_id}"


def begin(conn: Conn, tenant: Tenant, *, day: date, replaces: UUID | None = None) -> Batch | None:
    """A new batch, in state writing; None while another process works at one."""
    batch_id, folder = uuid7(), folder_of(tenant.schema_name, tenant.pk)
    values = {
        "id": batch_id, "day": day, "path": f"{folder}/{day:%Y/%m/%d}/{batch_id}", "format": FORMAT,
        "replaces": replaces, "open": list(OPEN_STATES),
    }  # fmt: skip
    return _changed(conn, tenant.schema_name, _BEGIN, values)


def touch(conn: Conn, schema: str, batch: Batch) -> bool:
    """Says that somebody works at it; False when it is not in that state any more."""
    return conn.execute(in_schema(_TOUCH, schema), [batch.id, batch.state]).rowcount == 1


def written(conn: Conn, schema: str, batch_id: UUID, found: Written) -> Batch | None:
    """writing -> written: the batch as it is then; None when it is not in that state any more."""
    values = {**found._asdict(), "counts": orjson.dumps(dict(found.counts)).decode(), "id": batch_id}
    return _changed(conn, schema, _WRITTEN, values)


def verified(conn: Conn, schema: str, batch_id: UUID) -> Batch | None:
    """written -> verified: the batch as it is then; None when it is not in that state any more."""
    return _changed(conn, schema, _VERIFIED, [batch_id])


def advance(conn: Conn, schema: str, batch: Batch, *, to: UUID, kept: Sequence[UUID]) -> bool:
    """Moves the cursor on from where it was seen; False when somebody else moved it."""
    values = {
        "to": to, "kept": orjson.dumps([str(one) for one in kept]).decode(), "id": batch.id, "state": batch.state,
        "cursor": batch.cursor,
    }  # fmt: skip
    return conn.execute(in_schema(_ADVANCE, schema), values).rowcount == 1


def done(conn: Conn, schema: str, batch_id: UUID) -> bool:
    """verified -> done."""
    return conn.execute(in_schema(_DONE, schema), [batch_id]).rowcount == 1


def take_place(conn: Conn, schema: str, new: UUID) -> bool:
    """written -> done, of a batch that is made from one that was `replaced` in this transaction."""
    return conn.execute(in_schema(_TAKE_PLACE, schema), [new]).rowcount == 1


def restoring(
    conn: Conn, schema: str, batch_id: UUID, *, only: Sequence[UUID], keep_until: datetime
) -> bool:  # fmt: skip
    """done -> restoring: these executions, or all when there are none."""
    told = orjson.dumps([str(one) for one in only]).decode()
    return conn.execute(in_schema(_RESTORING, schema), [told, keep_until, batch_id]).rowcount == 1


def end(conn: Conn, schema: str, batch_id: UUID, *, state: str, sources: Sequence[str]) -> bool:
    """To one of ENDED_STATES."""
    return conn.execute(in_schema(_END, schema), [state, batch_id, list(sources)]).rowcount == 1


def emptied(conn: Conn, schema: str, batch_id: UUID) -> None:
    """Its files are removed."""
    conn.execute(in_schema(f"UPDATE {_TABLE} SET path = '' WHERE id = %s", schema), [batch_id])


def drop(conn: Conn, schema: str, batch_id: UUID) -> None:
    """Forgets a batch that was never written to its end."""
    query = f"DELETE FROM {_TABLE} WHERE id = %s AND state IN ('writing', 'written')"
    conn.execute(in_schema(query, schema), [batch_id])


def failed(conn: Conn, schema: str, batch_id: UUID, note: str) -> None:
    """Notes why the last try failed."""
    query = in_schema(f"UPDATE {_TABLE} SET note = %s WHERE id = %s", schema)
    conn.execute(query, [note[:NOTE_CHARS], batch_id])


def read(conn: Conn, schema: str, batch_id: UUID) -> Batch | None:
    """One batch."""
    found = _select(conn, schema, "id = %s", [batch_id])
    return found[0] if found else None


def open_batches(conn: Conn, schema: str) -> list[Batch]:
    """What somebody works at, or has to go on with."""
    return _select(conn, schema, "state = ANY(%s)", [list(OPEN_STATES)])


def refuse(conn: Conn, schema: str) -> list[Batch]:
    """Ended ones whose files are still there."""
    return _select(conn, schema, "state IN ('restored', 'expired', 'replaced') AND path <> ''", [])


def readable(
    conn: Conn, schema: str, *, after: UUID | None = None, before: UUID | None = None
) -> list[Batch]:  # fmt: skip
    """Batches that hold what is archived, of ids above `after` and below `before`; the highest ids first."""
    condition, values = "state = ANY(%s)", [list(READABLE_STATES)]
    for text, bound in (("max_id > %s", after), ("min_id < %s", before)):
        if bound is not None:
            condition, values = f"{condition} AND {text}", [*values, bound]  # type: ignore[list-item]  # one of each
    return _select(conn, schema, condition, values, order="max_id DESC, id DESC")


def holding(conn: Conn, schema: str, execution_id: UUID) -> list[Batch]:
    """Batches that may hold this execution."""
    condition = "state = ANY(%s) AND max_id >= %s AND min_id <= %s"
    return _select(conn, schema, condition, [list(READABLE_STATES), execution_id, execution_id])


def of_occurrences(conn: Conn, schema: str, *, since: datetime, until: datetime) -> list[Batch]:
    """Batches that may hold occurrences of that time."""
    condition = "state = ANY(%s) AND nominal_from <= %s AND nominal_to >= %s"
    return _select(conn, schema, condition, [list(READABLE_STATES), until, since])


def of_days(conn: Conn, schema: str, *, first: date | None, last: date | None, states: Sequence[str]) -> list[Batch]:
    """Batches in these states, of days from the first to the last one."""
    condition = "state = ANY(%s) AND day >= coalesce(%s::date, '-infinity') AND day <= coalesce(%s::date, 'infinity')"
    return _select(conn, schema, condition, [list(states), first, last], order="day, seq")


def paths(conn: Conn, schema: str) -> list[str]:
    """Folders that belong to some batch."""
    query = f"SELECT path FROM {_TABLE} WHERE path <> ''"
    return [row[0] for row in conn.execute(in_schema(query, schema))]


def with_files(conn: Conn, schema: str, *, from_id: UUID) -> list[Batch]:
    """Batches in any state whose files may hold this id or later ones; of some that is not known yet."""
    return _select(conn, schema, "path <> '' AND (max_id IS NULL OR max_id >= %s)", [from_id])


def kept_ranges(conn: Conn, schema: str) -> list[tuple[UUID, UUID]]:
    """Ranges of ids that were restored lately: they are not archived again yet, nor deleted."""
    query = f"SELECT min_id, max_id FROM {_TABLE} WHERE keep_until > clock_timestamp()"
    return conn.execute(in_schema(query, schema)).fetchall()


def _select(conn: Conn, schema: str, condition: str, values: Sequence[Any], *, order: str = "id") -> list[Batch]:
    query = f"SELECT {_COLUMNS} FROM {_TABLE} WHERE {condition} ORDER BY {order}"
    return [_batch(row) for row in conn.execute(in_schema(query, schema), values)]


def _changed(conn: Conn, schema: str, query: str, values: Sequence[Any] | Mapping[str, Any]) -> Batch | None:
    row = conn.execute(in_schema(query, schema), values).fetchone()
    return None if row is None else _batch(row)


def _batch(row: tuple[Any, ...]) -> Batch:
    """Django's connection gives JSON as its text, others as what it says."""
    found = Batch._make(row)
    if isinstance(found.counts, str):
        return found._replace(counts=orjson.loads(found.counts), kept_back=orjson.loads(str(found.kept_back)))
    return found
