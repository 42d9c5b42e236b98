"""Bringing archived rows back into the tables, as they were.

A batch that is restored means nothing afterwards: its rows are hot again, and its files are removed once the tables say
the same as they do. What can't come back, as another row has taken its run key or its occurrence, stays archived.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.archive import catalogue
from apps.archive.catalogue import Batch
from apps.archive.chunks import Chunk, chunks_of
from apps.archive.comparing import same_executions
from apps.archive.errors import ArchiveDamaged
from apps.archive.files import Store
from apps.archive.inserting import chunk_insert
from apps.archive.manifest import File
from apps.archive.rewriting import batch_rewrite, remove_files
from apps.archive.tables import EXECUTIONS, TABLES, Column, Table
from apps.archive.verifying import batch_sound
from apps.archive.writing import BatchLost, Columns, columns_now, hot_chunk
from tenants.models import Tenant

Conn = psycopg.Connection[Any]
KEEP_DAYS = 7  # that what was restored is not archived again, unless somebody says otherwise


@dataclass(slots=True)
class Restored:
    """Rows that came back, by table, and executions that could not."""

    counts: dict[str, int] = field(default_factory=dict)
    came: list[UUID] = field(default_factory=list)
    refused: list[UUID] = field(default_factory=list)


def unit_of(store: Store, batch: Batch, execution_id: UUID) -> list[UUID]:
    """The execution and what comes and goes with it: all of its workflow's run. Empty when it is not in the batch."""
    for chunk in chunks_of(store, batch):
        units = chunk.unit_by_id()
        if execution_id.bytes in units:
            unit = units[execution_id.bytes]
            return [UUID(bytes=key) for key, one in units.items() if one == unit]
    return []


def batch_restore(
    conn: Conn, tenant: Tenant, store: Store, batch: Batch, *, keep_until: datetime | None = None,
    only: Sequence[UUID] = (), note: Callable[[], None] = lambda: None,
) -> Restored:  # fmt: skip
    """Restores a batch, or these executions of it, whole runs of workflows; goes on where another process stopped.

    `keep_until` and `only` are for a batch that is done; one that is being restored has them. `note()` writes down that
    it was asked for, in the transaction that begins it: whoever goes on with it does not know. ArchiveDamaged when its
    files are not what was written; BatchLost when another process works at it.
    """
    schema = tenant.schema_name
    if batch.state not in ("done", "restoring"):
        raise BatchLost
    if batch.state == "restoring" and only and {str(one) for one in only} - set(batch.kept_back):
        raise BatchLost  # it is being restored in part, by somebody else
    files = batch_sound(store, batch)  # also where somebody began: files may have changed since
    if batch.state == "done":
        assert keep_until is not None, "whoever begins says how long it is kept"
        with conn.transaction():
            if not catalogue.restoring(conn, schema, batch.id, only=only, keep_until=keep_until):
                raise BatchLost
            note()
        batch = batch._replace(state="restoring", kept_back=[str(one) for one in only])
    wanted = [UUID(one).bytes for one in batch.kept_back]
    columns, found = _columns(conn, schema, files), Restored()
    for chunk in chunks_of(store, batch):
        if not catalogue.touch(conn, schema, batch):
            raise BatchLost
        part = (chunk.only(wanted) if wanted else chunk).narrowed(columns)
        if part.executions.num_rows:
            _restore(conn, schema, part, columns, found)
    if wanted or found.refused:
        batch_rewrite(conn, tenant, store, batch, without=found.came)
    elif catalogue.end(conn, schema, batch.id, state="restored", sources=["restoring"]):
        remove_files(conn, schema, store, batch)
    return found


def _restore(conn: Conn, schema: str, chunk: Chunk, columns: Columns, found: Restored) -> None:
    """One chunk, in one transaction; what is refused takes its whole run with it."""
    units = chunk.unit_by_id()
    with conn.transaction():
        there = same_executions(chunk, hot_chunk(conn, schema, columns, units))
        missing = chunk.only(list(there), without=True)
        came = set(there) | set(missing.ids())
        try:
            with conn.transaction():
                chunk_insert(conn, schema, missing, columns)
        except psycopg.errors.UniqueViolation:
            came -= _by_unit(conn, schema, missing, columns, units)
        back = chunk.only(list(came))
        if same_executions(back, hot_chunk(conn, schema, columns, {key: units[key] for key in back.ids()})) != came:
            raise ArchiveDamaged("What was restored is not what the files say; nothing of it was kept.")
    found.came += [UUID(bytes=one) for one in units if one in came]
    found.refused += [UUID(bytes=one) for one in units if one not in came]
    for table in (EXECUTIONS, *missing.attached):
        count = back.rows(table).num_rows
        found.counts[table.name] = found.counts.get(table.name, 0) + count


def _by_unit(conn: Conn, schema: str, chunk: Chunk, columns: Columns, units: dict[bytes, bytes]) -> set[bytes]:
    """Inserts unit by unit; the executions that could not be."""
    refused: set[bytes] = set()
    for unit in chunk.units():
        ids = [key for key in chunk.ids() if units[key] == unit]
        try:
            with conn.transaction():
                chunk_insert(conn, schema, chunk.only(ids), columns)
        except psycopg.errors.UniqueViolation:
            refused |= set(ids)
    return refused


def _columns(conn: Conn, schema: str, files: Mapping[str, File]) -> dict[Table, list[Column]]:
    """The columns that both the files and the tables have: either may be of another version."""
    now, found = columns_now(conn, schema), {}
    for table in TABLES:
        filed = {one.name for one in files[table.file].columns} if table.file in files else None
        found[table] = [one for one in now[table] if filed is None or one.name in filed]
    return found
