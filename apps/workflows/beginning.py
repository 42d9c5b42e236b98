"""Beginning runs: the rows of a run and its steps, and the steps that need nothing."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.tickets.values import Started
from apps.workflows import store
from apps.workflows.deciding import unmet
from apps.workflows.graph import Graph
from apps.workflows.turn import Turn, graphs_here
from apps.workflows.values import NewStep
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]


class Parent(NamedTuple):
    """The step that starts a run as its sub-workflow."""

    step_id: int
    root_id: UUID
    depth: int


def begin(conn: Conn, tenancy: Tenancy, started: Started, *, now: datetime) -> Turn | None:
    """Makes the run of an execution and starts its first steps; None when its definition can't be read.

    A run that is there already stays as it is. The caller holds the lock of the root, if another run is that.
    """
    key = (started.job_id, started.job_version)
    graph = graphs_here().load(conn, tenancy.schema, {key}).get(key)
    if graph is None:
        return None
    parent = store.parents(conn, tenancy.schema, [started.execution_id]).get(started.execution_id)
    new = _run(
        started, graph, None if parent is None else Parent(*parent), store.payload(conn, tenancy.schema, started), now
    )
    made = store.add_runs(conn, tenancy.schema, [new])
    turn = Turn(conn, tenancy, now=now)
    turn.take([started.execution_id])
    if made:
        run = turn.runs[started.execution_id]
        rows = [NewStep(run.id, step.name, None, step.type, unmet(step).pending) for step in graph.steps.values()]
        turn.add(store.add_steps(conn, tenancy.schema, rows))
        turn.begin(run)
    return turn


def _run(started: Started, graph: Graph, parent: Parent | None, payload: str | None, now: datetime) -> store.NewRun:
    deadline_s = graph.workflow.deadline_s
    return store.NewRun(
        execution_id=started.execution_id,
        root_id=started.execution_id if parent is None else parent.root_id,
        parent_step_id=None if parent is None else parent.step_id,
        depth=0 if parent is None else parent.depth + 1,
        workflow_id=started.job_id, version=started.job_version, input=payload, open=len(graph.steps),
        deadline_at=None if deadline_s is None else now + timedelta(seconds=deadline_s), started_at=now,
    )  # fmt: skip
