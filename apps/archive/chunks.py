"""A batch in pieces that one short transaction can take: some executions, whole runs, with all that goes with them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from apps.archive.catalogue import Batch
from apps.archive.files import Store
from apps.archive.opening import table_reading
from apps.archive.parquet import Reader
from apps.archive.tables import ATTACHED, EXECUTIONS, UNIT, UUID_TYPE, Column, Table

CHUNK_ROWS = 500


class Chunk(NamedTuple):
    """Rows of each table; those of the attached ones in the order of the executions that they go with."""

    executions: pa.Table
    attached: Mapping[Table, pa.Table]

    def rows(self, table: Table) -> pa.Table:
        return self.executions if table is EXECUTIONS else self.attached[table]

    def ids(self) -> list[bytes]:
        """The executions' ids."""
        found: list[bytes] = self.executions.column("id").to_pylist()
        return found

    def units(self) -> list[bytes]:
        """The roots that they go with, each once."""
        return list(dict.fromkeys(self.executions.column(UNIT).to_pylist()))

    def unit_by_id(self) -> dict[bytes, bytes]:
        """Each execution's root, in the order of the rows."""
        return dict(zip(self.ids(), self.executions.column(UNIT).to_pylist(), strict=True))

    def last_unit(self) -> bytes:
        return bytes(self.executions.column(UNIT)[-1].as_py())

    def narrowed(self, columns: Mapping[Table, Sequence[Column]]) -> "Chunk":
        """The same rows with these columns alone."""
        attached = {table: rows.select([one.name for one in columns[table]]) for table, rows in self.attached.items()}
        names = [UNIT, *(one.name for one in columns[EXECUTIONS])]
        return Chunk(self.executions.select(names), attached)

    def only(self, ids: Sequence[bytes], *, without: bool = False) -> "Chunk":
        """The rows of these executions, or of all others."""
        wanted = pa.array(list(ids), UUID_TYPE)

        def part(rows: pa.Table, owner: str) -> pa.Table:
            fits = pc.is_in(rows.column(owner), wanted)
            return rows.filter(pc.invert(fits) if without else fits)

        attached = {table: part(rows, table.owner) for table, rows in self.attached.items()}
        return Chunk(part(self.executions, EXECUTIONS.owner), attached)


def chunks_of(store: Store, batch: Batch, *, after: bytes | None = None, rows: int = CHUNK_ROWS) -> Iterator[Chunk]:
    """All rows of a batch, of units above `after`, in chunks of at least so many executions."""
    with ExitStack() as opened:
        feeds = {
            table: _Feed(opened.enter_context(table_reading(store, batch, table)))
            for table in (EXECUTIONS, *ATTACHED)
            if batch.counts.get(table.name)
        }
        executions = feeds.pop(EXECUTIONS)
        while (taken := executions.take(rows)).num_rows:
            owners = set(taken.column("id").to_pylist())
            attached = {table: feed.take_of(owners, table.owner) for table, feed in feeds.items()}
            chunk = Chunk(taken, attached)
            if after is None or chunk.units()[0] > after:
                yield chunk
            elif chunk.last_unit() > after:
                yield chunk.only([key for key, unit in chunk.unit_by_id().items() if unit > after])


class _Feed:
    """A file from its beginning to its end."""

    def __init__(self, reader: Reader) -> None:
        self._groups = reader.tables()
        self._rest: pa.Table | None = None

    def take(self, rows: int) -> pa.Table:
        """The next executions: so many, and those of the last one's unit."""
        whole = self._have(rows + 1)
        end = min(rows, whole.num_rows)
        while end < whole.num_rows and whole.column(UNIT)[end] == whole.column(UNIT)[end - 1]:
            end += 1
            if end == whole.num_rows:
                whole = self._have(end + 1)
        return self._cut(end)

    def take_of(self, owners: set[bytes], column: str) -> pa.Table:
        """The next rows, as long as they go with one of these."""
        end = 0
        while end < (whole := self._have(end + 1)).num_rows:
            names = whole.column(column).slice(end).to_pylist()
            stop = next((n for n, one in enumerate(names) if one not in owners), None)
            end += len(names) if stop is None else stop
            if stop is not None:
                break
        return self._cut(end)

    def _have(self, rows: int) -> pa.Table:
        """What is read and not taken, of at least so many rows where there are so many."""
        while self._rest is None or self._rest.num_rows < rows:
            more = next(self._groups, None)
            if more is None:
                break
            self._rest = more if self._rest is None else pa.concat_tables([self._rest, more])
        assert self._rest is not None, "a file that is listed has a row"
        return self._rest

    def _cut(self, end: int) -> pa.Table:
        whole = self._have(0)
        self._rest = whole.slice(end)
        return whole.slice(0, end)
