"""One run over a tenant: finish what was begun, archive what may go, remove what has been kept long enough.

A batch is written, read back, and only then are its rows deleted (`deleting`); each step is a state of its row in the
catalogue. A process that dies between two leaves a row that the next run finds: what was not verified is thrown away
and made again; what was goes on where it stood.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from apps.archive import catalogue
from apps.archive.catalogue import Batch
from apps.archive.choosing import NOTHING, Choice, choose, day_start
from apps.archive.deleting import batch_delete
from apps.archive.expiring import expire
from apps.archive.files import Store
from apps.archive.restoring import batch_restore
from apps.archive.rewriting import batch_rewrite, remove_files, throw_away
from apps.archive.verifying import batch_sound
from apps.archive.writing import BatchLost, batch_write, columns_now, hot_chunks, keeping
from kernel.errors import ShardbeatError
from tenants.models import Tenant

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]


@dataclass(slots=True)
class Run:
    """What a run did to one tenant."""

    counts: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    batches: int = 0
    expired: int = 0
    busy: bool = False  # another process works at a batch

    def add(self, batch: Batch) -> None:
        self.batches += 1
        self.bytes += batch.bytes
        for name, count in batch.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count


def archive_run(
    conn: Conn, tenant: Tenant, store: Store, *, before: datetime, keep: timedelta | None, more: Callable[[], bool]
) -> Run:
    """Archives what ended before the day of `before`, batch after batch while `more()`.

    Files of days that are `keep` older than that are removed; None removes none. ArchiveUnreachable or ArchiveDamaged
    when the store fails: nothing that was not read back is deleted.
    """
    before, run = day_start(before), Run()
    _go_on(conn, tenant, store, run, before, more)
    after = NOTHING  # what stays hot, as somebody holds it, comes up again at the next run
    while not run.busy and more():
        choice = choose(conn, tenant.schema_name, before=before, after=after)
        if choice is None:
            break
        batch = catalogue.begin(conn, tenant, day=choice.day)
        if batch is None:
            run.busy = True
            break
        after = UUID(bytes=max(choice.units.values()))
        try:
            _archive(conn, tenant, store, batch, choice, run, before, more)
        except BatchLost:
            run.busy = True
        except ShardbeatError as error:
            catalogue.failed(conn, tenant.schema_name, batch.id, error.detail)
            raise
    if keep is not None:
        last = (before - keep).date() - timedelta(days=1)
        run.expired = expire(conn, tenant.schema_name, store, last=last, more=more)
    return run


def _archive(
    conn: Conn, tenant: Tenant, store: Store, batch: Batch, choice: Choice, run: Run, before: datetime,
    more: Callable[[], bool],
) -> None:  # fmt: skip
    """Takes one batch from its beginning as far as the time reaches."""
    schema = tenant.schema_name
    columns = columns_now(conn, schema)
    chunks = hot_chunks(conn, schema, columns, choice.units)
    found = batch_write(store, batch, chunks, columns, schema=schema, alive=keeping(conn, schema, batch))
    if found is None:  # all of it went meanwhile
        catalogue.drop(conn, schema, batch.id)
        return
    written = catalogue.written(conn, schema, batch.id, found)
    if written is None:
        raise BatchLost
    batch_sound(store, written)
    verified = catalogue.verified(conn, schema, batch.id)
    if verified is None:
        raise BatchLost
    _finish(conn, tenant, store, verified, run, before, more)


def _finish(
    conn: Conn, tenant: Tenant, store: Store, batch: Batch, run: Run, before: datetime, more: Callable[[], bool]
) -> None:
    """verified -> done: deletes the hot rows; what had to stay is left out of the files."""
    deleted = batch_delete(conn, tenant.schema_name, store, batch, before=before, more=more)
    if deleted is None:
        run.busy = True
    elif deleted.kept_back:
        log.info("archive of %s: %d executions stay hot: they changed", tenant.slug, len(deleted.kept_back))
        left = batch_rewrite(conn, tenant, store, deleted, without=[UUID(one) for one in deleted.kept_back])
        if left is not None:
            run.add(left)
    elif catalogue.done(conn, tenant.schema_name, deleted.id):
        run.add(deleted)


def _go_on(
    conn: Conn, tenant: Tenant, store: Store, run: Run, before: datetime, more: Callable[[], bool]
) -> None:  # fmt: skip
    """Finishes or throws away what an earlier run left, and removes files that mean nothing any more."""
    schema = tenant.schema_name
    for batch in catalogue.open_batches(conn, schema):
        if not batch.abandoned:
            run.busy = run.busy or batch.replaces is None
        elif batch.state in ("writing", "written"):
            throw_away(conn, schema, store, batch)
        elif batch.state == "verified":
            try:
                _finish(conn, tenant, store, batch, run, before, more)
            except BatchLost:
                run.busy = True
        else:
            batch_restore(conn, tenant, store, batch)
    for batch in catalogue.refuse(conn, schema):
        remove_files(conn, schema, store, batch)
