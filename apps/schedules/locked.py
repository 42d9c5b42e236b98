"""A schedule under its locks: its due entry first, then its row. What all that is done to schedules shares."""

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.audit.services import Actor, record
from apps.due import entries
from apps.due.entries import Entry
from apps.schedules.history import JOB_PAUSED
from apps.schedules.history_store import versions_stop
from apps.schedules.models import Schedule, ScheduleVersion
from apps.schedules.passed import pass_over
from apps.schedules.remaking import entry_for
from apps.schedules.running import JobNow
from kernel.errors import NotFound, Stale
from tenants import door
from tenants.models import Tenant
from tenants.work import Again

Status = Schedule.Status


def lock_schedule(
    schedule_id: UUID, expect: Collection[int] | None = None, *, now: datetime
) -> tuple[Entry | None, Schedule]:
    """Locks the due entry, then the row. NotFound, Stale. One whose pause is over is active from here on."""
    conn = door.raw()
    found = entries.lock(conn, [schedule_id])
    schedule = Schedule.objects.select_for_update(of=("self",)).filter(pk=schedule_id, deleted_at=None).first()
    if schedule is None:
        raise NotFound("There is no such schedule.")
    if not found and entries.next_of(conn, [schedule_id]):
        raise Again  # a resume made one while we waited for the row, and the row is not locked before the entry
    if expect is not None and schedule.revision not in expect:
        raise Stale("The schedule has changed since; read it again.")
    wake(schedule, now)
    return (found[0] if found else None), schedule


def wake(schedule: Schedule, now: datetime) -> None:
    """A pause whose time is over left no trace but in the row: its due entry has gone on by itself."""
    if schedule.status == Status.PAUSED and schedule.resume_at is not None and schedule.resume_at <= now:
        schedule.status, schedule.paused_reason = Status.ACTIVE, ""
        schedule.paused_at = schedule.resume_at = None
        schedule.save(update_fields=["status", "paused_reason", "paused_at", "resume_at"])


def entry_make(
    tenant: Tenant, job: JobNow, schedule: Schedule, definition: ScheduleVersion, now: datetime
) -> str:  # fmt: skip
    """Puts the entry from now on in the place of any other; the status that follows.

    A paused job's schedules have none. An entry that there is stays the same row: who waits for it finds it again. The
    definition, which is the newest, is saved.
    """
    entry = None if job.paused else entry_for(tenant, job, definition, labels=schedule.labels, now=now)
    if job.paused:
        stop(tenant, schedule, now, JOB_PAUSED)
    if entry is None:
        entries.remove(door.raw(), [definition.schedule_id])
        return Status.ACTIVE if job.paused else Status.COMPLETED
    entries.put(door.raw(), entry, now=now)
    return Status.ACTIVE


def entry_pass(tenant: Tenant, entry: Entry | None, now: datetime, reason: str, actor: Actor) -> None:
    """What the entry owes gets its row. The entry is the caller's to replace or remove."""
    if entry is not None:
        pass_over(door.raw(), tenant.schema_name, [entry], now=now, reason=reason, by=actor.stored)


def entry_drop(tenant: Tenant, entry: Entry | None, now: datetime, reason: str, actor: Actor) -> None:
    """Removes the entry; what it owes gets its row."""
    if entry is not None:
        entry_pass(tenant, entry, now, reason, actor)
        entries.remove(door.raw(), [entry.key])


def stop(tenant: Tenant, schedule: Schedule, now: datetime, why: str) -> None:
    """Nothing later than `now` is due of it, as its history says (see `history`), until it gets a new version."""
    versions_stop(door.raw(), tenant.schema_name, [schedule.pk], at=now, why=why)


def save(schedule: Schedule, now: datetime, *names: str) -> None:
    """Writes these fields, under the next revision."""
    schedule.revision += 1
    schedule.updated_at = now
    schedule.save(update_fields=[*names, "revision", "updated_at"])


def note(actor: Actor, action: str, schedule: Schedule, now: datetime, tenant: Tenant, **more: Any) -> None:
    """The audit row of what was done to it."""
    record(
        actor=actor, action=action, object_type="schedule", object_id=schedule.pk, now=now, tenant_id=tenant.pk, **more
    )  # fmt: skip
