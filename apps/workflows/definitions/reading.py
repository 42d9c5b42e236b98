"""A workflow as its owner writes it, to what is stored: every fault at once, each with a pointer. Pure.

First `references` says which jobs and workflows a body names; whoever has the database looks them up and gives them to
`read_workflow`. Jobs that are written inline come out as job forms, by their place in the workflow.
"""

from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from apps.schedules.input_fields import Fields, json_bytes
from apps.schedules.job_input import MAX_CONCURRENCY, MAX_EXTERNAL_ID_CHARS, JobForm, JobRules
from apps.workflows.definitions.checking import check_graph, check_templates
from apps.workflows.definitions.definition import ON_FAILURE_PLACE, After, FailurePolicy, On, Step, Workflow
from apps.workflows.definitions.graph import MAX_STEPS
from apps.workflows.definitions.reading_jobs import JobReader, Known, KnownJob, References, known_job, references
from apps.workflows.definitions.reading_steps import read_step
from kernel.errors import Faults, InvalidInput

__all__ = ["Known", "KnownJob", "References", "WorkflowForm", "known_job", "read_workflow", "references"]

FIELDS = (
    "name", "steps", "failure_policy", "on_failure", "deadline_s", "max_active_runs", "input", "output", "after",
    "labels", "external_id", "description",
)  # fmt: skip
READ_ONLY = ("id", "version", "status", "paused_at", "paused_reason", "created_at", "updated_at")
FAILURE_POLICIES = ("continue", "fail_fast", "compensate")
AFTER_ON = ("succeeded", "failed", "finished")
MAX_DEFINITION_BYTES = 262_144
MAX_DESCRIPTION_CHARS = 5_000
MAX_DEADLINE_S = 366 * 86_400
MAX_AFTER = 20
MAX_ERRORS = 100  # of one answer


@dataclass(frozen=True, slots=True)
class WorkflowForm:
    """A complete, valid workflow. `inline` are its own jobs by place; `workflow` has no ids of them yet."""

    name: str
    labels: dict[str, str]
    external_id: str | None
    workflow: Workflow
    input: Any
    max_active_runs: int | None
    inline: dict[str, JobForm]


def read_workflow(data: object, *, rules: JobRules, known: Known) -> WorkflowForm:
    """Reads a complete workflow; missing members take their defaults. Raises InvalidInput with all faults."""
    faults = Faults()
    fields = Fields(data, faults)
    _raise_if_any(faults)  # what can't be stored would be found again at every level
    fields.only(FIELDS, read_only=READ_ONLY)
    size = json_bytes(fields.data)
    if size > MAX_DEFINITION_BYTES:
        faults.add("", "too_large", f"has {size:,} bytes; {MAX_DEFINITION_BYTES:,} are allowed.")
        _raise_if_any(faults)
    jobs = JobReader(faults, rules, known)
    name = fields.name()
    steps, complete = _steps(fields, jobs)
    workflow = Workflow(
        steps=steps,
        failure_policy=cast("FailurePolicy", fields.choice("failure_policy", FAILURE_POLICIES, "continue")),
        on_failure=jobs.handler(fields.data.get("on_failure"), "/on_failure", ON_FAILURE_PLACE),
        deadline_s=fields.whole("deadline_s", 1, MAX_DEADLINE_S, None),
        output=fields.data.get("output"),
        after=_after(fields, jobs),
        description=fields.text("description", most=MAX_DESCRIPTION_CHARS, lines=True) or "",
    )
    form = WorkflowForm(
        name=name,
        labels=fields.labels(),
        external_id=fields.text("external_id", most=MAX_EXTERNAL_ID_CHARS),
        workflow=workflow,
        input=fields.json("input", max_bytes=rules.max_payload_bytes),
        max_active_runs=fields.whole("max_active_runs", 1, MAX_CONCURRENCY, None),
        inline=jobs.inline,
    )
    # What is wrong with the graph is said of steps that could all be read: one that is missing would be missed below.
    if complete and check_graph(workflow, faults):
        check_templates(workflow, faults)
    _raise_if_any(faults)
    return form


def _steps(fields: Fields, jobs: JobReader) -> tuple[tuple[Step, ...], bool]:
    """The steps that could be read, and whether these are all."""
    given = fields.data.get("steps")
    if given is None:
        fields.faults.add("/steps", "required", "This field is required: the steps.")
    elif not isinstance(given, list) or not 1 <= len(given) <= MAX_STEPS:
        fields.faults.add("/steps", "range", f"must be a list of 1 to {MAX_STEPS:,} steps.")
    else:
        read = [read_step(one, f"/steps/{at}", jobs) for at, one in enumerate(given)]
        steps = tuple(step for step in read if step is not None)
        return steps, len(steps) == len(given)
    return (), False


def _after(fields: Fields, jobs: JobReader) -> tuple[After, ...]:
    """The workflows whose end starts a run of this one."""
    given = fields.data.get("after")
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > MAX_AFTER:
        fields.faults.add("/after", "range", f"must be a list of at most {MAX_AFTER} workflows.")
        return ()
    found: dict[UUID, After] = {}
    for at, one in enumerate(given):
        inner = Faults()
        part = Fields(one, inner)
        part.only(("workflow", "on"))
        on = part.choice("on", AFTER_ON, "succeeded")
        jobs.note(inner, f"/after/{at}")
        id_ = jobs.workflow(part.data.get("workflow"), f"/after/{at}/workflow")
        if id_ in found:
            fields.faults.add(f"/after/{at}/workflow", "duplicate", "This workflow stands in the list already.")
        elif id_ is not None:
            found[id_] = After(id_, cast("On", on))
    return tuple(found.values())


def _raise_if_any(faults: Faults) -> None:
    if faults.errors:
        raise InvalidInput(list(dict.fromkeys(faults.errors))[:MAX_ERRORS])
