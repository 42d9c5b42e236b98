"""Erasing executions in SQL: what belongs to them, and what of them is emptied or removed from the tables.

The row of an execution stays, without contents, as do those of a workflow's run and its steps: what ran, when and how
it ended is a fact of the schedule, and without it completeness would see a gap and run the occurrence once more.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.usage import failures
from kernel.ids import ID_SLACK, attempt_id, first_id_at, made_at
from tenants.statements import in_schema

Conn = psycopg.Connection[Any]
AFTERWARDS = timedelta(days=1)


class Found(NamedTuple):
    """An execution in the tables, locked."""

    id: UUID
    finished_at: datetime | None
    attempt_count: int


# All that a run of a workflow started; with `everything` also the run that it is a step of, and what was run again.
_BELONGING = """
WITH RECURSIVE all_of (id) AS (
    SELECT unnest(%(ids)s::uuid[])
    UNION
    SELECT x.id FROM all_of a CROSS JOIN LATERAL (
        SELECT s.execution_id AS id FROM {schema}.workflows_steprun s
        WHERE s.run_id = a.id AND s.execution_id IS NOT NULL
        UNION ALL
        SELECT c.id FROM {schema}.executions_execution c WHERE c.workflow_run_id = a.id AND c.id <> a.id
        UNION ALL
        SELECT c.id FROM {schema}.executions_execution c WHERE c.replay_of = a.id AND %(everything)s
        UNION ALL
        SELECT e.replay_of FROM {schema}.executions_execution e
        WHERE e.id = a.id AND e.replay_of IS NOT NULL AND %(everything)s
        UNION ALL
        SELECT r.root_id FROM {schema}.executions_execution e
        JOIN {schema}.workflows_run r ON r.execution_id = e.workflow_run_id WHERE e.id = a.id AND %(everything)s
    ) x)
SELECT id FROM all_of LIMIT %(limit)s
"""

# The run of the root: it may go on while this step has ended, and hand on what the step answered.
_GOES_ON = """
SELECT root.execution_id FROM {schema}.executions_execution e
JOIN {schema}.workflows_run r ON r.execution_id = e.workflow_run_id
JOIN {schema}.workflows_run root ON root.execution_id = r.root_id
JOIN {schema}.executions_execution x ON x.id = r.root_id
WHERE e.id = ANY(%s) AND (root.finished_at IS NULL OR x.finished_at IS NULL) LIMIT 1
"""

_LOCK = """
SELECT id, finished_at, attempt_count FROM {schema}.executions_execution
WHERE id = ANY(%s) ORDER BY id FOR UPDATE
"""

_EXECUTIONS = """
UPDATE {schema}.executions_execution SET payload = NULL, result = NULL, error = NULL, labels = NULL, overrides = NULL
WHERE id = ANY(%s) AND finished_at IS NOT NULL
"""
_ATTEMPTS = "DELETE FROM {schema}.executions_attempt WHERE id = ANY(%s)"
_LETTERS = "DELETE FROM {schema}.deadletters_deadletter WHERE execution_id = ANY(%s)"
_RUNS = """
UPDATE {schema}.workflows_run SET input = NULL, output = NULL, error = NULL, paused_reason = ''
WHERE execution_id = ANY(%s)
"""
# A run tells the error of the step that failed it.
_RUNS_OF_STEPS = """
UPDATE {schema}.workflows_run r SET error = NULL FROM {schema}.executions_execution e
WHERE e.id = ANY(%s) AND r.execution_id = e.workflow_run_id AND r.error::text LIKE '%%' || e.id::text || '%%'
"""
_STEPS = """
UPDATE {schema}.workflows_steprun SET value = NULL, output = NULL, error = NULL, note = ''
WHERE execution_id = ANY(%(ids)s) OR run_id = ANY(%(ids)s)
"""

# Events of these executions; of the runs that they are steps of those that name them. Ids hold when events were made.
_EVENTS = """
DELETE FROM {schema}.events_event v
WHERE v.id >= %(first)s AND (v.execution_id = ANY(%(ids)s) OR v.execution_id IN (
    SELECT e.workflow_run_id FROM {schema}.executions_execution e WHERE e.id = ANY(%(ids)s)
) AND v.data::text LIKE ANY(%(texts)s))
RETURNING v.id
"""
# By their events; those whose events are forgotten already were made while the execution ran, or right afterwards.
_DELIVERIES = """
SELECT id FROM {schema}.executions_execution
WHERE left(run_key, 32) = ANY(%(events)s) AND trigger = 'webhook'
UNION
SELECT id FROM {schema}.executions_execution
WHERE id >= %(first)s AND id < %(last)s AND trigger = 'webhook' AND payload::text LIKE ANY(%(texts)s)
"""
_PRESENT = "SELECT id FROM {schema}.executions_execution WHERE id = ANY(%s)"

_LIVE_DELIVERIES = """
SELECT id FROM {schema}.executions_execution
WHERE id = ANY(%s) AND trigger = 'webhook' AND finished_at IS NULL ORDER BY id
"""

# Answers that are kept for an Idempotency-Key.
_ANSWERS = "DELETE FROM public.api_idempotentanswer WHERE tenant_id = %s AND body LIKE ANY(%s)"

_ITEMS = """
UPDATE {schema}.operations_item SET detail = '', before = NULL
WHERE (target_id = ANY(%(ids)s) OR made_id = ANY(%(ids)s)) AND (detail <> '' OR before IS NOT NULL)
"""
# An edited payload that an operation sent, once it is over; until then it is needed.
_PARAMS = """
UPDATE {schema}.operations_operation o SET params = o.params - 'payload'
WHERE o.finished_at IS NOT NULL AND o.params ? 'payload' AND EXISTS (
    SELECT 1 FROM {schema}.operations_item i WHERE i.operation_id = o.id AND i.made_id = ANY(%s))
RETURNING o.id
"""
_SENT_BY_LIVE = """
SELECT i.made_id FROM {schema}.operations_operation o JOIN {schema}.operations_item i ON i.operation_id = o.id
WHERE o.finished_at IS NULL AND o.params ? 'payload' AND i.made_id = ANY(%s)
"""


def belonging(conn: Conn, schema: str, ids: Collection[UUID], *, everything: bool, limit: int) -> set[UUID]:
    """The executions that go with these, these among them; at most `limit`."""
    values = {"ids": sorted(ids), "everything": everything, "limit": limit}
    return {row[0] for row in conn.execute(in_schema(_BELONGING, schema), values)}


def present(conn: Conn, schema: str, ids: Collection[UUID]) -> set[UUID]:
    """Those of these that are in the tables."""
    return {row[0] for row in conn.execute(in_schema(_PRESENT, schema), [list(ids)])}


def goes_on(conn: Conn, schema: str, ids: Collection[UUID]) -> UUID | None:
    """A workflow's run that has not ended and that one of these is a part of."""
    row = conn.execute(in_schema(_GOES_ON, schema), [sorted(ids)]).fetchone()
    return None if row is None else row[0]


def locked(conn: Conn, schema: str, ids: Collection[UUID]) -> list[Found]:
    """Those of these that are in the tables, locked in the order of their ids."""
    return [Found._make(row) for row in conn.execute(in_schema(_LOCK, schema), [sorted(ids)])]


def empty(conn: Conn, schema: str, tenant_id: int, found: Sequence[Found], others: Collection[UUID] = ()) -> set[UUID]:
    """Erases executions that have ended, from all tables; the deliveries that told of them, which are left to do.

    The caller holds their rows. Of `others`, which have left the tables, what is still there is erased, too.
    """
    ids = sorted({*others, *(one.id for one in found)})
    if not ids:
        return set()

    def run(query: str, values: Any) -> psycopg.Cursor[Any]:
        return conn.execute(in_schema(query, schema), values)

    run(_RUNS_OF_STEPS, [ids])
    run(_STEPS, {"ids": ids})
    run(_RUNS, [ids])
    run(_ATTEMPTS, [sorted(attempt_id(one.id, n) for one in found for n in range(1, one.attempt_count + 1))])
    run(_LETTERS, [ids])
    failures.forget(conn, tenant_id, ids)
    texts = [f"%{one}%" for one in ids]
    first = first_id_at(made_at(ids[0]) - ID_SLACK)
    last = first_id_at(max([made_at(ids[-1]), *(one.finished_at for one in found if one.finished_at)]) + AFTERWARDS)
    events = [row[0] for row in run(_EVENTS, {"ids": ids, "first": first, "texts": texts})]
    told = {"events": [one.hex for one in events], "first": first, "last": last, "texts": texts}
    deliveries = {row[0] for row in run(_DELIVERIES, told)}
    run(_ITEMS, {"ids": ids})
    texts += [f"%{row[0]}%" for row in run(_PARAMS, [ids])]  # an answer about the operation holds the payload, too
    run(_ANSWERS, [tenant_id, texts])
    run(_EXECUTIONS, [ids])
    return deliveries - set(ids)


def live_deliveries(conn: Conn, schema: str, ids: Collection[UUID]) -> list[UUID]:
    """Those of these that are deliveries and have not ended."""
    return [row[0] for row in conn.execute(in_schema(_LIVE_DELIVERIES, schema), [list(ids)])]


def sent_by_live_operations(conn: Conn, schema: str, ids: Collection[UUID]) -> set[UUID]:
    """Those of these whose payload an operation that goes on still holds."""
    return {row[0] for row in conn.execute(in_schema(_SENT_BY_LIVE, schema), [sorted(ids)])}
