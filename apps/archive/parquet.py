"""Parquet files of one table: written in bounded row groups, read row group by row group."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from apps.archive.errors import ArchiveDamaged
from apps.archive.files import Sink, Store
from apps.archive.tables import UUID_TYPE

GROUP_ROWS = 10_000
GROUP_BYTES = 32 << 20  # payloads are large: whichever comes first
COMPRESSION = "zstd"


class Writer:
    """Appends tables to a file; `close` before the sink is closed."""

    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        self._schema = schema
        stored = pa.schema([pa.field(one.name, pa.uuid() if one.type == UUID_TYPE else one.type) for one in schema])
        self._writer = pq.ParquetWriter(pa.PythonFile(sink, "w"), stored, compression=COMPRESSION)
        self._stored = stored
        self._waiting: list[pa.Table] = []
        self.rows = 0

    def append(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        self.rows += table.num_rows
        self._waiting.append(table)
        rows = sum(one.num_rows for one in self._waiting)
        if rows >= GROUP_ROWS or sum(one.nbytes for one in self._waiting) >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            whole = pa.concat_tables(self._waiting).combine_chunks()
            self._waiting = []
            self._writer.write_table(_stored(whole, self._stored), row_group_size=whole.num_rows)


class Group(NamedTuple):
    """A row group: its number, rows, and the bounds of the column that was asked for."""

    number: int
    rows: int
    least: bytes
    most: bytes


class Reader:
    """A file that is open for reading."""

    def __init__(self, file: pq.ParquetFile, path: str) -> None:
        self._file, self._path = file, path
        self.rows: int = file.metadata.num_rows
        self.names: list[str] = list(file.schema_arrow.names)

    @property
    def group_count(self) -> int:
        return int(self._file.num_row_groups)

    def groups(self, column: str) -> list[Group]:
        """The row groups with the bounds of a column of ids."""
        at = self.names.index(column)
        found = []
        for number in range(self.group_count):
            group = self._file.metadata.row_group(number)
            bounds = group.column(at).statistics
            if bounds is None or not bounds.has_min_max:
                raise ArchiveDamaged(f"{self._path} does not say which ids are in it.")
            found.append(Group(number, group.num_rows, bounds.min, bounds.max))
        return found

    def group(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of one group."""
        with _unpacking(self._path):
            return _plain(self._file.read_row_group(number, columns=None if columns is None else list(columns)))

    def tables(self) -> Iterator[pa.Table]:
        """All rows, a group at a time."""
        for number in range(self.group_count):
            yield self.group(number)

    def with_ids(self, column: str, ids: Sequence[bytes], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows whose column is one of the ids; only groups that may hold one are read."""
        found = [
            self.group(one.number, columns)
            for one in self.groups(column)
            if any(one.least <= i <= one.most for i in ids)
        ]
        if not found:
            return _plain(self._file.schema_arrow.empty_table())
        whole = pa.concat_tables(found)
        return whole.filter(pc.is_in(whole.column(column), pa.array(ids, UUID_TYPE)))


@contextmanager
def reading(store: Store, path: str) -> Iterator[Reader]:
    """The file at this path; ArchiveDamaged when it is none."""
    with ExitStack() as opened:
        file = opened.enter_context(store.open(path))
        with _unpacking(path):
            reader = Reader(pq.ParquetFile(pa.PythonFile(file, "r")), path)
        yield reader


@contextmanager
def _unpacking(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, ValueError) as error:
        raise ArchiveDamaged(f"{path} is damaged: {error}") from error
    except OSError as error:
        if type(error) is not OSError or error.errno is not None:
            raise  # of the store; what Arrow can't unpack has no number
        raise ArchiveDamaged(f"{path} is damaged: {error}") from error


def _stored(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """As the file has it: ids say that they are UUIDs, so that other programs show them as such."""
    arrays: list[Any] = []
    for field, column in zip(schema, table.columns, strict=True):
        chunk = column.combine_chunks()
        arrays.append(pa.ExtensionArray.from_storage(pa.uuid(), chunk) if field.type == pa.uuid() else chunk)
    return pa.Table.from_arrays(arrays, schema=schema)


def _plain(table: pa.Table) -> pa.Table:
    fields, arrays = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        is_id = field.type == pa.uuid()
        fields.append(pa.field(field.name, UUID_TYPE if is_id else field.type))
        arrays.append(pa.chunked_array([one.storage for one in column.chunks], UUID_TYPE) if is_id else column)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
