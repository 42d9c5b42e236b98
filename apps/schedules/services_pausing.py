"""Pausing and resuming a schedule, by its people. Each service is one transaction with its audit row."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from apps.audit.services import Actor
from apps.due import entries
from apps.events import store as events
from apps.schedules.catching_up import catch_up_behind_gate
from apps.schedules.defined import DefinedSchedule, version_of
from apps.schedules.history import JOB_PAUSED, PAUSED
from apps.schedules.locked import entry_make, entry_pass, lock_schedule, note, save, stop
from apps.schedules.models import Schedule, ScheduleVersion
from apps.schedules.pausing import paused_event
from apps.schedules.policy import first_due
from apps.schedules.remaking import rebased_text, version_copy
from apps.schedules.running import share_job
from apps.schedules.timing import TimingInvalid, spec_from_json
from apps.schedules.timing_triggers import instant_text
from kernel.errors import Conflict
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant

Status = Schedule.Status


def schedule_pause(
    *,
    tenant: Tenant,
    actor: Actor,
    schedule_id: UUID,
    now: datetime,
    reason: str = "",
    resume_at: datetime | None = None,
    expect: Collection[int] | None = None,
) -> DefinedSchedule:
    """Stops a schedule until `resume_at`, or until somebody resumes it; no debt builds up. Conflict when completed.

    With `resume_at` it goes on by itself: its due entry waits for the first instant after that time. A schedule that
    is paused already is paused as this says: until another time, for another reason, or without an end. Stale when
    `expect` does not hold the schedule's revision.
    """

    def work() -> DefinedSchedule:
        entry, schedule = lock_schedule(schedule_id, expect, now=now)
        definition = version_of(schedule)
        if schedule.status == Status.COMPLETED or (entry is None and _is_over(schedule, definition, now)):
            raise Conflict("The schedule is completed: there is nothing to pause.", code="schedule_completed")
        other_reason = bool(reason) and reason != schedule.paused_reason
        if schedule.status == Status.ACTIVE or resume_at != schedule.resume_at or other_reason:
            reason_now = reason or schedule.paused_reason
            entry_pass(tenant, entry, now, "schedule_paused", actor)
            stop(tenant, schedule, now, PAUSED)
            if schedule.status == Status.ACTIVE:
                schedule.paused_at = now
            schedule.status, schedule.paused_reason, schedule.resume_at = Status.PAUSED, reason_now, resume_at
            if resume_at is not None:
                job = share_job(tenant, schedule.job_id)
                text = rebased_text(definition, stopped_at=schedule.paused_at, now=resume_at)
                definition = version_copy(definition, now=resume_at, spec=text)
                definition.save(force_insert=True)
                schedule.version = definition.version
                entry_make(tenant, job, schedule, definition, resume_at)
            else:
                entries.remove(door.raw(), [schedule_id])
            save(schedule, now, "status", "paused_reason", "paused_at", "resume_at", "version")
            until = {"resume_at": instant_text(resume_at)} if resume_at is not None else None
            note(actor, "schedule.pause", schedule, now, tenant, reason=reason_now, after=until)
            told = paused_event(schedule_id, now, reason=reason_now, resume_at=resume_at, by=actor.stored)
            events.emit(door.raw(), tenant.schema_name, tenant.pk, [told])
        return DefinedSchedule(schedule, definition)

    return in_tenant(tenant, work)


def schedule_resume(
    *, tenant: Tenant, actor: Actor, schedule_id: UUID, now: datetime, catch_up: bool = False,
    expect: Collection[int] | None = None, reason: str = "",
) -> DefinedSchedule:  # fmt: skip
    """Lets a paused schedule go on strictly from now, under a new version; completed when nothing is left of it.

    With `catch_up` what it missed while it was paused is due now, and its misfire policy decides about it; while its
    job is paused, what is to run of it waits for the job. Stale as in `schedule_pause`. `reason` is for the trail.
    """

    def work() -> DefinedSchedule:
        _, schedule = lock_schedule(schedule_id, expect, now=now)
        definition = version_of(schedule)
        if schedule.status == Status.PAUSED:
            job = share_job(tenant, schedule.job_id)
            stopped_at = schedule.paused_at
            debt = catch_up and stopped_at is not None
            goes_on = stopped_at if debt and stopped_at else now
            text = rebased_text(definition, stopped_at=stopped_at, now=goes_on)
            definition = version_copy(definition, now=now, spec=text, from_at=goes_on)
            definition.save(force_insert=True)
            schedule.paused_reason, schedule.failures_from = "", definition.version
            schedule.paused_at = schedule.resume_at = None
            if job.paused:
                stop(tenant, schedule, now, JOB_PAUSED)
            schedule.status = entry_make(tenant, job, schedule, definition, goes_on)
            if debt and stopped_at and job.paused:
                catch_up_behind_gate(
                    tenant, job, definition, labels=schedule.labels, stopped_at=stopped_at, now=now, actor=actor
                )
                definition = _used_up(tenant, schedule, definition, now)
            schedule.version = definition.version
            save(schedule, now, "status", "paused_reason", "paused_at", "resume_at", "version", "failures_from")
            note(
                actor, "schedule.resume", schedule, now, tenant, after={"catch_up": True} if catch_up else None,
                reason=reason,
            )  # fmt: skip
            data = {"schedule": str(schedule_id), "catch_up": catch_up, "by": actor.stored}
            told = events.new_event("schedule.resumed", now, data, schedule_id=schedule_id)
            events.emit(door.raw(), tenant.schema_name, tenant.pk, [told])
        return DefinedSchedule(schedule, definition)

    return in_tenant(tenant, work)


def _used_up(
    tenant: Tenant, schedule: Schedule, definition: ScheduleVersion, now: datetime
) -> ScheduleVersion:  # fmt: skip
    """What goes on with the job. That one stopped earlier; its resume asks what was used up of max_runs until now."""
    text = rebased_text(definition, stopped_at=now, now=now)
    if text == definition.spec:
        return definition
    definition = version_copy(definition, now=now, spec=text)
    definition.save(force_insert=True)
    stop(tenant, schedule, now, JOB_PAUSED)
    return definition


def _is_over(schedule: Schedule, definition: ScheduleVersion, now: datetime) -> bool:
    """Whether an active schedule without an entry has fired for the last time: fire does not write schedules."""
    if schedule.status != Status.ACTIVE:
        return False
    try:
        return first_due(spec_from_json(definition.spec), key=str(schedule.pk), after=now) is None
    except TimingInvalid:  # whatever it is, pausing it is safe
        return False
