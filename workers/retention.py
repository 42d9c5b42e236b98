"""Forgetting a tenant's old history, in batches that nobody waits for.

What is kept whatever its age is said in `apps.archive.rules`. Run, steps and what an execution waited for go with its
row. Of a tenant whose history is archived, executions and what goes with them leave by the archive alone.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from apps.archive import holds, rules
from apps.archive.forgotten import forgotten
from kernel.ids import attempt_id, first_id_at

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
BATCH = 500
LEAST_BATCH = 25
STATEMENT_MS = 1_500
NOTHING = UUID(int=0)

# Ids begin with the time of creation, so what is old is found at the low end of the primary key.
_EXECUTIONS = f"""
WITH old AS MATERIALIZED (
    SELECT e.id FROM {{schema}}.executions_execution e
    WHERE e.id > %(after)s AND e.id < %(bound)s AND {rules.MAY_GO} AND {rules.ITS_ROOT_MAY_GO}
    ORDER BY e.id LIMIT %(limit)s FOR UPDATE OF e SKIP LOCKED)
DELETE FROM {{schema}}.executions_execution e USING old WHERE e.id = old.id RETURNING e.id, e.attempt_count
"""

_ATTEMPTS = "DELETE FROM {schema}.executions_attempt WHERE id = ANY(%s)"

_WITH_THEM = (
    "DELETE FROM {schema}.workflows_dependency WHERE child_id = ANY(%s)",
    "DELETE FROM {schema}.workflows_steprun WHERE run_id = ANY(%s)",
    "DELETE FROM {schema}.workflows_run WHERE execution_id = ANY(%s)",
)

_LETTERS = f"""
WITH old AS MATERIALIZED (
    SELECT d.id FROM {{schema}}.deadletters_deadletter d
    WHERE d.id > %(after)s AND d.id < %(bound)s AND d.resolved_at < %(before)s AND {holds.LETTER_NOT_HELD}
      AND (NOT %(archived)s OR NOT EXISTS (
          SELECT 1 FROM {{schema}}.executions_execution e WHERE e.id = d.execution_id))
    ORDER BY d.id LIMIT %(limit)s FOR UPDATE OF d SKIP LOCKED)
DELETE FROM {{schema}}.deadletters_deadletter d USING old WHERE d.id = old.id RETURNING d.id
"""

_EVENTS = f"""
WITH old AS MATERIALIZED (
    SELECT v.id FROM {{schema}}.events_event v
    WHERE v.id > %(after)s AND v.id < %(bound)s AND v.at < %(before)s AND {holds.EVENT_NOT_HELD}
    ORDER BY v.id LIMIT %(limit)s FOR UPDATE OF v SKIP LOCKED)
DELETE FROM {{schema}}.events_event e USING old WHERE e.id = old.id RETURNING e.id
"""

# With the hidden job that its deliveries were runs of.
_WEBHOOKS = f"""
WITH old AS MATERIALIZED (
    SELECT id FROM {{schema}}.webhooks_webhook w
    WHERE w.deleted_at < %(before)s AND NOT EXISTS (
        SELECT 1 FROM {{schema}}.executions_execution e WHERE e.job_id = w.id) AND {holds.TENANT_NOT_HELD}
    ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED),
versions AS (DELETE FROM {{schema}}.schedules_jobversion v USING old WHERE v.job_id = old.id RETURNING v.job_id)
DELETE FROM {{schema}}.webhooks_webhook w USING old WHERE w.id = old.id RETURNING w.id
"""
_JOBS = "DELETE FROM {schema}.schedules_job WHERE id = ANY(%s)"

# Items first, so that no batch is large; then the operations that have none left.
_ENDED = f"finished_at < %(before)s AND {holds.TENANT_NOT_HELD}"
_ITEMS = f"""
DELETE FROM {{schema}}.operations_item WHERE ctid = ANY(ARRAY(
    SELECT i.ctid FROM {{schema}}.operations_item i
    WHERE i.operation_id IN (SELECT id FROM {{schema}}.operations_operation WHERE {_ENDED}) LIMIT %(limit)s))
RETURNING operation_id
"""
_OPERATIONS = f"""
DELETE FROM {{schema}}.operations_operation o WHERE {_ENDED} AND NOT EXISTS (
    SELECT 1 FROM {{schema}}.operations_item i WHERE i.operation_id = o.id)
"""


def forget(
    conn: Conn, schema: str, *, before: datetime, more: Callable[[], bool], archived: bool = False
) -> dict[str, int]:  # fmt: skip
    """Deletes what ended before that instant, batch by batch while `more()`; counts by kind of row.

    `archived`: executions and what goes with them are left to the archive.
    """
    counts = {"dead_letters": 0, "executions": 0, "attempts": 0, "events": 0, "webhooks": 0, "operations": 0}
    values = {**rules.parameters(conn, schema, before=before), "bound": first_id_at(before), "archived": archived}
    for step in (_letters, _executions, _events, _webhooks, _operations):
        if step is not _executions or not archived:
            _in_batches(step, conn, schema, values, more, counts)
    return counts


Step = Callable[[Conn, str, dict[str, Any], dict[str, int]], list[UUID]]


def _in_batches(
    step: Step, conn: Conn, schema: str, values: dict[str, Any], more: Callable[[], bool], counts: dict[str, int]
) -> None:
    limit, after = BATCH, NOTHING
    while more():
        values = {**values, "after": after, "limit": limit}
        try:
            with conn.transaction():
                conn.execute(f"SET LOCAL statement_timeout = {STATEMENT_MS}")
                holds.share(conn, schema)
                gone = step(conn, schema, values, counts)
        except psycopg.errors.QueryCanceled:
            limit //= 4  # too much for one short transaction on this machine now
            if limit < LEAST_BATCH:
                log.warning("retention in %s is too slow now; it goes on at the next run", schema)
                return
            continue
        if len(gone) < limit:
            return
        after = max(gone)


def _executions(conn: Conn, schema: str, values: dict[str, Any], counts: dict[str, int]) -> list[UUID]:
    gone = conn.execute(_in(_EXECUTIONS, schema), values).fetchall()
    attempts = [attempt_id(row[0], number) for row in gone for number in range(1, row[1] + 1)]
    if attempts:
        counts["attempts"] += conn.execute(_in(_ATTEMPTS, schema), [sorted(attempts)]).rowcount
    counts["executions"] += len(gone)
    ids = [row[0] for row in gone]
    if ids:
        forgotten(conn, schema, before=values["before"])
        for query in _WITH_THEM:
            conn.execute(_in(query, schema), [ids])
    return ids


def _letters(conn: Conn, schema: str, values: dict[str, Any], counts: dict[str, int]) -> list[UUID]:
    gone = [row[0] for row in conn.execute(_in(_LETTERS, schema), values)]
    counts["dead_letters"] += len(gone)
    return gone


def _events(conn: Conn, schema: str, values: dict[str, Any], counts: dict[str, int]) -> list[UUID]:
    gone = [row[0] for row in conn.execute(_in(_EVENTS, schema), values)]
    counts["events"] += len(gone)
    return gone


def _webhooks(conn: Conn, schema: str, values: dict[str, Any], counts: dict[str, int]) -> list[UUID]:
    gone = [row[0] for row in conn.execute(_in(_WEBHOOKS, schema), values)]
    if gone:
        conn.execute(_in(_JOBS, schema), [gone])
    counts["webhooks"] += len(gone)
    return gone


def _operations(conn: Conn, schema: str, values: dict[str, Any], counts: dict[str, int]) -> list[UUID]:
    gone = conn.execute(_in(_ITEMS, schema), values).fetchall()
    if len(gone) < values["limit"]:
        counts["operations"] += conn.execute(_in(_OPERATIONS, schema), values).rowcount
    return [NOTHING for _ in gone]  # the next batch begins where this one did


def _in(query: str, schema: str) -> sql.Composed:
    return sql.SQL(query).format(schema=sql.Identifier(schema))
