"""Reading the steps of runs: pages of them, counts, approvals that wait for a person, and where their time went."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from apps.workflows.models import STEP_STATES
from apps.workflows.runs.deciding import FINAL
from apps.workflows.views.critical import Times
from apps.workflows.views.drawing import Shown
from tenants import door
from tenants.models import Tenant


class StepRow(NamedTuple):
    """A step of a run, or one item of its list, with how its execution stands. JSON members are texts."""

    id: int
    run_id: UUID
    step: str
    item: int | None
    type: str
    state: str
    reason: str
    error: str | None
    value: str | None
    output: str | None
    execution_id: UUID | None
    execution_state: str | None
    attempt_count: int
    generation: int
    items: int | None
    items_open: int
    items_failed: int
    wake_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    forced: bool
    decided_by: str
    note: str
    used: str | None


_STEPS = """
SELECT s.id, s.run_id, s.step, s.item, s.type, s.state, s.reason, coalesce(s.error, e.error)::text, s.value::text,
       s.output::text, s.execution_id, coalesce(t.state, e.state), coalesce(t.attempt, e.attempt_count, 0),
       s.generation, s.items, s.items_open, s.items_failed, s.wake_at, s.started_at, s.finished_at, s.forced,
       s.decided_by, s.note, s.used::text
FROM {schema}.workflows_steprun s
LEFT JOIN {schema}.executions_execution e ON e.id = s.execution_id
LEFT JOIN tickets_ticket t ON t.execution_id = s.execution_id
"""
# A step with a list began when the first of its items did.
_TIMES = """
SELECT s.step, s.state, s.reason, s.started_at, min(coalesce(t.first_started_at, e.started_at)), s.finished_at
FROM {schema}.workflows_steprun s
JOIN {schema}.workflows_steprun i ON i.run_id = s.run_id AND i.step = s.step
LEFT JOIN {schema}.executions_execution e ON e.id = i.execution_id
LEFT JOIN tickets_ticket t ON t.execution_id = i.execution_id
WHERE s.run_id = %s AND s.item IS NULL GROUP BY s.id
"""
_COUNTS = "SELECT state, count(*) FROM {schema}.workflows_steprun WHERE run_id = %s AND item IS NULL GROUP BY state"
_SHOWN = """
SELECT step, state, reason, items, items_open FROM {schema}.workflows_steprun WHERE run_id = %s AND item IS NULL
"""


def steps_read(
    tenant: Tenant, run_id: UUID, *, step: str | None = None, states: Sequence[str] = (), items: bool = False,
    after: int = 0, limit: int,
) -> list[StepRow]:  # fmt: skip
    """Steps of a run in the order of its definition, after the one of this number; with `items` also their items."""
    texts, values = ["s.run_id = %s", "s.id > %s"], [run_id, after]
    if step is not None:
        texts.append("s.step = %s")
        values.append(step)
    if states:
        texts.append("s.state = ANY(%s)")
        values.append(list(states))
    if not items:
        texts.append("s.item IS NULL")
    return _rows(tenant, f"{_STEPS} WHERE {' AND '.join(texts)} ORDER BY s.id LIMIT %s", [*values, limit])


def step_read(tenant: Tenant, run_id: UUID, step: str, *, item: int | None = None) -> StepRow | None:
    """One step, or one item of its list."""
    query = f"{_STEPS} WHERE s.run_id = %s AND s.step = %s AND s.item IS NOT DISTINCT FROM %s"
    found = _rows(tenant, query, [run_id, step, item])
    return found[0] if found else None


def approvals_read(tenant: Tenant, *, after: int = 0, limit: int) -> list[StepRow]:
    """Approvals that wait for somebody, the longest waiting first, after the one of this number."""
    query = f"{_STEPS} WHERE s.type = 'approval' AND s.state = 'running' AND s.id > %s ORDER BY s.id LIMIT %s"
    return _rows(tenant, query, [after, limit])


def step_counts(tenant: Tenant, run_id: UUID) -> dict[str, int]:
    """How many steps are in which state; every state is named."""
    return dict.fromkeys(STEP_STATES, 0) | dict(_execute(tenant, _COUNTS, [run_id]).fetchall())


def step_times(tenant: Tenant, run_id: UUID) -> dict[str, Times]:
    """When the steps of a run were let start, began and ended."""
    return {row[0]: Times(*row[1:]) for row in _execute(tenant, _TIMES, [run_id])}


def states_shown(tenant: Tenant, run_id: UUID) -> dict[str, Shown]:
    """The states of a run's steps, for its picture; with a reason, or how many items of a list have ended."""
    found = {}
    for step, state, reason, items, items_open in _execute(tenant, _SHOWN, [run_id]):
        of_list = f"{items - items_open:,} of {items:,} items" if items is not None and state not in FINAL else ""
        found[step] = Shown(state, reason or of_list)
    return found


def _rows(tenant: Tenant, query: str, values: list[Any]) -> list[StepRow]:
    return [StepRow(*row) for row in _execute(tenant, query, values)]


def _execute(tenant: Tenant, query: str, values: list[Any]) -> psycopg.Cursor[Any]:
    return door.raw().execute(sql.SQL(query).format(schema=sql.Identifier(tenant.schema_name)), values)
