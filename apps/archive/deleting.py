"""Deleting what was archived from the tables: each row only when it is, now and under its lock, what its file says.

A chunk is one short transaction. What somebody holds, or what changed since it was written, stays, with all of its
workflow's run; the batch notes it, and is made again without it at the end.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from apps.archive import catalogue, holds, rules
from apps.archive.catalogue import Batch
from apps.archive.chunks import CHUNK_ROWS, Chunk, chunks_of
from apps.archive.comparing import same_executions
from apps.archive.files import Store
from apps.archive.tables import ATTACHED, EXECUTIONS, executions_of, selected
from apps.archive.writing import BatchLost, Columns, attached_hot, columns_now
from tenants.statements import in_schema

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
STATEMENT_MS = 5_000
LEAST_ROWS = 20

_ROOTS = """
SELECT execution_id, finished_at < %s FROM {schema}.workflows_run
WHERE execution_id = ANY(%s) AND depth = 0 ORDER BY execution_id FOR UPDATE SKIP LOCKED
"""
_ALL_ROOTS = "SELECT execution_id FROM {schema}.workflows_run WHERE execution_id = ANY(%s) AND depth = 0"
_LOCKED = f"""
SELECT {{columns}} FROM {{schema}}.executions_execution e
WHERE e.id = ANY(%(ids)s) AND {rules.MAY_GO} ORDER BY e.id FOR UPDATE OF e SKIP LOCKED
"""


def batch_delete(
    conn: Conn, schema: str, store: Store, batch: Batch, *, before: datetime, more: Callable[[], bool]
) -> Batch | None:  # fmt: skip
    """Deletes the rows of a verified batch, from its cursor on, while `more()`: the batch as it is at the end.

    None when it did not come to the end. `before` is the day that `choose` was given: what has ended since
    stays. BatchLost when another process works at it.
    """
    columns, rows = columns_now(conn, schema), CHUNK_ROWS
    while True:
        after = batch.cursor.bytes if batch.cursor else None
        try:
            for chunk in chunks_of(store, batch, after=after, rows=rows):
                if not more():
                    return None
                batch = _delete(conn, schema, batch, chunk, columns, before)
            return batch
        except psycopg.errors.QueryCanceled:
            rows //= 4  # too much for one short transaction on this machine now
            if rows < LEAST_ROWS:
                log.warning("deleting what was archived in %s is too slow now; it goes on at the next run", schema)
                return None


def _delete(conn: Conn, schema: str, batch: Batch, chunk: Chunk, columns: Columns, before: datetime) -> Batch:
    """One chunk; the batch as it is then."""
    with conn.transaction():
        conn.execute(f"SET LOCAL statement_timeout = {STATEMENT_MS}")
        holds.share(conn, schema)
        free = _free_units(conn, schema, chunk, before)
        units = chunk.unit_by_id()
        asked = {key: unit for key, unit in units.items() if unit in free}
        hot = _locked(conn, schema, columns, asked, before)
        same = same_executions(chunk.only(list(asked)), hot)
        whole = free - {unit for key, unit in asked.items() if key not in same}
        going = [key for key, unit in units.items() if unit in whole]
        _remove(conn, schema, hot.only(going))
        kept = [UUID(bytes=key) for key, unit in units.items() if unit not in whole]
        to = UUID(bytes=chunk.last_unit())
        if not catalogue.advance(conn, schema, batch, to=to, kept=kept):
            raise BatchLost
    return batch._replace(cursor=to, kept_back=[*batch.kept_back, *map(str, kept)])


def _free_units(conn: Conn, schema: str, chunk: Chunk, before: datetime) -> set[bytes]:
    """Units that nobody works at. Runs of workflows are locked by the row of their root, before anything else."""
    units = [UUID(bytes=one) for one in chunk.units()]
    roots = {row[0] for row in conn.execute(in_schema(_ALL_ROOTS, schema), [units])}
    locked = {row[0] for row in conn.execute(in_schema(_ROOTS, schema), [before, sorted(roots)]) if row[1]}
    return {one.bytes for one in units if one not in roots or one in locked}


def _locked(conn: Conn, schema: str, columns: Columns, units: dict[bytes, bytes], before: datetime) -> Chunk:
    """What the tables have of these executions and may go; locked."""
    query = sql.SQL(_LOCKED).format(columns=selected(columns[EXECUTIONS]), schema=sql.Identifier(schema))
    values = rules.parameters(conn, schema, before=before, closed=before)
    cursor = conn.cursor(binary=True)
    rows = cursor.execute(query, {**values, "ids": [UUID(bytes=one) for one in units]}).fetchall()
    executions = executions_of(rows, columns[EXECUTIONS], units)
    return Chunk(executions, attached_hot(conn, schema, columns, executions))


def _remove(conn: Conn, schema: str, chunk: Chunk) -> None:
    for table in (*reversed(ATTACHED), EXECUTIONS):
        keys: Sequence[Any] = chunk.rows(table).column(table.key).to_pylist()
        if not keys:
            continue
        values = [UUID(bytes=one) if isinstance(one, bytes) else one for one in keys]
        query = sql.SQL("DELETE FROM {schema}.{table} WHERE {key} = ANY(%s)").format(
            schema=sql.Identifier(schema), table=sql.Identifier(table.table), key=sql.Identifier(table.key)
        )
        conn.execute(query, [values])
