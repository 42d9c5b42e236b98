"""Loops between workflows: one that runs itself, however many others are between. Pure.

A workflow starts another one by a step that runs it, and by its end where the other one follows it. From the one that
is started on the same is true, so a loop would never come to rest.
"""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from apps.workflows.definitions.definition import Workflow
from apps.workflows.definitions.graph import cycle_in, levels, reversed_of
from kernel.errors import FieldError

DEPTH_MAX = 5  # of workflows that run workflows, the outermost included


class Links(NamedTuple):
    """What a stored workflow starts and what starts it: workflows that its steps run, and those that it follows."""

    name: str
    calls: frozenset[UUID] = frozenset()
    after: frozenset[UUID] = frozenset()


def links_of(name: str, workflow: Workflow) -> Links:
    """The links of a workflow."""
    return Links(name, frozenset(workflow.calls()), frozenset(one.workflow_id for one in workflow.after))


def loop_faults(own_id: UUID, name: str, workflow: Workflow, others: Mapping[UUID, Links]) -> list[FieldError]:
    """What is wrong with the links of a workflow among those of the tenant's other ones, which have no loop."""
    every = {**others, own_id: links_of(name, workflow)}
    started_by: dict[UUID, set[UUID]] = {one: set(links.after) & every.keys() for one, links in every.items()}
    called_by: dict[UUID, set[UUID]] = {one: set() for one in every}
    for one, links in every.items():
        for called in links.calls & every.keys():
            started_by[called].add(one)
            called_by[called].add(one)
    cycle = cycle_in(started_by)
    if cycle is not None:
        shown = " -> ".join(every[one].name for one in cycle)
        return [FieldError(_pointer(own_id, workflow, set(cycle)), "workflow_cycle", f"Would start itself: {shown}.")]
    depth = _depth(own_id, called_by)
    if depth > DEPTH_MAX:
        detail = f"Workflows would run in workflows {depth} deep; {DEPTH_MAX} are allowed."
        return [FieldError("/steps", "too_deep", detail)]
    return []


def _pointer(own_id: UUID, workflow: Workflow, loop: set[UUID]) -> str:
    """Where the workflow names one of the loop."""
    for at, step in enumerate(workflow.steps):
        if step.workflow_id is not None and step.workflow_id in loop:
            return f"/steps/{at}/workflow"
    return next((f"/after/{at}/workflow" for at, one in enumerate(workflow.after) if one.workflow_id in loop), "/after")


def _depth(own_id: UUID, called_by: Mapping[UUID, set[UUID]]) -> int:
    """The longest chain of calls that goes through a workflow."""

    def longest(above: Mapping[UUID, "set[UUID] | list[UUID]"]) -> int:
        return next(number for number, level in enumerate(levels(above)) if own_id in level)

    return longest(called_by) + 1 + longest(reversed_of(called_by))
