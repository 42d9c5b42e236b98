"""A workflow with its current version and the jobs that are written inside of it: as it is read, and as it was written.

The stored form names an inline job by the id of its hidden row. Such a row is never changed: a version of the workflow
that a run has keeps its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import F

from apps.schedules.defined import DefinedJob, definition_of, job_as_given
from apps.schedules.models import Job, JobVersion
from apps.schedules.retry import DEFAULTS
from apps.schedules.services_secrets import PLAIN_KINDS
from apps.workflows.definitions.definition import Workflow, compensate_place, from_json, step_place
from kernel.masking import masked_target

_NOT_INLINE = ("name", "external_id")  # of a job: one inside of a workflow has none of its own
_USUAL: Mapping[str, Any] = {"timeout_s": 60, "priority": 5, "labels": {}}
_DERIVED = ("uses", "calls")  # in the stored form, for guards
_MEMBERS: Mapping[str, Any] = {
    "steps": [], "failure_policy": "continue", "on_failure": None, "deadline_s": None, "output": None, "after": [],
    "description": None,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DefinedWorkflow:
    """A workflow with one of its versions. `inline` are its own jobs, by id."""

    job: Job
    definition: JobVersion
    inline: Mapping[UUID, DefinedJob] = field(default_factory=dict)

    @property
    def workflow(self) -> Workflow:
        """The values of its version."""
        return from_json(self.definition.target)

    def inline_at(self) -> dict[str, DefinedJob]:
        """Its own jobs by their place in it."""
        placed = ((place, ref.job_id) for place, ref in self.workflow.jobs() if ref.inline)
        return {place: self.inline[key] for place, key in placed if key is not None and key in self.inline}


def workflow_defined(job: Job, definition: JobVersion | None = None) -> DefinedWorkflow:
    """A workflow in its current version, or in this one; two queries at most."""
    found = definition_of(job) if definition is None else definition
    return DefinedWorkflow(job, found, inline_jobs(_inline_ids(found.target)))


def inline_jobs(ids: Iterable[UUID]) -> dict[UUID, DefinedJob]:
    """Jobs that are written inside of workflows, by id, in one query."""
    wanted = list(ids)
    if not wanted:
        return {}
    found = JobVersion.objects.filter(job_id__in=wanted, version=F("job__version")).select_related("job")
    return {version.job_id: DefinedJob(version.job, version) for version in found}


def workflow_as_given(defined: DefinedWorkflow, *, masked: bool = False) -> dict[str, Any]:
    """The workflow as its owner could have written it: the base of a merge patch. `masked` hides credentials."""
    job, definition = defined.job, defined.definition

    def whole(ref: Mapping[str, Any]) -> dict[str, Any]:
        rest = {name: value for name, value in ref.items() if name != "inline"}
        inline = defined.inline.get(UUID(ref["job"])) if ref.get("inline") else None
        return rest if inline is None else {**rest, "job": _job_as_given(inline, masked=masked)}

    stored = {name: value for name, value in definition.target.items() if name not in _DERIVED}
    handler = stored.get("on_failure")
    return {
        "name": job.name,
        **_MEMBERS,
        **stored,
        "steps": [_step_as_given(whole(step), whole) for step in stored["steps"]],
        "on_failure": None if handler is None else whole(handler),
        "max_active_runs": definition.max_concurrency,
        "input": definition.payload,
        "labels": job.labels,
        "external_id": job.external_id,
    }


def workflow_shape(defined: DefinedWorkflow) -> dict[str, Any]:
    """A workflow as it is answered."""
    return {**workflow_item(defined.job), **workflow_as_given(defined, masked=True)}


def workflow_item(job: Job) -> dict[str, Any]:
    """A workflow without its definition: what lists show."""
    return {
        "id": job.pk,
        "name": job.name,
        "labels": job.labels,
        "external_id": job.external_id,
        "version": job.version,
        "status": "active" if job.paused_at is None else "paused",
        "paused_at": job.paused_at,
        "paused_reason": job.paused_reason or None,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
    }


def pointers(workflow: Workflow) -> dict[str, str]:
    """Where each place of a job stands in the body, as a JSON pointer."""
    found = {"on_failure": "/on_failure/job"}
    for at, step in enumerate(workflow.steps):
        found |= {
            step_place(step.name): f"/steps/{at}/job",
            compensate_place(step.name): f"/steps/{at}/compensate/job",
        }
    return found


def _inline_ids(stored: Mapping[str, Any]) -> list[UUID]:
    holders = [*stored["steps"], *(step.get("compensate") for step in stored["steps"]), stored.get("on_failure")]
    return [UUID(one["job"]) for one in holders if one is not None and one.get("inline")]


def _step_as_given(step: dict[str, Any], whole: Any) -> dict[str, Any]:
    """Needs are as short as they may be written: what was within the bounds must stay there when it is sent back."""
    if "needs" in step:
        step["needs"] = [one["step"] if one["on"] == "succeeded" else one for one in step["needs"]]
    if "compensate" in step:
        step["compensate"] = whole(step["compensate"])
    return step


def _job_as_given(inline: DefinedJob, *, masked: bool) -> dict[str, Any]:
    """Without what it has by default."""
    given = job_as_given(inline)
    if masked and inline.job.kind not in PLAIN_KINDS:
        given["target"] = masked_target(given["target"])
    given["retry"] = {name: value for name, value in given["retry"].items() if value != DEFAULTS.get(name)} or None
    return {
        name: value
        for name, value in given.items()
        if name not in _NOT_INLINE and value is not None and _USUAL.get(name) != value
    }
