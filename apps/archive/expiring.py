"""Removing files whose time is over, but for those that hold something under a legal hold."""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

import psycopg

from apps.archive import catalogue, holds
from apps.archive.catalogue import Batch
from apps.archive.files import Store
from apps.archive.forgotten import forgotten
from apps.archive.opening import table_reading
from apps.archive.rewriting import remove_files
from apps.archive.rows import Row, rows_told
from apps.archive.tables import EXECUTIONS

Conn = psycopg.Connection[Any]
NAMED = ("id", "job_id", "schedule_id", "created_at")  # what holds name


def expire(conn: Conn, schema: str, store: Store, *, last: date, more: Callable[[], bool]) -> int:
    """Removes the files of days up to `last` while `more()`; how many batches. What is held stays, with its batch."""
    expired = 0
    for batch in catalogue.of_days(conn, schema, first=None, last=last, states=["done"]):
        if not more():
            break
        if _end(conn, schema, store, batch):
            remove_files(conn, schema, store, batch)
            expired += 1
    return expired


def _end(conn: Conn, schema: str, store: Store, batch: Batch) -> bool:
    """done -> expired. The file is read before the transaction: a store may be slow."""
    named = _named(store, batch) if holds.open_holds(conn, schema) else None
    with conn.transaction():
        holds.share(conn, schema)
        found = holds.open_holds(conn, schema)
        if found and (named is None or any(holds.covered(found, named))):
            return False  # named is None: a hold came while we looked; the next run knows it
        # What is of its day or earlier was written by the end of that day.
        whole_from = datetime.combine(batch.day + timedelta(days=1), time(), UTC)
        forgotten(conn, schema, before=whole_from)
        return catalogue.end(conn, schema, batch.id, state="expired", sources=["done"])


def _named(store: Store, batch: Batch) -> list[Row]:
    with table_reading(store, batch, EXECUTIONS) as reader:
        return [row for number in range(reader.group_count) for row in rows_told(reader.group(number, NAMED))]


def stray_files(conn: Conn, schema: str, store: Store, folder: str) -> dict[str, list[str]]:
    """Files below a tenant's folder that no row of its catalogue knows, by their folder."""
    known = set(catalogue.paths(conn, schema))
    found: dict[str, list[str]] = {}
    for path in store.files(folder):
        parent = path.rpartition("/")[0]
        if parent not in known:
            found.setdefault(parent, []).append(path)
    return found


def made_at_ms(path: str) -> int:
    """When the folder of a batch was begun, from its name, in milliseconds; 0 when it is no batch's."""
    try:
        return UUID(path.rpartition("/")[2]).int >> 80
    except ValueError:
        return 0
