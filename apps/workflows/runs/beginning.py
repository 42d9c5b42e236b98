"""Beginning runs, many of a tenant at once: the rows of each run and of its steps, and the steps that need nothing."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any
from uuid import UUID

import psycopg

from apps.tickets.values import Started
from apps.workflows.definitions.graph import Graph
from apps.workflows.interventions import store_changes
from apps.workflows.runs import store
from apps.workflows.runs.deciding import unmet
from apps.workflows.runs.known import graphs_here
from apps.workflows.runs.store import Parent
from apps.workflows.runs.turn import Turn
from apps.workflows.runs.values import NewStep, RunNow
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]
STEPS_MAX = 2_000  # of all runs that are made in one transaction


def begin(conn: Conn, tenancy: Tenancy, started: Sequence[Started], *, now: datetime) -> Turn:
    """Makes the runs of these executions and starts their first steps; the turn has those that were made.

    Left out are those whose definition can't be read, and, after the first, those beyond STEPS_MAX steps. A run that is
    there already stays as it is. The caller has locked the roots of those that are sub-workflows.
    """
    turn, schema = Turn(conn, tenancy, now=now), tenancy.schema
    graphs = graphs_here().load(conn, schema, {(one.job_id, one.job_version) for one in started})
    readable = [one for one in started if (one.job_id, one.job_version) in graphs]
    sizes = accumulate(len(graphs[one.job_id, one.job_version].steps) for one in readable)
    known = [one for at, (one, steps) in enumerate(zip(readable, sizes, strict=True)) if not at or steps <= STEPS_MAX]
    if not known:
        return turn
    parents = store.parents(conn, schema, [one.execution_id for one in known if one.followed])
    inputs = store.payloads(conn, schema, known)
    new = [_run(one, graphs[one.job_id, one.job_version], parents, inputs, now) for one in known]
    made = store.add_runs(conn, schema, new)
    turn.take([one.execution_id for one in known])
    begun = [turn.runs[key] for key in sorted(made)]
    turn.add(store.add_steps(conn, schema, [row for run in begun for row in _steps(run)]))
    paused = {run.id for run in begun if run.id in parents and parents[run.id].paused}
    if paused:
        store_changes.note_pause(conn, schema, paused, at=now, by="", reason="The run that it is a part of is paused.")
    for run in begun:
        if run.id in paused:
            run.state = "paused"
            turn.changed_run(run)
        else:
            turn.begin(run)
    turn.go_on()
    return turn


def _run(
    started: Started, graph: Graph, parents: Mapping[UUID, Parent], inputs: Mapping[UUID, str | None], now: datetime
) -> store.NewRun:
    parent, deadline_s = parents.get(started.execution_id), graph.workflow.deadline_s
    return store.NewRun(
        execution_id=started.execution_id,
        root_id=started.execution_id if parent is None else parent.root_id,
        parent_step_id=None if parent is None else parent.step_id,
        depth=0 if parent is None else parent.depth + 1,
        workflow_id=started.job_id, version=started.job_version, input=inputs.get(started.execution_id),
        open=len(graph.steps), deadline_at=None if deadline_s is None else now + timedelta(seconds=deadline_s),
        started_at=now,
    )  # fmt: skip


def _steps(run: RunNow) -> list[NewStep]:
    return [NewStep(run.id, step.name, None, step.type, unmet(step).pending) for step in run.graph.steps.values()]
