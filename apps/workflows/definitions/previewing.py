"""What would run in which order, before anything does. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from apps.workflows.definitions.definition import Edge, Step, Workflow, step_place
from apps.workflows.definitions.graph import levels, parents_of

_ENDS: Mapping[str, str] = {
    "succeeded": "has succeeded", "failed": "has failed", "finished": "has ended", "skipped": "was skipped",
}  # fmt: skip
_NAMED = 5  # needs that are named in a sentence


class JobFacts(NamedTuple):
    """What a preview tells of a job. `id` is None of one that is written inline."""

    id: UUID | None
    name: str
    kind: str
    paused: bool
    timeout_s: int
    max_attempts: int
    max_concurrency: int | None
    priority: int


def preview(workflow: Workflow, *, jobs: Mapping[str, JobFacts], workflows: Mapping[UUID, str]) -> dict[str, Any]:
    """Levels by the longest path to them and each step with what lets it start and what limits it.

    `jobs` are by place, `workflows` are names by id. Steps of a level run at once when all before them took the same
    time: what starts is decided by needs, not by levels.
    """
    by_level = levels(parents_of(workflow.steps))
    level = {name: number for number, names in enumerate(by_level) for name in names}
    return {
        "step_count": len(workflow.steps),
        "depth": len(by_level),
        "width": max(map(len, by_level)),
        "levels": by_level,
        "steps": [
            _step(step, level[step.name], jobs.get(step_place(step.name)), workflows)
            for step in sorted(workflow.steps, key=lambda one: level[one.name])
        ],
    }


def starts(step: Step) -> str:
    """When a step starts, in words."""
    if not step.needs:
        when = "at once"
    elif step.join == "none_failed":
        when = f"when {_names(step.needs)} have ended, none has failed and one has succeeded"
    elif step.join == "all":
        when = f"when {_conditions(step.needs, 'and')}"
    else:
        count = 1 if step.join == "any" else step.at_least
        when = f"as soon as {count} of these is so: {_conditions(step.needs, 'or')}"
        if count > 1:
            when = when.replace(" is so", " are so", 1)
    if step.depends_on_previous:
        when += ", and the step of the run before has succeeded"
    if not step.when:
        return when
    return f"{when}, if its {'condition holds' if len(step.when) == 1 else f'{len(step.when)} conditions hold'}"


def _step(step: Step, level: int, job: JobFacts | None, workflows: Mapping[UUID, str]) -> dict[str, Any]:
    own, each = step.overrides, step.for_each
    retry = (own.retry or {}).get("max_attempts")
    return {
        "name": step.name,
        "type": step.type,
        "level": level,
        "starts": starts(step),
        "job": None if job is None else {"id": job.id, "name": job.name, "kind": job.kind, "paused": job.paused},
        "workflow": None
        if step.workflow_id is None
        else {"id": step.workflow_id, "name": workflows.get(step.workflow_id, "")},
        "items_max": None if each is None else each.max_items,
        "items_at_once": None if each is None else each.max_in_flight,
        "timeout_s": None if job is None else _first(own.timeout_s, job.timeout_s),
        "max_attempts": None if job is None else _first(retry, job.max_attempts),
        "priority": None if job is None else _first(own.priority, job.priority),
        "max_concurrency": own.max_concurrency,
        "job_max_concurrency": None if job is None else job.max_concurrency,
        "waits_for": _waits_for(step),
    }


def _waits_for(step: Step) -> str | None:
    """What a step without a job waits for."""
    if step.approval is not None:
        until = f", at most {step.approval.timeout_s:,} s" if step.approval.timeout_s is not None else ""
        return f"somebody with the role {step.approval.role}{until}"
    return None if step.delay_s is None else f"{step.delay_s:,} s"


def _conditions(needs: tuple[Edge, ...], word: str) -> str:
    parts = [f"{edge.parent} {_ENDS[edge.on]}" for edge in needs[:_NAMED]]
    if len(needs) > _NAMED:
        parts.append(f"{len(needs) - _NAMED:,} more")
    return f" {word} ".join(parts)


def _names(needs: tuple[Edge, ...]) -> str:
    named = ", ".join(edge.parent for edge in needs[:_NAMED])
    return f"{named} and {len(needs) - _NAMED:,} more" if len(needs) > _NAMED else named


def _first(own: Any, usual: Any) -> Any:
    return usual if own is None else own
