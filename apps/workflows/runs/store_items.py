"""Rows of items of steps that run over a list, in SQL. As in `store`, under the lock of the root."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import psycopg

from apps.workflows.runs.store import STEP_COLUMNS
from apps.workflows.runs.values import StepNow
from tenants.statements import run_in

Conn = psycopg.Connection[Any]

_STEPS = f"""
SELECT {STEP_COLUMNS} FROM {{schema}}.workflows_steprun s
JOIN unnest($1::uuid[], $2::text[]) AS m(run_id, step) ON s.run_id = m.run_id AND s.step = m.step
WHERE s.item IS NULL ORDER BY s.id
"""

_WAITING = f"""
SELECT {STEP_COLUMNS} FROM {{schema}}.workflows_steprun s
WHERE s.run_id = $1 AND s.step = $2 AND s.item IS NOT NULL AND s.state = 'waiting' AND s.id <> ALL($3)
ORDER BY s.item LIMIT $4
"""

_RUNNING = """
SELECT count(*) FROM {schema}.workflows_steprun s
WHERE s.run_id = $1 AND s.step = $2 AND s.item IS NOT NULL AND s.state = 'running' AND s.id <> ALL($3)
"""


def steps(conn: Conn, schema: str, wanted: Sequence[tuple[UUID, str]]) -> list[StepNow]:
    """The rows of these (run, step) themselves, without their items."""
    parameters = [[run_id for run_id, _ in wanted], [step for _, step in wanted]]
    return [StepNow(*row) for row in run_in(conn, _STEPS, schema, parameters)]


def waiting(
    conn: Conn, schema: str, run_id: UUID, step: str, *, but: Collection[int], most: int | None
) -> list[StepNow]:
    """Items of a step that wait, the first places first, without these rows."""
    return [StepNow(*row) for row in run_in(conn, _WAITING, schema, [run_id, step, list(but), most])]


def running(conn: Conn, schema: str, run_id: UUID, step: str, *, but: Collection[int]) -> int:
    """How many items of a step run, without these rows."""
    row = run_in(conn, _RUNNING, schema, [run_id, step, list(but)]).fetchone()
    return int(row[0]) if row else 0
