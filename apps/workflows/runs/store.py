"""Runs and steps in SQL: one statement for many rows, in the tenant's schema and the connection's current transaction.

Whoever changes a run or a step holds the lock of its root (`lock_roots`).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg

from apps.tickets.values import Started
from apps.workflows.runs.deciding import End, end_of_step
from apps.workflows.runs.values import Ended, NewStep, RunNow, StepEnd, StepNow
from kernel.rows import json_rows
from tenants.statements import run_in

Conn = psycopg.Connection[Any]

_LOCK_OF_EXECUTIONS = """
SELECT execution_id FROM {schema}.workflows_run WHERE execution_id = ANY(ARRAY(
    SELECT r.root_id FROM {schema}.workflows_steprun s JOIN {schema}.workflows_run r ON r.execution_id = s.run_id
    WHERE s.execution_id = ANY($1)))
ORDER BY execution_id FOR UPDATE
"""

_LOCK_OF_RUNS = """
SELECT execution_id FROM {schema}.workflows_run WHERE execution_id = ANY(ARRAY(
    SELECT root_id FROM {schema}.workflows_run WHERE execution_id = ANY($1)))
ORDER BY execution_id FOR UPDATE
"""

_RUNS = """
SELECT r.execution_id, r.root_id, r.parent_step_id, r.depth, r.workflow_id, r.version, r.state, r.reason, r.open,
       r.failed, r.error IS NOT NULL, r.deadline_at, r.started_at, r.generation, e.nominal_at, e.trigger, o.trigger,
       j.name, r.finished_at
FROM {schema}.workflows_run r
JOIN {schema}.executions_execution e ON e.id = r.execution_id
JOIN {schema}.executions_execution o ON o.id = r.root_id
JOIN {schema}.schedules_job j ON j.id = r.workflow_id
WHERE r.execution_id = ANY($1)
"""

STEP_COLUMNS = """s.id, s.run_id, s.step, s.item, s.type, s.state, s.reason, s.execution_id, s.generation, s.pending,
    s.met, s.failed, s.succeeded, s.items, s.items_open, s.items_failed, s.wake_at, s.started_at, s.finished_at,
    s.forced, s.decided_by, s.note, s.error::text, s.value::text, s.output::text, s.used::text"""

_WAITING = f"""
SELECT {STEP_COLUMNS} FROM {{schema}}.workflows_steprun s
JOIN unnest($1::uuid[], $2::text[]) AS m(run_id, step) ON s.run_id = m.run_id AND s.step = m.step
WHERE s.item IS NULL AND s.state = 'waiting' ORDER BY s.id
"""

_OF_RUN = f"SELECT {STEP_COLUMNS} FROM {{schema}}.workflows_steprun s WHERE s.run_id = $1 ORDER BY s.id"

# What is written travels as JSON, of which PostgreSQL knows no number of rows, and as ids, of which it does: for the
# hundred rows that it takes JSON to be it would read all of a table that is not large.
_END = """
UPDATE {schema}.workflows_steprun s
SET state = m.state, reason = m.reason, finished_at = m.finished_at, wake_at = NULL
FROM json_to_recordset($1::json) AS m(execution_id uuid, state text, reason text, finished_at timestamptz)
WHERE s.execution_id = ANY($2::uuid[]) AND s.execution_id = m.execution_id AND s.state = 'running'
RETURNING s.id, s.run_id, s.step, s.item, s.type, s.execution_id
"""

# Steps whose execution has ended without anybody having noted it: it was cancelled or expired, or a hand was at work.
_UNNOTED = """
SELECT e.id, e.state, e.reason, e.error::text, e.finished_at
FROM {schema}.workflows_steprun s JOIN {schema}.executions_execution e ON e.id = s.execution_id
WHERE s.run_id = $1 AND s.state = 'running' AND e.finished_at IS NOT NULL
"""

_WRITE_STEPS = """
UPDATE {schema}.workflows_steprun s
SET state = m.state, reason = m.reason, execution_id = m.execution_id, generation = m.generation, pending = m.pending,
    met = m.met, failed = m.failed, succeeded = m.succeeded, items = m.items, items_open = m.items_open,
    items_failed = m.items_failed, wake_at = m.wake_at, started_at = m.started_at, finished_at = m.finished_at,
    forced = m.forced, decided_by = m.decided_by, note = m.note, error = m.error::jsonb, value = m.value::jsonb,
    output = m.output::jsonb, used = m.used::jsonb
FROM json_to_recordset($1::json)
     AS m(id bigint, state text, reason text, execution_id uuid, generation int, pending int, met int, failed int,
          succeeded int, items int, items_open int, items_failed int, wake_at timestamptz, started_at timestamptz,
          finished_at timestamptz, forced bool, decided_by text, note text, error text, value text, output text,
          used text)
WHERE s.id = ANY($2::bigint[]) AND s.id = m.id
"""

_WRITE_RUNS = """
UPDATE {schema}.workflows_run r
SET state = m.state, reason = m.reason, open = m.open, failed = m.failed, finished_at = m.finished_at,
    deadline_at = m.deadline_at, generation = m.generation,
    error = coalesce(m.error::jsonb, r.error), output = coalesce(m.output::jsonb, r.output)
FROM json_to_recordset($1::json)
     AS m(id uuid, state text, reason text, open int, failed int, finished_at timestamptz, deadline_at timestamptz,
          generation int, error text, output text)
WHERE r.execution_id = ANY($2::uuid[]) AND r.execution_id = m.id
"""

_ADD_RUNS = """
INSERT INTO {schema}.workflows_run
    (execution_id, root_id, parent_step_id, depth, workflow_id, version, state, input, reason, open, failed,
     deadline_at, started_at, paused_by, paused_reason, generation, revision)
SELECT m.execution_id, m.root_id, m.parent_step_id, m.depth, m.workflow_id, m.version, 'running', m.input::jsonb, '',
       m.open, 0, m.deadline_at, m.started_at, '', '', 1, 1
FROM json_to_recordset($1::json)
     AS m(execution_id uuid, root_id uuid, parent_step_id bigint, depth smallint, workflow_id uuid, version int,
          input text, open int, deadline_at timestamptz, started_at timestamptz)
ON CONFLICT DO NOTHING RETURNING execution_id
"""

_KNOWN = "SELECT execution_id FROM {schema}.workflows_run WHERE execution_id = ANY($1)"

_NAME_RUNS = "UPDATE {schema}.executions_execution SET workflow_run_id = id WHERE id = ANY($1)"

_ADD_STEPS = f"""
WITH s AS (
    INSERT INTO {{schema}}.workflows_steprun
        (run_id, step, item, type, state, reason, value, generation, pending, met, failed, succeeded, items_open,
         items_failed, forced, decided_by, note)
    SELECT m.run_id, m.step, m.item, m.type, 'waiting', '', m.value::jsonb, m.generation, m.pending, 0, 0, 0, 0, 0,
           false, '', ''
    FROM json_to_recordset($1::json)
         AS m(run_id uuid, step text, item int, type text, pending int, value text, generation int)
    RETURNING *)
SELECT {STEP_COLUMNS} FROM s ORDER BY s.id
"""

_NEXT_LOOK = """
SELECT run_id, min(wake_at) FROM {schema}.workflows_steprun WHERE run_id = ANY($1) AND wake_at IS NOT NULL GROUP BY 1
"""


# Of a step with a list neither: its items have executions.
_ABOVE = """
SELECT s.run_id, s.step, s.state, CASE WHEN m.whole THEN coalesce(s.output, e.result)::text END,
       CASE WHEN m.whole THEN coalesce(s.error, e.error)::text END, s.execution_id, e.attempt_count, s.items
FROM unnest($1::uuid[], $2::text[], $3::bool[]) AS m(run_id, step, whole)
JOIN {schema}.workflows_steprun s ON s.run_id = m.run_id AND s.step = m.step AND s.item IS NULL
LEFT JOIN {schema}.executions_execution e ON e.id = s.execution_id
"""

_RESULTS_OF_ITEMS = """
SELECT coalesce(json_agg(CASE WHEN s.state = 'succeeded' THEN e.result END ORDER BY s.item), '[]')::text
FROM {schema}.workflows_steprun s LEFT JOIN {schema}.executions_execution e ON e.id = s.execution_id
WHERE s.run_id = $1 AND s.step = $2 AND s.item IS NOT NULL
"""

_INPUTS = "SELECT execution_id, input::text FROM {schema}.workflows_run WHERE execution_id = ANY($1)"


# The step whose sub-workflow an execution is.
_PARENTS = """
SELECT s.execution_id, s.id, r.root_id, r.depth, r.state = 'paused'
FROM {schema}.workflows_steprun s JOIN {schema}.workflows_run r ON r.execution_id = s.run_id
WHERE s.execution_id = ANY($1)
"""

_PAYLOADS = """
SELECT e.id, CASE m.source WHEN 'execution' THEN e.payload WHEN 'schedule' THEN sv.payload ELSE jv.payload END::text
FROM unnest($1::uuid[], $2::text[]) AS m(id, source)
JOIN {schema}.executions_execution e ON e.id = m.id
JOIN {schema}.schedules_jobversion jv ON jv.job_id = e.job_id AND jv.version = e.job_version
LEFT JOIN {schema}.schedules_scheduleversion sv
       ON sv.schedule_id = e.schedule_id AND sv.version = e.schedule_version
"""


_ENDED = """
SELECT execution_id, state, finished_at, output::text, error FROM {schema}.workflows_run
WHERE execution_id = ANY($1) AND finished_at IS NOT NULL
"""

_OUTCOME = "SELECT output::text, error FROM {schema}.workflows_run WHERE execution_id = $1"


_RUNS_OF_EXECUTIONS = "SELECT DISTINCT run_id FROM {schema}.workflows_steprun WHERE execution_id = ANY($1)"


class Parent(NamedTuple):
    """The step that started a run as its sub-workflow, with its root and the depth of its own run."""

    step_id: int
    root_id: UUID
    depth: int
    paused: bool


class NewRun(NamedTuple):
    """A run's row that is to be made. `input` is a JSON text."""

    execution_id: UUID
    root_id: UUID
    parent_step_id: int | None
    depth: int
    workflow_id: UUID
    version: int
    input: str | None
    open: int
    deadline_at: datetime | None
    started_at: datetime


def known(conn: Conn, schema: str, run_ids: Collection[UUID]) -> set[UUID]:
    """Those of these runs that there are."""
    return {row[0] for row in run_in(conn, _KNOWN, schema, [list(run_ids)])}


def lock_of_executions(conn: Conn, schema: str, execution_ids: Collection[UUID]) -> None:
    """Locks, in id order, the roots of the runs whose steps have these executions."""
    run_in(conn, _LOCK_OF_EXECUTIONS, schema, [list(execution_ids)])


def lock_of_runs(conn: Conn, schema: str, run_ids: Collection[UUID]) -> list[UUID]:
    """Locks, in id order, the roots of these runs; returns the roots."""
    return [row[0] for row in run_in(conn, _LOCK_OF_RUNS, schema, [list(run_ids)])]


def runs(conn: Conn, schema: str, run_ids: Collection[UUID]) -> list[tuple[Any, ...]]:
    """What `RunNow` holds of these runs, but for the graph."""
    return run_in(conn, _RUNS, schema, [list(run_ids)]).fetchall()


def waiting(conn: Conn, schema: str, wanted: Sequence[tuple[UUID, str]]) -> list[StepNow]:
    """Those of these (run, step) that wait."""
    parameters = [[run_id for run_id, _ in wanted], [step for _, step in wanted]]
    return [StepNow(*row) for row in run_in(conn, _WAITING, schema, parameters)]


def steps_of(conn: Conn, schema: str, run_id: UUID) -> list[StepNow]:
    """All rows of a run, with those of items."""
    return [StepNow(*row) for row in run_in(conn, _OF_RUN, schema, [run_id])]


def end_steps(conn: Conn, schema: str, ended: Sequence[Ended]) -> list[StepEnd]:
    """running -> final for the steps of these executions; what is no step, or not the current one, is left out."""
    ends: dict[UUID, tuple[End, Ended]] = {}
    for one in ended:
        end = end_of_step(one.state, one.reason)
        if end is not None:
            ends[one.execution_id] = (end, one)
    rows = [
        {"execution_id": key, "state": end.state, "reason": end.reason, "finished_at": one.finished_at}
        for key, (end, one) in ends.items()
    ]
    found = run_in(conn, _END, schema, [orjson.dumps(rows).decode(), list(ends)])
    return [StepEnd._make((*row, ends[row[5]][0], ends[row[5]][1].error)) for row in found]


def unnoted(conn: Conn, schema: str, run_id: UUID) -> list[Ended]:
    """Executions of the run's steps that have ended while their steps still run."""
    return [Ended(*row) for row in run_in(conn, _UNNOTED, schema, [run_id])]


def above(conn: Conn, schema: str, wanted: Sequence[tuple[UUID, str, bool]]) -> list[tuple[Any, ...]]:
    """(run, step, state, result, error, execution, attempt, items) of these (run, step, with result and error)."""
    return run_in(conn, _ABOVE, schema, [[one[at] for one in wanted] for at in range(3)]).fetchall()


def results_of_items(conn: Conn, schema: str, run_id: UUID, step: str) -> str | None:
    """The results of a step's items in their order, as a JSON list; null where one did not succeed."""
    row = run_in(conn, _RESULTS_OF_ITEMS, schema, [run_id, step]).fetchone()
    return row[0] if row else None


def inputs_of(conn: Conn, schema: str, run_ids: Collection[UUID]) -> list[tuple[UUID, str | None]]:
    """The inputs of these runs, as JSON."""
    return run_in(conn, _INPUTS, schema, [list(run_ids)]).fetchall()


def runs_of_executions(conn: Conn, schema: str, execution_ids: Collection[UUID]) -> list[UUID]:
    """The runs whose steps have these executions."""
    return [row[0] for row in run_in(conn, _RUNS_OF_EXECUTIONS, schema, [list(execution_ids)])]


def write_steps(conn: Conn, schema: str, steps: Iterable[StepNow]) -> None:
    """Writes rows as they are in memory."""
    rows = [asdict(one) for one in steps]
    if rows:
        run_in(conn, _WRITE_STEPS, schema, [orjson.dumps(rows).decode(), [row["id"] for row in rows]])


def write_runs(conn: Conn, schema: str, changed: Iterable[RunNow]) -> None:
    """Writes rows as they are in memory; an error and an output that are not known here stay."""
    rows = [
        {
            "id": one.id, "state": one.state, "reason": one.reason, "open": one.open, "failed": one.failed,
            "finished_at": one.finished_at, "deadline_at": one.deadline_at, "generation": one.generation,
            "error": one.error, "output": one.output,
        }
        for one in changed
    ]  # fmt: skip
    if rows:
        run_in(conn, _WRITE_RUNS, schema, [orjson.dumps(rows).decode(), [row["id"] for row in rows]])


def add_runs(conn: Conn, schema: str, new: Sequence[NewRun]) -> set[UUID]:
    """Makes runs; returns those that were not there."""
    made = {row[0] for row in run_in(conn, _ADD_RUNS, schema, [json_rows(new)])}
    if made:
        run_in(conn, _NAME_RUNS, schema, [list(made)])
    return made


def parents(conn: Conn, schema: str, execution_ids: Collection[UUID]) -> dict[UUID, Parent]:
    """The steps whose executions these are."""
    if not execution_ids:
        return {}
    return {row[0]: Parent(*row[1:]) for row in run_in(conn, _PARENTS, schema, [list(execution_ids)])}


def payloads(conn: Conn, schema: str, started: Sequence[Started]) -> dict[UUID, str | None]:
    """The inputs of runs, as JSON: their own, their schedule's or their workflow's."""
    parameters = [[one.execution_id for one in started], [one.payload_from for one in started]]
    return dict(run_in(conn, _PAYLOADS, schema, parameters).fetchall())


def ended(conn: Conn, schema: str, run_ids: Collection[UUID]) -> list[tuple[Any, ...]]:
    """(run, state, finished_at, output as JSON text, error) of those of these runs that have ended."""
    return run_in(conn, _ENDED, schema, [list(run_ids)]).fetchall()


def outcome(conn: Conn, schema: str, run_id: UUID) -> tuple[str | None, dict[str, Any] | None]:
    """The output of a run, as JSON text, and its error."""
    row = run_in(conn, _OUTCOME, schema, [run_id]).fetchone()
    return (row[0], row[1]) if row else (None, None)


def add_steps(conn: Conn, schema: str, new: Sequence[NewStep]) -> list[StepNow]:
    """Makes rows of steps, which wait."""
    return [StepNow(*row) for row in run_in(conn, _ADD_STEPS, schema, [json_rows(new)])]


def next_looks(conn: Conn, schema: str, run_ids: Collection[UUID]) -> dict[UUID, datetime]:
    """When something is to be done for these runs next: the end of a delay, of the time for an approval."""
    return dict(run_in(conn, _NEXT_LOOK, schema, [list(run_ids)]).fetchall())
