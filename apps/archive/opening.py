"""The file of one table of a batch. That it is this one is looked at each time, in its footer alone: a file of another
batch in its place would be read as if executions had never been, and their occurrences be run once more."""

from collections.abc import Iterator
from contextlib import contextmanager

from apps.archive.catalogue import Batch
from apps.archive.errors import ArchiveDamaged
from apps.archive.files import Store
from apps.archive.parquet import Reader, reading
from apps.archive.tables import EXECUTIONS, UNIT, Table


@contextmanager
def table_reading(store: Store, batch: Batch, table: Table) -> Iterator[Reader]:
    """The file to read from. ArchiveDamaged when it is none, or has other columns, rows or executions than it should.

    What it says of them is not looked at: that is `verifying`'s, which reads all of it.
    """
    path = f"{batch.path}/{table.file}"
    with reading(store, path) as reader:
        if not _is_of(reader, batch, table):
            raise ArchiveDamaged(f"{path} is not the file that was written.")
        yield reader


def _is_of(reader: Reader, batch: Batch, table: Table) -> bool:
    wanted = {table.key, table.owner} | ({UNIT} if table is EXECUTIONS else set())
    if not wanted <= set(reader.names) or reader.rows != batch.counts.get(table.name):
        return False
    low, high = batch.min_id, batch.max_id
    if low is None or high is None:
        return False
    return all(low.bytes <= one.least and one.most <= high.bytes for one in reader.groups(table.owner))
