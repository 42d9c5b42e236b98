"""What is read of definitions of workflows, in the tenant's schema."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db.models import F

from apps.schedules.job_input import Definition, JobForm
from apps.schedules.locked_jobs import shown
from apps.schedules.models import Job, JobVersion
from apps.workflows.definitions.defined import DefinedWorkflow, workflow_defined
from apps.workflows.definitions.definition import Workflow
from apps.workflows.definitions.inline import name_in
from apps.workflows.definitions.previewing import JobFacts, preview
from apps.workflows.definitions.reading import WorkflowForm
from kernel.errors import NotFound
from tenants.models import Tenant


def workflow_find(workflow_id: UUID) -> DefinedWorkflow:
    """A workflow in its current version. NotFound."""
    job = shown("workflow").filter(pk=workflow_id).first()
    if job is None:
        raise NotFound("There is no such workflow.")
    return workflow_defined(job)


def versions_read(job: Job, *, before: int | None, limit: int) -> list[JobVersion]:
    """Versions of a workflow by descending number, below `before`."""
    found = JobVersion.objects.filter(job_id=job.pk)
    return list((found if before is None else found.filter(version__lt=before)).order_by("-version")[:limit])


def preview_of(tenant: Tenant, form: WorkflowForm) -> dict[str, Any]:
    """What a workflow that was read would run in which order, and what limits it. In the tenant's schema."""
    workflow = form.workflow
    found = preview(
        workflow, jobs=facts_of(workflow, name=form.name, inline=form.inline), workflows=names_of(workflow.calls())
    )  # fmt: skip
    return {**found, "max_active_runs": form.max_active_runs, "max_running": tenant.plan.max_running}


def facts_of(workflow: Workflow, *, name: str, inline: Mapping[str, JobForm]) -> dict[str, JobFacts]:
    """Of the jobs of a workflow that was read, by place; `inline` are the forms of its own ones."""
    ids = {place: ref.job_id for place, ref in workflow.jobs() if ref.job_id is not None}
    rows = JobVersion.objects.filter(job_id__in=set(ids.values()), version=F("job__version")).select_related("job")
    known = {row.job_id: row for row in rows}
    found = {place: _facts(known[key], known[key].job) for place, key in ids.items() if key in known}
    return found | {
        place: _facts(form.definition, Job(id=None, name=name_in(name, place), kind=form.kind))
        for place, form in inline.items()
    }


def names_of(workflow_ids: Iterable[UUID]) -> dict[UUID, str]:
    """Names of workflows, deleted ones too."""
    return dict(Job.objects.filter(pk__in=list(workflow_ids)).values_list("pk", "name"))


def _facts(definition: JobVersion | Definition, job: Job) -> JobFacts:
    return JobFacts(
        job.pk, job.name, job.kind, job.paused_at is not None, definition.timeout_s, definition.retry["max_attempts"],
        definition.max_concurrency, definition.priority,
    )  # fmt: skip
