"""What can be done to workflows. Each service is one transaction with its audit row.

Definitions of a tenant take turns, by its row: whether workflows start each other in a loop is a matter of all of them.
Then come the locks that jobs have (`apps.schedules.locked_jobs`); the jobs and workflows that one names are shared, so
that none of them goes meanwhile.
"""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import F

from apps.audit.services import Actor
from apps.due.entries import Entry
from apps.schedules import store
from apps.schedules.changes import changes, of_new
from apps.schedules.creating_jobs import job_rules
from apps.schedules.defined import definition_of
from apps.schedules.in_workflows import workflows_naming
from apps.schedules.job_input import JobForm
from apps.schedules.locked_jobs import go_on, lock_job, note, retarget, save, schedules_using, shown, stop
from apps.schedules.models import Job, JobVersion
from apps.schedules.naming import names_conflict
from apps.schedules.retry import DEFAULTS
from apps.schedules.running import job_now
from apps.usage import notices
from apps.workflows.definitions.defined import DefinedWorkflow, pointers, workflow_as_given, workflow_defined
from apps.workflows.definitions.definition import Workflow, to_json
from apps.workflows.definitions.inline import Known as KnownInline
from apps.workflows.definitions.inline import check_secrets, jobs_add, jobs_kept, jobs_rename, masks_restored
from apps.workflows.definitions.loops import Links, loop_faults
from apps.workflows.definitions.reading import Known, WorkflowForm, known_job, read_workflow, references
from kernel.errors import Conflict, InvalidInput
from kernel.ids import uuid7
from kernel.jsonrules import patched
from kernel.pools import WORKFLOW
from tenants import door
from tenants.limits import plan_locked, quota_error, use_of
from tenants.models import Plan, Tenant
from tenants.work import in_tenant

TIMEOUT_S = 28_800  # of a version's row; a run lasts as long as its steps, or until its own deadline
PRIORITY = 5
RETRY = {**DEFAULTS, "max_attempts": 1}  # steps are tried again, not runs


class _Read(NamedTuple):
    """A form with its own jobs: those that stay, and those that are to be made."""

    form: WorkflowForm
    same: dict[str, UUID]
    new: list[tuple[str, JobForm]]


def workflow_create(*, tenant: Tenant, actor: Actor, data: Any, now: datetime) -> DefinedWorkflow:
    """Makes a workflow. InvalidInput with all faults; Conflict when the name is taken; QuotaExceeded (max_jobs)."""

    def work() -> DefinedWorkflow:
        plan = plan_locked(tenant, quota="max_jobs", always=True)
        _take_place(tenant, plan, now)
        own_id = uuid7()
        read = _read(tenant, plan, own_id, data, {}, now)
        form = read.form
        job = Job(
            id=own_id, name=form.name, kind=WORKFLOW, labels=form.labels, external_id=form.external_id, created_at=now,
            updated_at=now,
        )  # fmt: skip
        job.save(force_insert=True)
        definition = _version(job, read, _with_jobs(tenant, job, read, now), now)
        definition.save(force_insert=True)
        made = workflow_defined(job, definition)
        note(actor, "workflow.create", job, now, tenant, word="workflow", after=of_new(workflow_as_given(made)))
        return made

    with names_conflict():
        return in_tenant(tenant, work)


def workflow_update(
    *, tenant: Tenant, actor: Actor, workflow_id: UUID, patch: Any, now: datetime,
    expect: Collection[int] | None = None,
) -> DefinedWorkflow:  # fmt: skip
    """Applies a JSON merge patch; steps that are given replace all steps. Stale, when `expect` lacks its revision."""
    return _change(
        tenant=tenant, actor=actor, workflow_id=workflow_id, now=now, expect=expect,
        make=lambda given: patched(given, patch),
    )  # fmt: skip


def workflow_replace(
    *, tenant: Tenant, actor: Actor, workflow_id: UUID, data: Any, now: datetime, expect: Collection[int] | None = None
) -> DefinedWorkflow:
    """Replaces the workflow's members; what is missing takes its default. Stale as in `workflow_update`."""
    return _change(tenant=tenant, actor=actor, workflow_id=workflow_id, now=now, expect=expect, make=lambda _: data)


def workflow_delete(
    *, tenant: Tenant, actor: Actor, workflow_id: UUID, now: datetime, expect: Collection[int] | None = None
) -> None:
    """Deletes a workflow that no schedule and no other workflow names; its history stays and its runs go on.

    Conflict with those that name it.
    """

    def work() -> None:
        plan_locked(tenant, quota="max_jobs", always=True)
        job, _ = lock_job(workflow_id, expect, word="workflow")
        schedules, schedule_count = schedules_using(workflow_id)
        workflows = workflows_naming(workflow_id)
        if schedules or workflows.named:
            raise Conflict(
                "Schedules or other workflows use this workflow; change or delete them first.", code="workflow_in_use",
                schedules=schedules, schedule_count=schedule_count, workflows=workflows.named,
                workflow_count=workflows.total,
            )  # fmt: skip
        job.deleted_at = now
        save(job, now, "deleted_at")
        note(actor, "workflow.delete", job, now, tenant, word="workflow", before={"name": job.name})

    in_tenant(tenant, work)


def workflow_pause(
    *, tenant: Tenant, actor: Actor, workflow_id: UUID, now: datetime, reason: str = "",
    expect: Collection[int] | None = None,
) -> DefinedWorkflow:  # fmt: skip
    """No new run of it starts until it is resumed, and no debt builds up. Runs that have begun go on. Stale."""

    def work() -> DefinedWorkflow:
        job, found = lock_job(workflow_id, expect, word="workflow")
        stop(tenant, actor, job, found, now=now, reason=reason, word="workflow")
        return workflow_defined(job)

    return in_tenant(tenant, work)


def workflow_resume(
    *, tenant: Tenant, actor: Actor, workflow_id: UUID, now: datetime, expect: Collection[int] | None = None
) -> DefinedWorkflow:
    """Lets it run again; its active schedules go on strictly from now. Stale."""

    def work() -> DefinedWorkflow:
        job, _ = lock_job(workflow_id, expect, word="workflow")
        definition = definition_of(job)
        go_on(tenant, actor, job, definition, now=now, word="workflow")
        return workflow_defined(job, definition)

    return in_tenant(tenant, work)


def workflow_rehearse(*, tenant: Tenant, data: Any, changes: DefinedWorkflow | None = None) -> WorkflowForm:
    """Reads a body as `workflow_create` would, or as a merge patch of a workflow; nothing is stored. InvalidInput."""

    def work() -> WorkflowForm:
        if changes is None:
            return _form(tenant, tenant.plan, uuid7(), data, {})
        whole = patched(workflow_as_given(changes), data)
        return _form(tenant, tenant.plan, changes.job.pk, whole, changes.inline_at())

    return in_tenant(tenant, work)


def _change(
    *, tenant: Tenant, actor: Actor, workflow_id: UUID, now: datetime, expect: Collection[int] | None,
    make: Callable[[dict[str, Any]], Any],
) -> DefinedWorkflow:  # fmt: skip
    def work() -> DefinedWorkflow:
        plan = plan_locked(tenant, quota="max_jobs", always=True)
        job, found = lock_job(workflow_id, expect, word="workflow")
        old = workflow_defined(job)
        given, known = workflow_as_given(old), old.inline_at()
        read = _read(tenant, plan, workflow_id, make(given), known, now)
        form, renamed = read.form, read.form.name != job.name
        job.name, job.labels, job.external_id = form.name, form.labels, form.external_id
        new = _redefine(tenant, old, read, found, now)
        if renamed:
            jobs_rename(job, new.inline_at())
        before, after = changes(given, workflow_as_given(new))
        if after:
            save(job, now, "name", "labels", "external_id", "version")
            note(actor, "workflow.update", job, now, tenant, word="workflow", before=before, after=after)
        return new

    with names_conflict():
        return in_tenant(tenant, work)


def _redefine(
    tenant: Tenant, old: DefinedWorkflow, read: _Read, found: list[Entry], now: datetime
) -> DefinedWorkflow:  # fmt: skip
    """A new version when the definition differs. Runs that there are keep theirs, schedules start the new one."""
    job, was = old.job, old.definition
    target = _with_jobs(tenant, job, read, now)
    if (target, read.form.input, read.form.max_active_runs) == (was.target, was.payload, was.max_concurrency):
        return old
    job.version += 1
    definition = _version(job, read, target, now)
    definition.save(force_insert=True)
    retarget(tenant, job_now(tenant, job, definition), found, was=was)
    return workflow_defined(job, definition)


def _read(tenant: Tenant, plan: Plan, own_id: UUID, data: Any, known: KnownInline, now: datetime) -> _Read:
    """Reads a body against what the tenant has, which is held until the transaction ends. InvalidInput."""
    form = _form(tenant, plan, own_id, data, known)
    return _Read(form, *jobs_kept(tenant, form.inline, known, now=now))


def _form(tenant: Tenant, plan: Plan, own_id: UUID, data: Any, known: KnownInline) -> WorkflowForm:
    given = masks_restored(data, known)
    form = read_workflow(given, rules=job_rules(tenant, plan), known=_known(tenant, given))
    faults = loop_faults(own_id, form.name, form.workflow, _links()) if _has_links(form.workflow) else []
    if faults:
        raise InvalidInput(faults)
    check_secrets(tenant, form.inline, known, pointers=pointers(form.workflow))
    return form


def _known(tenant: Tenant, data: Any) -> Known:
    named = references(data)
    ids = named.jobs | named.workflows
    shared = store.jobs_share(door.raw(), tenant.schema_name, ids) if ids else {}
    jobs = [key for key in named.jobs if key in shared and shared[key].kind != WORKFLOW]
    targets = JobVersion.objects.filter(job_id__in=jobs, version=F("job__version")).values_list("job_id", "target")
    return Known(
        jobs={key: known_job(shared[key].kind, target) for key, target in targets},
        workflows={key for key in named.workflows if key in shared and shared[key].kind == WORKFLOW},
    )


def _has_links(workflow: Workflow) -> bool:
    return bool(workflow.after or workflow.calls())


def _links() -> dict[UUID, Links]:
    """Of all workflows of the tenant: nobody changes them now."""
    rows = JobVersion.objects.filter(job__in=shown("workflow"), version=F("job__version"))
    return {
        key: Links(name, frozenset(map(UUID, calls or ())), frozenset(UUID(one["workflow"]) for one in after or ()))
        for key, name, calls, after in rows.values_list("job_id", "job__name", "target__calls", "target__after")
    }


def _with_jobs(tenant: Tenant, job: Job, read: _Read, now: datetime) -> dict[str, Any]:
    """The stored form, with the jobs that are written inside of it, which are made where they are new."""
    made = jobs_add(tenant, job, read.new, now=now) if read.new else {}
    return to_json(read.form.workflow.with_jobs({**read.same, **made}))


def _version(job: Job, read: _Read, target: dict[str, Any], now: datetime) -> JobVersion:
    return JobVersion(
        job=job, version=job.version, target=target, payload=read.form.input, timeout_s=TIMEOUT_S, retry=RETRY,
        priority=PRIORITY, max_concurrency=read.form.max_active_runs, queue="", created_at=now,
    )  # fmt: skip


def _take_place(tenant: Tenant, plan: Plan, now: datetime) -> None:
    """A workflow counts as a job."""
    use = use_of(Job.objects.filter(deleted_at=None), plan.max_jobs)
    if plan.max_jobs is not None and use >= plan.max_jobs:
        raise quota_error(quota="max_jobs", limit=plan.max_jobs, use=use, what="jobs and workflows")
    notices.crossed(door.raw(), tenant.pk, quota="max_jobs", limit=plan.max_jobs, before=use, after=use + 1, now=now)
