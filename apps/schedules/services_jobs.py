"""What can be done to jobs. Each service is one transaction with its audit row.

Locks are taken in one order, which fire and the services of schedules share: due entries by key, schedule rows by id,
then the job's row. Afterwards it is looked again whether a schedule or an entry has come meanwhile; then all starts
anew.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.audit.services import Actor, record
from apps.due import delayed, entries
from apps.due.entries import Entry
from apps.executions.models import Execution
from apps.schedules.changes import changes
from apps.schedules.creating_jobs import job_rules
from apps.schedules.defined import DefinedJob, definition_of, job_as_given
from apps.schedules.following import follow_key, follow_rate
from apps.schedules.job_input import JobForm, read_job
from apps.schedules.models import Job, JobVersion, Schedule
from apps.schedules.naming import names_conflict
from apps.schedules.passed import pass_over
from apps.schedules.remaking import remake_all
from apps.schedules.running import JobNow, job_now
from apps.schedules.services_secrets import PLAIN_KINDS, target_kept, target_restored
from apps.tickets import gates, pull_queues
from kernel.errors import Conflict, NotFound, Stale
from kernel.jsonrules import patched
from tenants import door
from tenants.models import Tenant
from tenants.work import Again, in_tenant

SHOWN_SCHEDULES = 20  # in the answer that refuses to delete a job


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
    """Deletes a job that no schedule uses; its history stays and what was submitted still runs.

    Conflict with the schedules that use it.
    """

    def work() -> None:
        job, _ = _lock(tenant, job_id, expect)
        using = Schedule.objects.filter(job_id=job_id, deleted_at=None).order_by("pk")
        names = [{"id": str(pk), "name": name} for pk, name in using.values_list("pk", "name")[:SHOWN_SCHEDULES]]
        if names:
            detail = "Schedules use this job; delete them or give them another job first."
            raise Conflict(detail, code="job_in_use", schedules=names, schedule_count=using.count())
        job.deleted_at = now
        _save(job, now, "deleted_at")
        _record(actor, "job.delete", job, now, tenant, before={"name": job.name})

    in_tenant(tenant, work)


def job_pause(
    *, tenant: Tenant, actor: Actor, job_id: UUID, now: datetime, reason: str = "",
    expect: Collection[int] | None = None,
) -> DefinedJob:  # fmt: skip
    """Stops the job: nothing of it starts until it is resumed, and no debt builds up. What runs goes on. Stale."""

    def work() -> DefinedJob:
        job, found = _lock(tenant, job_id, expect)
        if job.paused_at is None:
            job.paused_at, job.paused_reason = now, reason
            _save(job, now, "paused_at", "paused_reason")
            conn = door.raw()
            pass_over(conn, tenant.schema_name, found, now=now, reason="job_paused", by=actor.stored)
            entries.remove(conn, [entry.key for entry in found])
            _set_limit(tenant, job_id, gates.CLOSED)
            _record(actor, "job.pause", job, now, tenant, reason=reason)
        return DefinedJob(job, definition_of(job))

    return in_tenant(tenant, work)


def job_resume(
    *, tenant: Tenant, actor: Actor, job_id: UUID, now: datetime, expect: Collection[int] | None = None
) -> DefinedJob:
    """Lets the job run again; its active schedules go on strictly from now. Stale."""

    def work() -> DefinedJob:
        job, _ = _lock(tenant, job_id, expect)
        definition = definition_of(job)
        if job.paused_at is not None:
            stopped_at, job.paused_at, job.paused_reason = job.paused_at, None, ""
            _save(job, now, "paused_at", "paused_reason")
            _set_limit(tenant, job_id, definition.max_concurrency)
            remake_all(tenant, job_now(tenant, job, definition), now=now, stopped_at=stopped_at)
            _record(actor, "job.resume", job, now, tenant)
        return DefinedJob(job, definition)

    return in_tenant(tenant, work)


def _change(
    *, tenant: Tenant, actor: Actor, job_id: UUID, now: datetime, expect: Collection[int] | None,
    make: Callable[[dict[str, Any]], Any],
) -> DefinedJob:  # fmt: skip
    def work() -> DefinedJob:
        job, found = _lock(tenant, job_id, expect)
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
            _retarget(tenant, job_now(tenant, job, new.definition), found, was=old.definition)
        labels = job.labels
        job.name, job.labels, job.external_id = form.name, form.labels, form.external_id
        before, after = changes(given, job_as_given(new))
        if after:
            _save(job, now, "name", "labels", "external_id", "version")
            _record(actor, "job.update", job, now, tenant, before=before, after=after)
            follow_key(tenant, new, found, was=old.definition.concurrency_key, labels_were=labels)
            follow_rate(tenant, new, was=old.definition.rate_limit)
        return new

    with names_conflict():
        return in_tenant(tenant, work)


def _lock(tenant: Tenant, job_id: UUID, expect: Collection[int] | None) -> tuple[Job, list[Entry]]:
    """The job's row and the due entries of its schedules, locked. NotFound, Stale."""
    conn = door.raw()
    keys = _schedules_of(job_id)
    found = entries.lock(conn, keys)
    list(Schedule.objects.select_for_update(of=("self",)).filter(pk__in=keys).order_by("pk").values_list("pk"))
    job = Job.objects.select_for_update().filter(pk=job_id, deleted_at=None).first()
    if job is None:
        raise NotFound("There is no such job.")
    if expect is not None and job.revision not in expect:
        raise Stale("The job has changed since; read it again.")
    joined = set(_schedules_of(job_id)) - set(keys)
    if joined or set(entries.next_of(conn, keys)) - {entry.key for entry in found}:
        raise Again  # a schedule was made or resumed before we had its row
    return job, [entry for entry in found if entry.job_id == job_id]


def _schedules_of(job_id: UUID) -> list[UUID]:
    return list(Schedule.objects.filter(job_id=job_id, deleted_at=None).values_list("pk", flat=True))


def _with_target(form: JobForm, known: Mapping[str, Any], tenant: Tenant, now: datetime) -> JobForm:
    if form.kind in PLAIN_KINDS:
        return form
    target = target_kept(form.definition.target, known, tenant=tenant, now=now)
    return replace(form, definition=replace(form.definition, target=target))


def _version_add(tenant: Tenant, job: Job, form: JobForm, now: datetime) -> JobVersion:
    if form.definition.queue:
        pull_queues.put(door.raw(), tenant_id=tenant.pk, name=form.definition.queue, now=now)
    return JobVersion.objects.create(job=job, version=job.version, created_at=now, **form.definition.as_dict())


def _retarget(tenant: Tenant, job: JobNow, found: list[Entry], *, was: JobVersion) -> None:
    """Entries fire the new version from now on; runs that are alive keep theirs, but follow a new limit."""
    entries.retarget(
        door.raw(), [entry.key for entry in found], job_version=job.version, pool=job.pool, queue=job.queue,
        priority=job.priority, timeout_s=job.timeout_s, max_concurrency=job.max_concurrency,
        max_queue_age_s=job.max_queue_age_s, total_timeout_s=job.total_timeout_s,
    )  # fmt: skip
    if job.max_concurrency != was.max_concurrency and not job.paused:
        _set_limit(tenant, job.id, job.max_concurrency)


def _set_limit(tenant: Tenant, job_id: UUID, limit: int | None) -> None:
    conn = door.raw()
    waiting = Execution.objects.filter(job_id=job_id, state="scheduled").values_list("pk", flat=True)
    delayed.set_limit(conn, list(waiting), limit)
    gates.set_limit(conn, tenant_id=tenant.pk, job_id=job_id, limit=limit)


def _save(job: Job, now: datetime, *names: str) -> None:
    job.revision += 1
    job.updated_at = now
    job.save(update_fields=[*names, "revision", "updated_at"])


def _record(actor: Actor, action: str, job: Job, now: datetime, tenant: Tenant, **more: Any) -> None:
    record(
        actor=actor, action=action, object_type="job", object_id=job.pk, now=now, tenant_id=tenant.pk, **more
    )  # fmt: skip
