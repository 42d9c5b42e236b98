"""A job or a workflow under its locks: the due entries of its schedules, those schedules, its row.

What all that is done to jobs and to workflows, which are jobs of a kind of their own, shares.

Fire and the services of schedules take the locks in the same order. Afterwards it is looked again whether a schedule or
an entry has come meanwhile; then all starts anew.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from apps.audit.services import Actor, record
from apps.due import delayed, entries
from apps.due.entries import Entry
from apps.executions.models import Execution
from apps.schedules.history import JOB_PAUSED
from apps.schedules.history_store import versions_stop
from apps.schedules.models import Job, JobVersion, Schedule
from apps.schedules.passed import pass_over
from apps.schedules.remaking import remake_all
from apps.schedules.running import JobNow, job_now
from apps.schedules.schedule_input import Word
from apps.tickets import gates
from kernel.errors import NotFound, Stale
from kernel.pools import WORKFLOW
from tenants import door
from tenants.models import Tenant
from tenants.work import Again

SHOWN_SCHEDULES = 20  # in an answer that names those which use something


def shown(word: Word) -> "QuerySet[Job]":
    """What is there for its users as a job, or as a workflow."""
    alive = Job.objects.filter(deleted_at=None)
    return alive.filter(kind=WORKFLOW) if word == "workflow" else alive.exclude(kind=WORKFLOW)


def lock_job(job_id: UUID, expect: Collection[int] | None = None, *, word: Word = "job") -> tuple[Job, list[Entry]]:
    """The row and the due entries of its schedules, locked. NotFound, Stale."""
    conn = door.raw()
    keys = _schedules_of(job_id)
    found = entries.lock(conn, keys)
    list(Schedule.objects.select_for_update(of=("self",)).filter(pk__in=keys).order_by("pk").values_list("pk"))
    job = shown(word).select_for_update().filter(pk=job_id).first()
    if job is None:
        raise NotFound(f"There is no such {word}.")
    if expect is not None and job.revision not in expect:
        raise Stale(f"The {word} has changed since; read it again.")
    joined = set(_schedules_of(job_id)) - set(keys)
    if joined or set(entries.next_of(conn, keys)) - {entry.key for entry in found}:
        raise Again  # a schedule was made or resumed before we had its row
    return job, [entry for entry in found if entry.job_id == job_id]


def retarget(tenant: Tenant, job: JobNow, found: list[Entry], *, was: JobVersion) -> None:
    """Entries fire the new version from now on; runs that are alive keep theirs, but follow a new limit."""
    entries.retarget(
        door.raw(), [entry.key for entry in found], job_version=job.version, pool=job.pool, queue=job.queue,
        priority=job.priority, timeout_s=job.timeout_s, max_concurrency=job.max_concurrency,
        max_queue_age_s=job.max_queue_age_s, total_timeout_s=job.total_timeout_s,
    )  # fmt: skip
    if job.max_concurrency != was.max_concurrency and not job.paused:
        _set_limit(tenant, job.id, job.max_concurrency)


def stop(
    tenant: Tenant, actor: Actor, job: Job, found: list[Entry], *, now: datetime, reason: str, word: Word = "job"
) -> None:
    """Nothing of it starts until it goes on, and its schedules build up no debt. What has stopped stays as it is."""
    if job.paused_at is not None:
        return
    job.paused_at, job.paused_reason = now, reason
    save(job, now, "paused_at", "paused_reason")
    conn = door.raw()
    pass_over(conn, tenant.schema_name, found, now=now, reason="job_paused", by=actor.stored)
    entries.remove(conn, [entry.key for entry in found])
    versions_stop(conn, tenant.schema_name, _schedules_of(job.pk), at=now, why=JOB_PAUSED)
    _set_limit(tenant, job.pk, gates.CLOSED)
    note(actor, f"{word}.pause", job, now, tenant, word=word, reason=reason)


def go_on(
    tenant: Tenant, actor: Actor, job: Job, definition: JobVersion, *, now: datetime, word: Word = "job"
) -> None:  # fmt: skip
    """It runs again; its active schedules go on strictly from now."""
    if job.paused_at is None:
        return
    stopped_at, job.paused_at, job.paused_reason = job.paused_at, None, ""
    save(job, now, "paused_at", "paused_reason")
    _set_limit(tenant, job.pk, definition.max_concurrency)
    remake_all(tenant, job_now(tenant, job, definition), now=now, stopped_at=stopped_at)
    note(actor, f"{word}.resume", job, now, tenant, word=word)


def schedules_using(job_id: UUID) -> tuple[list[dict[str, str]], int]:
    """The first SHOWN_SCHEDULES schedules of a job, and how many there are."""
    using = Schedule.objects.filter(job_id=job_id, deleted_at=None).order_by("pk")
    named = [{"id": str(pk), "name": name} for pk, name in using.values_list("pk", "name")[:SHOWN_SCHEDULES]]
    return named, using.count() if len(named) == SHOWN_SCHEDULES else len(named)


def save(job: Job, now: datetime, *names: str) -> None:
    """Writes these fields, under the next revision."""
    job.revision += 1
    job.updated_at = now
    job.save(update_fields=[*names, "revision", "updated_at"])


def note(
    actor: Actor, action: str, job: Job, now: datetime, tenant: Tenant, *, word: Word = "job", **more: Any
) -> None:  # fmt: skip
    """The audit row of what was done to it."""
    record(actor=actor, action=action, object_type=word, object_id=job.pk, now=now, tenant_id=tenant.pk, **more)


def _schedules_of(job_id: UUID) -> list[UUID]:
    return list(Schedule.objects.filter(job_id=job_id, deleted_at=None).values_list("pk", flat=True))


def _set_limit(tenant: Tenant, job_id: UUID, limit: int | None) -> None:
    conn = door.raw()
    waiting = Execution.objects.filter(job_id=job_id, state="scheduled").values_list("pk", flat=True)
    delayed.set_limit(conn, list(waiting), limit)
    gates.set_limit(conn, tenant_id=tenant.pk, job_id=job_id, limit=limit)
