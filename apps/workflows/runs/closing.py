"""What a failed run still does when all its steps have ended: it compensates, then tells. Pure.

Under the policy `compensate` the compensations of all steps that succeeded run one after another, the last ended first;
one that fails does not keep the others from running. Then the job of `on_failure` runs, once for each time that the run
fails. Neither changes how the run ends.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from apps.workflows.definitions.definition import Handler, Workflow
from apps.workflows.definitions.graph import Graph
from apps.workflows.runs.deciding import FINAL

COMPENSATION, ON_FAILURE = "compensation", "on_failure"  # types of rows that are beside the graph
TYPES = (COMPENSATION, ON_FAILURE)
UNDO = "undo."  # before the name of the step; no step has a dot in its name
ON_FAILURE_STEP = "run.on_failure"


class Row(NamedTuple):
    """A row of the run, without those of items."""

    step: str
    type: str
    state: str
    generation: int
    finished_at: datetime | None


class Next(NamedTuple):
    """The row that starts now. It is made, or goes back where it is there already."""

    step: str
    type: str


def closing(graph: Graph, rows: Iterable[Row], *, generation: int) -> Next | None:
    """What a run that is about to end as failed does next. `generation` is the run's: it grows when it is retried."""
    known = {one.step: one for one in rows}
    for step in compensated(graph, known.values()):
        undo = known.get(UNDO + step)
        if undo is None or undo.state not in FINAL:
            return Next(UNDO + step, COMPENSATION)
    if graph.workflow.on_failure is None:
        return None
    told = known.get(ON_FAILURE_STEP)
    if told is None or told.state not in FINAL or told.generation < generation:
        return Next(ON_FAILURE_STEP, ON_FAILURE)
    return None


def is_asked(workflow: Workflow) -> bool:
    """Whether there is anything to do for a run that fails."""
    return workflow.on_failure is not None or workflow.failure_policy == "compensate"


def compensated(graph: Graph, rows: Iterable[Row]) -> list[str]:
    """The steps whose compensations run, in that order."""
    if graph.workflow.failure_policy != "compensate":
        return []
    ended = [
        (one.finished_at, graph.place[one.step], one.step)
        for one in rows
        if one.state == "succeeded" and one.step in graph.steps and graph.steps[one.step].compensate is not None
        and one.finished_at is not None
    ]  # fmt: skip
    return [step for _, _, step in sorted(ended, reverse=True)]


def handler_of(graph: Graph, step: str) -> Handler | None:
    """The job that a row beside the graph runs; None when the row is a step of the graph."""
    if step == ON_FAILURE_STEP:
        return graph.workflow.on_failure
    if step.startswith(UNDO):
        return graph.steps[step.removeprefix(UNDO)].compensate
    return None
