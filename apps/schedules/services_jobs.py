"""What can be done to jobs. Each service is one transaction with its audit row, under the locks of `locked_jobs`."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.audit.services import Actor
from apps.schedules.changes import changes
from apps.schedules.creating_jobs import job_rules
from apps.schedules.defined import DefinedJob, definition_of, job_as_given
from apps.schedules.following import follow_key, follow_rate
from apps.schedules.in_workflows import workflows_running
from apps.schedules.job_input import JobForm, read_job
from apps.schedules.locked_jobs import go_on, lock_job, note, retarget, save, schedules_using, stop
from apps.schedules.models import Job, JobVersion
from apps.schedules.naming import names_conflict
from apps.schedules.running import job_now
from apps.schedules.services_secrets import PLAIN_KINDS, target_kept, target_restored
from apps.tickets import pull_queues
from kernel.errors import Conflict
from kernel.jsonrules import patched
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant


def job_update(
    *, tenant: Tenant, actor: Actor, job_id: UUID, patch: Any, now: datetime, expect: Collection[int] | None = None
) -> DefinedJob:
    """Applies a JSON merge patch. Stale when `expect` does not hold the job's revision."""
    return _change(
        tenant=tenant, actor=actor, job_id=job_id, now=now, expect=expect, make=lambda given: patched(given, patch)
    )


def job_replace(
    *, tenant: Tenant, actor: Actor, job_id: UUID, data: Any, now: datetime, expect: Collection[int] | None = None
) -> DefinedJob:
    """Replaces the job's members; what is missing takes its default. Stale as in `job_update`."""
    return _change(tenant=tenant, actor=actor, job_id=job_id, now=now, expect=expect, make=lambda _: data)


def job_delete(
    *, tenant: Tenant, actor: Actor, job_id: UUID, now: datetime, expect: Collection[int] | None = None
) -> None:
    """Deletes a job that no schedule and no workflow uses; its history stays and what was submitted still runs.

    Conflict with the schedules or the workflows that use it.
    """

    def work() -> None:
        job, _ = lock_job(job_id, expect)
        names, count = schedules_using(job_id)
        if names:
            detail = "Schedules use this job; delete them or give them another job first."
            raise Conflict(detail, code="job_in_use", schedules=names, schedule_count=count)
        workflows = workflows_running(job_id)
        if workflows.named:
            detail = "Workflows run this job; change or delete them first."
            raise Conflict(detail, code="job_in_use", workflows=workflows.named, workflow_count=workflows.total)
        job.deleted_at = now
        save(job, now, "deleted_at")
        note(actor, "job.delete", job, now, tenant, before={"name": job.name})

    in_tenant(tenant, work)


def job_pause(
    *, tenant: Tenant, actor: Actor, job_id: UUID, now: datetime, reason: str = "",
    expect: Collection[int] | None = None,
) -> DefinedJob:  # fmt: skip
    """Stops the job: nothing of it starts until it is resumed, and no debt builds up. What runs goes on. Stale."""

    def work() -> DefinedJob:
        job, found = lock_job(job_id, expect)
        stop(tenant, actor, job, found, now=now, reason=reason)
        return DefinedJob(job, definition_of(job))

    return in_tenant(tenant, work)


def job_resume(
    *, tenant: Tenant, actor: Actor, job_id: UUID, now: datetime, expect: Collection[int] | None = None
) -> DefinedJob:
    """Lets the job run again; its active schedules go on strictly from now. Stale."""

    def work() -> DefinedJob:
        job, _ = lock_job(job_id, expect)
        definition = definition_of(job)
        go_on(tenant, actor, job, definition, now=now)
        return DefinedJob(job, definition)

    return in_tenant(tenant, work)


def _change(
    *, tenant: Tenant, actor: Actor, job_id: UUID, now: datetime, expect: Collection[int] | None,
    make: Callable[[dict[str, Any]], Any],
) -> DefinedJob:  # fmt: skip
    def work() -> DefinedJob:
        job, found = lock_job(job_id, expect)
        old = DefinedJob(job, definition_of(job))
        given = job_as_given(old)
        known = old.definition.target
        form = read_job(target_restored(make(given), known), rules=job_rules(tenant, tenant.plan))
        if form.kind != job.kind:
            raise Conflict("The kind of a job can't change; make another job.", code="kind_is_fixed")
        form, new = _with_target(form, known, tenant, now), old
        if form.definition.as_dict() != {name: getattr(old.definition, name) for name in form.definition.as_dict()}:
            job.version += 1
            new = DefinedJob(job, _version_add(tenant, job, form, now))
            retarget(tenant, job_now(tenant, job, new.definition), found, was=old.definition)
        labels = job.labels
        job.name, job.labels, job.external_id = form.name, form.labels, form.external_id
        before, after = changes(given, job_as_given(new))
        if after:
            save(job, now, "name", "labels", "external_id", "version")
            note(actor, "job.update", job, now, tenant, before=before, after=after)
            follow_key(tenant, new, found, was=old.definition.concurrency_key, labels_were=labels)
            follow_rate(tenant, new, was=old.definition.rate_limit)
        return new

    with names_conflict():
        return in_tenant(tenant, work)


def _with_target(form: JobForm, known: Mapping[str, Any], tenant: Tenant, now: datetime) -> JobForm:
    if form.kind in PLAIN_KINDS:
        return form
    target = target_kept(form.definition.target, known, tenant=tenant, now=now)
    return replace(form, definition=replace(form.definition, target=target))


def _version_add(tenant: Tenant, job: Job, form: JobForm, now: datetime) -> JobVersion:
    if form.definition.queue:
        pull_queues.put(door.raw(), tenant_id=tenant.pk, name=form.definition.queue, now=now)
    return JobVersion.objects.create(job=job, version=job.version, created_at=now, **form.definition.as_dict())
