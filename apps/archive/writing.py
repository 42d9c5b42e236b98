"""Writing the files of a batch, from the tables or from another batch, a chunk at a time."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from apps.archive import catalogue
from apps.archive.catalogue import Batch, Written
from apps.archive.chunks import CHUNK_ROWS, Chunk
from apps.archive.files import Sink, Store
from apps.archive.manifest import MANIFEST, File, manifest_text
from apps.archive.parquet import Writer
from apps.archive.tables import (
    ATTACHED,
    EXECUTIONS,
    TABLES,
    Column,
    Table,
    arrow_schema,
    attached_of,
    columns_of,
    executions_of,
    hot_rows,
)

Conn = psycopg.Connection[Any]
Columns = Mapping[Table, Sequence[Column]]


class BatchLost(Exception):
    """Another process took the batch over: whoever worked at it stops."""


def columns_now(conn: Conn, schema: str) -> dict[Table, list[Column]]:
    """The columns of all tables as the database has them."""
    return {table: columns_of(conn, schema, table) for table in TABLES}


def hot_chunk(conn: Conn, schema: str, columns: Columns, units: Mapping[bytes, bytes]) -> Chunk:
    """What the tables have of these executions (id: the root that it goes with) and of what goes with them."""
    rows = hot_rows(conn, schema, EXECUTIONS, columns[EXECUTIONS], ids=list(units), by="id")
    executions = executions_of(rows, columns[EXECUTIONS], units)
    return Chunk(executions, attached_hot(conn, schema, columns, executions))


def attached_hot(conn: Conn, schema: str, columns: Columns, executions: pa.Table) -> dict[Table, pa.Table]:
    """What the tables have of what goes with these executions."""
    return {table: attached_of(conn, schema, table, columns[table], executions) for table in ATTACHED}


def hot_chunks(conn: Conn, schema: str, columns: Columns, units: Mapping[bytes, bytes]) -> Iterable[Chunk]:
    """The same, a chunk at a time; each is of one moment, not all together."""
    ids = list(units)
    for start in range(0, len(ids), CHUNK_ROWS):
        yield hot_chunk(conn, schema, columns, {key: units[key] for key in ids[start : start + CHUNK_ROWS]})


def batch_write(
    store: Store, batch: Batch, chunks: Iterable[Chunk], columns: Columns, *, schema: str, alive: Callable[[], bool]
) -> Written | None:
    """Writes the files of a batch and, last, its manifest; None when there were no rows.

    BatchLost as soon as `alive()`, asked for each chunk, says that the batch is not ours any more.
    """
    seen = _Seen()
    with ExitStack() as opened:
        files = _Files(store, batch, columns, opened)
        for chunk in chunks:
            if not alive():
                raise BatchLost
            if chunk.executions.num_rows:
                seen.look(chunk.executions)
                files.append(chunk)
        files.close()
    if seen.low is None or seen.high is None:
        return None
    told = files.told()
    text = manifest_text(batch, told, schema=schema, low=str(seen.low), high=str(seen.high))
    with store.create(f"{batch.path}/{MANIFEST}") as sink:
        sink.write(text)
    return Written(
        counts={table.name: one.rows for table, one in told.items()},
        bytes=sum(one.bytes for one in told.values()) + len(text), manifest_sha256=hashlib.sha256(text).hexdigest(),
        min_id=seen.low, max_id=seen.high, nominal_from=seen.nominal_from, nominal_to=seen.nominal_to,
    )  # fmt: skip


def keeping(conn: Conn, schema: str, batch: Batch) -> Callable[[], bool]:
    """Touches the batch each time that it is asked whether it is still ours."""
    return lambda: catalogue.touch(conn, schema, batch)


class _Files:
    """The files of a batch. One is made when its first row comes."""

    def __init__(self, store: Store, batch: Batch, columns: Columns, opened: ExitStack) -> None:
        self._store, self._batch, self._columns, self._opened = store, batch, columns, opened
        self._sinks: dict[Table, Sink] = {}
        self._writers: dict[Table, Writer] = {}

    def append(self, chunk: Chunk) -> None:
        for table in (EXECUTIONS, *chunk.attached):
            rows = chunk.rows(table)
            if rows.num_rows:
                self._writer(table).append(rows)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def told(self) -> dict[Table, File]:
        """What was written; once the files are closed."""
        return {
            table: File(self._writers[table].rows, sink.bytes, sink.sha256, list(self._columns[table]))
            for table, sink in self._sinks.items()
        }

    def _writer(self, table: Table) -> Writer:
        found = self._writers.get(table)
        if found is None:
            sink = self._opened.enter_context(self._store.create(f"{self._batch.path}/{table.file}"))
            self._sinks[table] = sink
            found = self._writers[table] = Writer(sink, arrow_schema(table, self._columns[table]))
        return found


class _Seen:
    """The bounds of the executions that came by."""

    def __init__(self) -> None:
        self.low: UUID | None = None
        self.high: UUID | None = None
        self.nominal_from: datetime | None = None
        self.nominal_to: datetime | None = None

    def look(self, executions: pa.Table) -> None:
        ids = [UUID(bytes=one) for one in executions.column("id").to_pylist()]
        self.low = min(ids) if self.low is None else min(self.low, *ids)
        self.high = max(ids) if self.high is None else max(self.high, *ids)
        nominal, until = executions.column("nominal_at"), executions.column("until_at")
        first, last = pc.min(nominal).as_py(), pc.max(pc.coalesce(until, nominal)).as_py()
        if first is not None:
            self.nominal_from = first if self.nominal_from is None else min(self.nominal_from, first)
            self.nominal_to = last if self.nominal_to is None else max(self.nominal_to, last)
