"""What waits for the ends that a settlement brings: steps of workflows, and executions that depend on others.

Without such ends nothing here asks the database anything.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.executions.store import Ended
from apps.tickets import workflow_runs
from apps.tickets.values import Started
from apps.workflows.dependencies.depending import dependents_decide
from apps.workflows.runs import advancing
from apps.workflows.runs.values import Ended as StepEnded
from kernel.stepkeys import run_of_step
from tenants.registry import Registry, Tenancy

Conn = psycopg.Connection[Any]
Followed = tuple[Started, Ended]  # something waits for how this ended


def is_step(started: Started) -> bool:
    """Whether it is the execution of a step of a workflow's run."""
    return run_of_step(started.trigger, started.run_key) is not None


def lock_runs(conn: Conn, registry: Registry, started: Sequence[Started]) -> None:
    """Locks the runs of workflows that the ends of these may take further, whatever of them is stale."""
    steps: dict[int, list[UUID]] = defaultdict(list)
    for one in started:
        if one.followed and is_step(one):
            steps[one.tenant_id].append(one.execution_id)
    for tenant_id, ids in sorted(steps.items()):
        tenancy = registry.get(tenant_id)
        if tenancy is not None:
            advancing.lock(conn, tenancy, ids)


def follow(conn: Conn, ended: Sequence[tuple[Tenancy, Sequence[Followed]]], now: datetime) -> None:
    """Starts, or decides on, what waits for what has ended. Tickets of workflows' runs are locked last."""
    looks: set[UUID] = set()
    for tenancy, found in ended:
        steps = [
            StepEnded(end.id, end.state, end.reason, end.error, end.finished_at)
            for started, end in found
            if is_step(started)
        ]
        if steps:
            looks |= advancing.advance(conn, tenancy, steps, now=now)
    for tenancy, found in ended:
        dependents_decide(conn, tenancy, {end.id: end.state for _, end in found}, now)
    workflow_runs.look_at(conn, looks)


def leave_to_others(conn: Conn, ended: Sequence[Followed]) -> None:
    """What follows from these ends could not be carried out: looks at runs and reconcile see to it, or say why not."""
    workflow_runs.look_at(conn, {run_of_step(started.trigger, started.run_key) for started, _ in ended})
