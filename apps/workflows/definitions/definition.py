"""A workflow as it is stored in `JobVersion.target`: values, from JSON and to JSON. Pure.

What comes in here was read by `reading` when it was saved, so nothing is checked again. The JSON is the form of the
API; members with their default are left out, and jobs that were written inline are named by the id of their hidden row.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, cast
from uuid import UUID

On = Literal["succeeded", "failed", "finished", "skipped"]
Join = Literal["all", "any", "none_failed", "at_least"]
StepType = Literal["job", "workflow", "approval", "delay"]
FailurePolicy = Literal["continue", "fail_fast", "compensate"]
Operator = Literal["equals", "not_equals", "in", "greater_than", "less_than"]
OPERATORS: tuple[Operator, ...] = ("equals", "not_equals", "in", "greater_than", "less_than")
ON_FAILURE_PLACE = "on_failure"


class Edge(NamedTuple):
    """This step needs that `parent` ends in a way that fits `on`."""

    parent: str
    on: On = "succeeded"


class JobRef(NamedTuple):
    """The job that a step runs. `inline` ones belong to the workflow and are changed with it only.

    `job_id` is None between reading and saving, while the hidden row of an inline job has no id.
    """

    job_id: UUID | None
    inline: bool = False


class Condition(NamedTuple):
    """`value` is JSON with templates; `other` is plain JSON."""

    value: Any
    operator: Operator
    other: Any


@dataclass(frozen=True, slots=True)
class ForEach:
    """One execution for each of `items`: a list, or a template that gives one. At most `max_in_flight` run at once."""

    items: Any
    max_items: int = 1_000
    max_in_flight: int | None = None
    max_failures: int = 0


@dataclass(frozen=True, slots=True)
class Approval:
    """Waits for a person with at least `role`. After `timeout_s` seconds it ends as `on_timeout` says."""

    role: str = "operator"
    timeout_s: int | None = None
    on_timeout: Literal["failed", "skipped", "succeeded"] = "failed"
    message: str = ""


@dataclass(frozen=True, slots=True)
class Handler:
    """A job beside the graph: compensates a step, or runs once for a failed run. Without input: the job's payload."""

    job: JobRef
    input: Any = None


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a step says instead of its job. `retry` has only what differs; the rest of it stays the job's."""

    retry: Mapping[str, Any] | None = None
    timeout_s: int | None = None
    max_concurrency: int | None = None
    priority: int | None = None

    def __bool__(self) -> bool:
        return self != Overrides()


@dataclass(frozen=True, slots=True)
class Step:
    """One step. Which of job, workflow_id, approval and delay_s is set follows from `type`.

    `input` None means the payload of the job (or the input of the workflow) itself.
    """

    name: str
    type: StepType
    job: JobRef | None = None
    workflow_id: UUID | None = None
    approval: Approval | None = None
    delay_s: int | None = None
    needs: tuple[Edge, ...] = ()
    join: Join = "all"
    at_least: int = 0  # of the needs that must be met; only with the join at_least
    input: Any = None
    when: tuple[Condition, ...] = ()
    for_each: ForEach | None = None
    overrides: Overrides = Overrides()
    allow_failure: bool = False
    depends_on_previous: bool = False
    compensate: Handler | None = None


class After(NamedTuple):
    """A run of the other workflow that ends in a way that fits `on` starts a run of this one."""

    workflow_id: UUID
    on: On = "succeeded"


@dataclass(frozen=True, slots=True)
class Workflow:
    """All that a version of a workflow fixes, but for its default input, which is the version's payload."""

    steps: tuple[Step, ...]
    failure_policy: FailurePolicy = "continue"
    on_failure: Handler | None = None
    deadline_s: int | None = None  # of the whole run, from its start
    output: Any = None
    after: tuple[After, ...] = ()
    description: str = ""

    def jobs(self) -> Iterator[tuple[str, JobRef]]:
        """Every job that the workflow runs, with its place: the key of `with_jobs`."""
        for step in self.steps:
            if step.job is not None:
                yield step_place(step.name), step.job
            if step.compensate is not None:
                yield compensate_place(step.name), step.compensate.job
        if self.on_failure is not None:
            yield ON_FAILURE_PLACE, self.on_failure.job

    def uses(self) -> set[UUID]:
        """The ids of all jobs that the workflow runs, inline ones as well."""
        return {ref.job_id for _, ref in self.jobs() if ref.job_id is not None}

    def calls(self) -> set[UUID]:
        """The ids of the workflows that its steps run."""
        return {step.workflow_id for step in self.steps if step.workflow_id is not None}

    def with_jobs(self, ids: Mapping[str, UUID]) -> "Workflow":
        """The same with the ids of the hidden rows of its inline jobs, by place."""

        def placed(handler: Handler | None, place: str) -> Handler | None:
            if handler is None or place not in ids:
                return handler
            return replace(handler, job=JobRef(ids[place], inline=True))

        steps = tuple(
            replace(
                step,
                job=JobRef(ids[step_place(step.name)], inline=True) if step_place(step.name) in ids else step.job,
                compensate=placed(step.compensate, compensate_place(step.name)),
            )
            for step in self.steps
        )
        return replace(self, steps=steps, on_failure=placed(self.on_failure, ON_FAILURE_PLACE))


def step_place(step: str) -> str:
    """The place of a step's job."""
    return f"steps/{step}"


def compensate_place(step: str) -> str:
    """The place of the job that compensates a step."""
    return f"steps/{step}/compensate"


# -- JSON --------------------------------------------------------------------------------------------------------------


def to_json(workflow: Workflow) -> dict[str, Any]:
    """The canonical form. `uses` and `calls` are for the guards of jobs and workflows that are named here."""
    return _filled(
        steps=[_step_to(step) for step in workflow.steps],
        failure_policy=workflow.failure_policy,
        on_failure=_handler_to(workflow.on_failure),
        deadline_s=workflow.deadline_s,
        output=workflow.output,
        after=[{"workflow": str(one.workflow_id), "on": one.on} for one in workflow.after] or None,
        description=workflow.description or None,
    ) | {"uses": sorted(map(str, workflow.uses())), "calls": sorted(map(str, workflow.calls()))}


def from_json(data: Mapping[str, Any]) -> Workflow:
    """The values of stored JSON. Raises KeyError, TypeError or ValueError when it is no such JSON."""
    return Workflow(
        steps=tuple(_step_from(one) for one in data["steps"]),
        failure_policy=data.get("failure_policy", "continue"),
        on_failure=_handler_from(data.get("on_failure")),
        deadline_s=data.get("deadline_s"),
        output=data.get("output"),
        after=tuple(After(UUID(one["workflow"]), one.get("on", "succeeded")) for one in data.get("after", ())),
        description=data.get("description", ""),
    )


def _step_to(step: Step) -> dict[str, Any]:
    for_each, approval, join = step.for_each, step.approval, step.join
    return _filled(
        name=step.name,
        **_ref_to(step.job),
        workflow=None if step.workflow_id is None else str(step.workflow_id),
        approval=None
        if approval is None
        else _filled(
            role=approval.role,
            timeout_s=approval.timeout_s,
            on_timeout=approval.on_timeout,
            message=approval.message or None,
        ),
        delay_s=step.delay_s,
        needs=[{"step": edge.parent, "on": edge.on} for edge in step.needs] or None,
        join=None if join == "all" else {"at_least": step.at_least} if join == "at_least" else join,
        input=step.input,
        when=[{"value": one.value, one.operator: one.other} for one in step.when] or None,
        for_each=None
        if for_each is None
        else _filled(
            items=for_each.items,
            max_items=for_each.max_items,
            max_in_flight=for_each.max_in_flight,
            max_failures=for_each.max_failures,
        ),
        retry=None if step.overrides.retry is None else dict(step.overrides.retry),
        timeout_s=step.overrides.timeout_s,
        max_concurrency=step.overrides.max_concurrency,
        priority=step.overrides.priority,
        allow_failure=step.allow_failure or None,
        depends_on_previous=step.depends_on_previous or None,
        compensate=_handler_to(step.compensate),
    )


def _step_from(data: Mapping[str, Any]) -> Step:
    join, approval, for_each = data.get("join", "all"), data.get("approval"), data.get("for_each")
    workflow = data.get("workflow")
    return Step(
        name=data["name"],
        type=type_of(data),
        job=_ref_from(data) if "job" in data else None,
        workflow_id=None if workflow is None else UUID(workflow),
        approval=None if approval is None else Approval(**approval),
        delay_s=data.get("delay_s"),
        needs=tuple(Edge(one["step"], one.get("on", "succeeded")) for one in data.get("needs", ())),
        join="at_least" if isinstance(join, Mapping) else join,
        at_least=join["at_least"] if isinstance(join, Mapping) else 0,
        input=data.get("input"),
        when=tuple(_condition_from(one) for one in data.get("when", ())),
        for_each=None if for_each is None else ForEach(**for_each),
        overrides=Overrides(
            retry=data.get("retry"),
            timeout_s=data.get("timeout_s"),
            max_concurrency=data.get("max_concurrency"),
            priority=data.get("priority"),
        ),
        allow_failure=data.get("allow_failure", False),
        depends_on_previous=data.get("depends_on_previous", False),
        compensate=_handler_from(data.get("compensate")),
    )


def type_of(data: Mapping[str, Any]) -> StepType:
    """What kind of step a JSON object describes. Raises ValueError when it is none."""
    types = {"job": "job", "workflow": "workflow", "approval": "approval", "delay_s": "delay"}
    for member, name in types.items():
        if data.get(member) is not None:
            return cast("StepType", name)
    raise ValueError(f"A step has one of {', '.join(types)}.")


def _condition_from(data: Mapping[str, Any]) -> Condition:
    operator = next(one for one in OPERATORS if one in data)
    return Condition(data["value"], operator, data[operator])


def _ref_to(ref: JobRef | None) -> dict[str, Any]:
    if ref is None:
        return {}
    return {"job": None if ref.job_id is None else str(ref.job_id), "inline": ref.inline or None}


def _ref_from(data: Mapping[str, Any]) -> JobRef:
    return JobRef(UUID(data["job"]), data.get("inline", False))


def _handler_to(handler: Handler | None) -> dict[str, Any] | None:
    return None if handler is None else _filled(**_ref_to(handler.job), input=handler.input)


def _handler_from(data: Mapping[str, Any] | None) -> Handler | None:
    return None if data is None else Handler(_ref_from(data), data.get("input"))


def _filled(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
