"""A batch made again with fewer rows: without what stayed hot, was restored, or is erased."""

from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

import psycopg

from apps.archive import catalogue
from apps.archive.catalogue import Batch
from apps.archive.chunks import Chunk, chunks_of
from apps.archive.files import Store
from apps.archive.tables import TABLES
from apps.archive.verifying import batch_sound
from apps.archive.writing import BatchLost, batch_write, keeping
from tenants.models import Tenant

Conn = psycopg.Connection[Any]


def batch_rewrite(
    conn: Conn, tenant: Tenant, store: Store, batch: Batch, *, without: Collection[UUID] = (),
    edit: Callable[[Chunk], Chunk] = lambda chunk: chunk, still: Callable[[], bool] = lambda: True,
) -> Batch | None:  # fmt: skip
    """Makes a batch again without these executions and what goes with them, and removes its old files.

    `edit` changes what stays, and no row's place. `still()` is asked in the transaction in which the new files take the
    place of the old ones: False leaves all as it is.

    The batch that takes its place; None when nothing is left. Until the new files were read back the old ones count.
    ArchiveDamaged when old or new ones are not what was written: what was changed would be made good by checksums of
    its own. BatchLost when another process works at it.
    """
    schema = tenant.schema_name
    files = batch_sound(store, batch)
    columns = {table: files[table.file].columns for table in TABLES if table.file in files}
    new = catalogue.begin(conn, tenant, day=batch.day, replaces=batch.id)
    if new is None:
        raise BatchLost
    left = [one.bytes for one in without]
    chunks = (edit(chunk.only(left, without=True)) for chunk in chunks_of(store, batch))
    found = batch_write(store, new, chunks, columns, schema=schema, alive=keeping(conn, schema, new))
    if found is not None:
        new = catalogue.written(conn, schema, new.id, found)
        if new is None:
            raise BatchLost
        batch_sound(store, new)
    if not _replace(conn, schema, batch, new, still, is_empty=found is None):
        throw_away(conn, schema, store, new)
        raise BatchLost
    remove_files(conn, schema, store, batch)
    return catalogue.read(conn, schema, new.id) if found is not None else None


def _replace(
    conn: Conn, schema: str, batch: Batch, new: Batch, still: Callable[[], bool], *, is_empty: bool
) -> bool:  # fmt: skip
    with conn.transaction():
        if not still():
            return False
        sources = [batch.state]
        if not catalogue.end(conn, schema, batch.id, state="replaced", sources=sources):
            raise BatchLost
        if is_empty:
            catalogue.drop(conn, schema, new.id)
        elif not catalogue.take_place(conn, schema, new.id):
            raise BatchLost
    return True


def remove_files(conn: Conn, schema: str, store: Store, batch: Batch) -> None:
    """Removes the files of a batch that has ended. A process that dies here leaves them to the next run."""
    store.remove(batch.path)
    catalogue.emptied(conn, schema, batch.id)


def throw_away(conn: Conn, schema: str, store: Store, batch: Batch) -> None:
    """Removes a batch that is not verified, with its files: whatever it was made from is still there."""
    store.remove(batch.path)
    catalogue.drop(conn, schema, batch.id)
