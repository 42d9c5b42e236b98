"""A batch made again with fewer rows: without what stayed hot, was restored, or is erased."""

from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

import psycopg

from apps.archive import catalogue
from apps.archive.catalogue import Batch
from apps.archive.chunks import Chunk, chunks_of
from apps.archive.errors import ArchiveDamaged
from apps.archive.files import Store
from apps.archive.manifest import manifest_read
from apps.archive.tables import TABLES
from apps.archive.verifying import batch_check
from apps.archive.writing import BatchLost, batch_write, keeping
from tenants.models import Tenant

Conn = psycopg.Connection[Any]


def batch_rewrite(
    conn: Conn, tenant: Tenant, store: Store, batch: Batch, *, without: Collection[UUID] = (),
    edit: Callable[[Chunk], Chunk] = lambda chunk: chunk,
) -> Batch | None:  # fmt: skip
    """Makes a batch again without these executions and what goes with them, and removes its old files.

    `edit` changes what stays, and no row's place.

    The batch that takes its place; None when nothing is left. Until the new files were read back the old ones count.
    ArchiveDamaged when old or new ones can't be read; BatchLost when another process works at it.
    """
    schema = tenant.schema_name
    files = manifest_read(store, batch)
    columns = {table: files[table.file].columns for table in TABLES if table.file in files}
    new = catalogue.begin(conn, tenant, day=batch.day, replaces=batch.id)
    if new is None:
        raise BatchLost
    left = [one.bytes for one in without]
    chunks = (edit(chunk.only(left, without=True)) for chunk in chunks_of(store, batch))
    found = batch_write(store, new, chunks, columns, schema=schema, alive=keeping(conn, schema, new))
    if found is not None:
        if not catalogue.written(conn, schema, new.id, found):
            raise BatchLost
        new = catalogue.read(conn, schema, new.id)
        wrong = batch_check(store, new) if new is not None else []
        if new is None or wrong:
            raise ArchiveDamaged(f"{wrong[0].path}: {wrong[0].detail}") if wrong else BatchLost
    with conn.transaction():
        sources = [batch.state]
        if not catalogue.end(conn, schema, batch.id, state="replaced", sources=sources):
            raise BatchLost
        if found is None:
            catalogue.drop(conn, schema, new.id)
        elif not catalogue.take_place(conn, schema, new.id):
            raise BatchLost
    remove_files(conn, schema, store, batch)
    return catalogue.read(conn, schema, new.id) if found is not None else None


def remove_files(conn: Conn, schema: str, store: Store, batch: Batch) -> None:
    """Removes the files of a batch that has ended. A process that dies here leaves them to the next run."""
    store.remove(batch.path)
    catalogue.emptied(conn, schema, batch.id)
