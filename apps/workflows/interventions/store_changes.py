"""What persons' verbs read and write of runs and steps, in SQL. As in `store`, under the lock of the root."""

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.workflows.runs.store import STEP_COLUMNS
from apps.workflows.runs.values import StepNow
from tenants.statements import run_in

Conn = psycopg.Connection[Any]

_BY_ID = f"SELECT {STEP_COLUMNS} FROM {{schema}}.workflows_steprun s WHERE s.id = ANY($1) ORDER BY s.id"
_EXECUTION_STATES = "SELECT id, state FROM {schema}.executions_execution WHERE id = ANY($1)"
_FORGET = "UPDATE {schema}.workflows_run SET error = NULL, output = NULL WHERE execution_id = $1"
_DROP = "DELETE FROM {schema}.workflows_steprun WHERE id = ANY($1)"
_REVISION = "SELECT revision FROM {schema}.workflows_run WHERE execution_id = $1"
_CHANGED = "UPDATE {schema}.workflows_run SET revision = revision + 1 WHERE execution_id = ANY($1)"

_PAUSE = """
UPDATE {schema}.workflows_run SET paused_at = $2, paused_by = $3, paused_reason = $4 WHERE execution_id = ANY($1)
"""

_BELOW = """
WITH RECURSIVE tree AS (
    SELECT $1::uuid AS id
    UNION
    SELECT c.execution_id FROM tree t
    JOIN {schema}.workflows_steprun s ON s.run_id = t.id AND s.type = 'workflow'
    JOIN {schema}.workflows_run c ON c.parent_step_id = s.id AND c.depth > 0)
SELECT r.execution_id FROM {schema}.workflows_run r JOIN tree t ON t.id = r.execution_id
WHERE r.finished_at IS NULL ORDER BY r.execution_id
"""


def steps_by_id(conn: Conn, schema: str, ids: Collection[int]) -> list[StepNow]:
    """These rows, in the order of their ids."""
    return [StepNow(*row) for row in run_in(conn, _BY_ID, schema, [list(ids)])]


def execution_states(conn: Conn, schema: str, ids: Collection[UUID]) -> dict[UUID, str]:
    """The states in the history of these executions, of those that are kept."""
    return dict(run_in(conn, _EXECUTION_STATES, schema, [list(ids)]).fetchall()) if ids else {}


def forget_outcome(conn: Conn, schema: str, run_id: UUID) -> None:
    """A run that goes on has neither error nor output."""
    run_in(conn, _FORGET, schema, [run_id])


def drop_steps(conn: Conn, schema: str, ids: Collection[int]) -> None:
    """Deletes rows of items; their executions stay in the history."""
    if ids:
        run_in(conn, _DROP, schema, [list(ids)])


def revision_of(conn: Conn, schema: str, run_id: UUID) -> int:
    """How often persons have changed a run that is there."""
    row = run_in(conn, _REVISION, schema, [run_id]).fetchone()
    assert row is not None
    revision: int = row[0]
    return revision


def changed(conn: Conn, schema: str, run_ids: Collection[UUID]) -> None:
    """A person has changed these runs."""
    run_in(conn, _CHANGED, schema, [list(run_ids)])


def below(conn: Conn, schema: str, run_id: UUID) -> list[UUID]:
    """The run and those of its sub-workflows, near and far, that have not ended."""
    return [row[0] for row in run_in(conn, _BELOW, schema, [run_id])]


def note_pause(
    conn: Conn, schema: str, run_ids: Collection[UUID], *, at: datetime | None, by: str, reason: str
) -> None:
    """Who paused these runs, when and why; without a time nobody has."""
    run_in(conn, _PAUSE, schema, [list(run_ids), at, by, reason])
