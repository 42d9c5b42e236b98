"""The run of a workflow on the page of its execution: its picture, its steps and how each of them stands."""

from __future__ import annotations

from typing import NamedTuple

from apps.executions.reading import ExecutionRow
from apps.workflows.drawing import graph_svg
from apps.workflows.runs_reading import RunRow, run_read
from apps.workflows.runs_viewing import run_graph, run_states
from apps.workflows.steps_reading import StepRow, steps_read
from kernel.errors import Conflict
from tenants.models import Tenant

SHOWN_STEPS = 100
DRAWN_STEPS = 200  # a larger picture is for the API


class RunShown(NamedTuple):
    """What the page shows; `picture` is SVG, empty where there is none to show."""

    run: RunRow
    steps: list[StepRow]
    more: bool
    picture: str


def run_shown(tenant: Tenant, row: ExecutionRow) -> RunShown | None:
    """Of an execution that is a run of a workflow and has begun."""
    run = run_read(tenant, row.id) if row.workflow_run_id == row.id else None
    if run is None:
        return None
    steps = steps_read(tenant, run.id, limit=SHOWN_STEPS + 1)
    return RunShown(run, steps[:SHOWN_STEPS], len(steps) > SHOWN_STEPS, _picture(tenant, run))


def _picture(tenant: Tenant, run: RunRow) -> str:
    try:
        workflow = run_graph(tenant, run).workflow
    except Conflict:  # its definition can't be read any more
        return ""
    if len(workflow.steps) > DRAWN_STEPS:
        return ""
    return graph_svg(workflow, title=f"The steps of {run.workflow_name}", states=run_states(tenant, run))
