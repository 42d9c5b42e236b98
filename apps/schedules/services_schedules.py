"""What can be done to schedules. Each service is one transaction with its audit row.

A due entry is locked first, then the schedule's row, then the job's (shared): fire meets an edit or a pause on the
entry. What decides when, what is sent or which job runs makes a new version; an edit or a resume never fires by itself.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.audit.services import Actor, record
from apps.due import entries
from apps.due.entries import Entry
from apps.due.models import DueEntry
from apps.schedules.changes import changes
from apps.schedules.defined import DefinedSchedule, schedule_as_given, version_of
from apps.schedules.limits import check_count, plan_locked
from apps.schedules.models import Schedule, ScheduleVersion
from apps.schedules.naming import names_conflict
from apps.schedules.passed import pass_over
from apps.schedules.policy import first_due
from apps.schedules.remaking import entry_at, entry_for, rebased_text, version_copy
from apps.schedules.running import JobNow, share_job
from apps.schedules.schedule_input import Known, ScheduleForm, health_of, read_schedule, timing_of, waiting_of
from apps.schedules.services_calendars import exclusion_shared
from apps.schedules.timing import TimingInvalid, spec_from_json, spec_to_json
from apps.schedules.timing_triggers import instant_text
from kernel.errors import Conflict, FieldError, InvalidInput, NotFound, Stale
from kernel.ids import uuid7
from kernel.jsonrules import merge_patch
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant

Status = Schedule.Status


def schedule_create(*, tenant: Tenant, actor: Actor, data: Any, now: datetime) -> DefinedSchedule:
    """Makes a schedule and its due entry. InvalidInput with all faults; Conflict for a name; QuotaExceeded."""

    def work() -> DefinedSchedule:
        plan = plan_locked(tenant, quota="max_schedules")
        schedule_id = uuid7()
        form = read_schedule(
            data, key=str(schedule_id), now=now, min_interval_s=plan.min_interval_s,
            max_payload_bytes=plan.max_payload_bytes, exclusion_of=exclusion_shared,
        )  # fmt: skip
        alive = Schedule.objects.filter(deleted_at=None)
        check_count(alive, plan.max_schedules, quota="max_schedules", what="schedules")
        job = _job(tenant, form.job_id)
        schedule = Schedule(
            pk=schedule_id, name=form.name, job_id=job.id, labels=form.labels, external_id=form.external_id,
            created_at=now, updated_at=now,
        )  # fmt: skip
        definition = _version(schedule, form, now)
        entry = None if job.paused else entry_for(tenant, job, definition, now=now, created=True)
        if entry is None and not job.paused:
            schedule.status = Status.COMPLETED
        schedule.save(force_insert=True)
        definition.save(force_insert=True)
        if entry is not None:
            entries.put(door.raw(), entry, now=now)
        made = DefinedSchedule(schedule, definition)
        _record(actor, "schedule.create", schedule, now, tenant, after=changes({}, schedule_as_given(made))[1])
        return made

    with names_conflict():
        return in_tenant(tenant, work)


def schedule_update(
    *, tenant: Tenant, actor: Actor, schedule_id: UUID, patch: Any, now: datetime,
    expect: Collection[int] | None = None,
) -> DefinedSchedule:  # fmt: skip
    """Applies a JSON merge patch. Stale when `expect` does not hold the schedule's revision.

    A trigger that is given replaces the whole trigger: one kind merged into another would be none. It also brings back
    a schedule whose due entry was put aside.
    """
    return _change(
        tenant=tenant, actor=actor, schedule_id=schedule_id, now=now, expect=expect, mend=_has_trigger(patch),
        make=lambda given: _patched(given, patch),
    )  # fmt: skip


def schedule_replace(
    *, tenant: Tenant, actor: Actor, schedule_id: UUID, data: Any, now: datetime, expect: Collection[int] | None = None
) -> DefinedSchedule:
    """Replaces the schedule's members; what is missing takes its default. Stale as in `schedule_update`."""
    return _change(
        tenant=tenant, actor=actor, schedule_id=schedule_id, now=now, expect=expect, mend=True, make=lambda _: data
    )  # fmt: skip


def schedule_delete(
    *, tenant: Tenant, actor: Actor, schedule_id: UUID, now: datetime, expect: Collection[int] | None = None
) -> None:
    """Deletes a schedule; its history stays and runs that are alive go on."""

    def work() -> None:
        entry, schedule = lock_schedule(schedule_id, expect, now=now)
        _entry_drop(tenant, entry, now, "schedule_deleted", actor)
        schedule.deleted_at = now
        _save(schedule, now, "deleted_at")
        _record(actor, "schedule.delete", schedule, now, tenant)

    in_tenant(tenant, work)


def schedule_pause(
    *,
    tenant: Tenant,
    actor: Actor,
    schedule_id: UUID,
    now: datetime,
    reason: str = "",
    resume_at: datetime | None = None,
) -> DefinedSchedule:
    """Stops a schedule; no debt builds up. Conflict when it is completed; nothing happens when it is paused already.

    With `resume_at` it goes on by itself: its due entry waits for the first instant after that time. For a schedule
    that is paused already this sets the time anew.
    """

    def work() -> DefinedSchedule:
        entry, schedule = lock_schedule(schedule_id, now=now)
        definition = version_of(schedule)
        if schedule.status == Status.COMPLETED or (entry is None and _is_over(schedule, definition, now)):
            raise Conflict("The schedule is completed: there is nothing to pause.", code="schedule_completed")
        if schedule.status == Status.ACTIVE or resume_at is not None:
            _entry_drop(tenant, entry, now, "schedule_paused", actor)
            if schedule.status == Status.ACTIVE:
                schedule.paused_at = now
            schedule.status, schedule.paused_reason, schedule.resume_at = Status.PAUSED, reason, resume_at
            if resume_at is not None:
                job = share_job(tenant, schedule.job_id)
                text = rebased_text(definition, stopped_at=schedule.paused_at, now=resume_at)
                definition = version_copy(definition, now=resume_at, spec=text)
                definition.save(force_insert=True)
                schedule.version = definition.version
                _entry_make(tenant, job, definition, resume_at)
            _save(schedule, now, "status", "paused_reason", "paused_at", "resume_at", "version")
            until = {"resume_at": instant_text(resume_at)} if resume_at is not None else None
            _record(actor, "schedule.pause", schedule, now, tenant, reason=reason, after=until)
        return DefinedSchedule(schedule, definition)

    return in_tenant(tenant, work)


def schedule_resume(
    *, tenant: Tenant, actor: Actor, schedule_id: UUID, now: datetime, catch_up: bool = False
) -> DefinedSchedule:
    """Lets a paused schedule go on strictly from now, under a new version; completed when nothing is left of it.

    With `catch_up` what it missed while it was paused is due now, and its misfire policy decides about it.
    """

    def work() -> DefinedSchedule:
        _, schedule = lock_schedule(schedule_id, now=now)
        definition = version_of(schedule)
        if schedule.status == Status.PAUSED:
            job = share_job(tenant, schedule.job_id)
            stopped_at = schedule.paused_at
            debt = catch_up and stopped_at is not None
            text = definition.spec if debt else rebased_text(definition, stopped_at=stopped_at, now=now)
            definition = version_copy(definition, now=now, spec=text)
            definition.save(force_insert=True)
            schedule.version, schedule.paused_reason = definition.version, ""
            schedule.failures_from, schedule.paused_at, schedule.resume_at = definition.version, None, None
            schedule.status = _entry_make(tenant, job, definition, stopped_at if debt and stopped_at else now)
            _save(schedule, now, "status", "paused_reason", "paused_at", "resume_at", "version", "failures_from")
            _record(
                actor, "schedule.resume", schedule, now, tenant, after={"catch_up": True} if catch_up else None
            )  # fmt: skip
        return DefinedSchedule(schedule, definition)

    return in_tenant(tenant, work)


def lock_schedule(
    schedule_id: UUID, expect: Collection[int] | None = None, *, now: datetime
) -> tuple[Entry | None, Schedule]:
    """Locks the due entry, then the row. NotFound, Stale. One whose pause is over is active from here on."""
    conn = door.raw()
    found = entries.lock(conn, [schedule_id])
    schedule = Schedule.objects.select_for_update(of=("self",)).filter(pk=schedule_id, deleted_at=None).first()
    if schedule is None:
        raise NotFound("There is no such schedule.")
    if not found:  # a resume may have made one while we waited for the row
        found = entries.lock(conn, [schedule_id])
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


def _change(
    *, tenant: Tenant, actor: Actor, schedule_id: UUID, now: datetime, expect: Collection[int] | None,
    mend: bool, make: Callable[[dict[str, Any]], Any],
) -> DefinedSchedule:  # fmt: skip
    def work() -> DefinedSchedule:
        entry, schedule = lock_schedule(schedule_id, expect, now=now)
        old = version_of(schedule)
        given = schedule_as_given(DefinedSchedule(schedule, old))
        form = read_schedule(
            make(given), key=str(schedule_id), now=now, min_interval_s=tenant.plan.min_interval_s,
            max_payload_bytes=tenant.plan.max_payload_bytes, known=_known(old, schedule), exclusion_of=exclusion_shared,
        )  # fmt: skip
        problem = _problem(entry) if mend else ""
        new = _redefine(tenant, actor, entry, schedule, old, form, now, anew=bool(problem))
        schedule.name, schedule.labels, schedule.external_id = form.name, form.labels, form.external_id
        before, after = changes(given, schedule_as_given(DefinedSchedule(schedule, new)))
        if problem:
            before, after = {**before, "problem": problem}, {**after, "problem": None}
        if after:
            _save(schedule, now, "name", "labels", "external_id", "version", "job", "status", "failures_from")
            _record(actor, "schedule.update", schedule, now, tenant, before=before, after=after)
        return DefinedSchedule(schedule, new)

    with names_conflict():
        return in_tenant(tenant, work)


def _has_trigger(patch: Any) -> bool:
    return isinstance(patch, Mapping) and patch.get("trigger") is not None


def _patched(given: dict[str, Any], patch: Any) -> Any:
    if _has_trigger(patch):
        given = {**given, "trigger": None}
    return merge_patch(given, patch)


def _redefine(
    tenant: Tenant, actor: Actor, entry: Entry | None, schedule: Schedule, old: ScheduleVersion, form: ScheduleForm,
    now: datetime, *, anew: bool,
) -> ScheduleVersion:  # fmt: skip
    """A new version when the definition differs, and the due entry that follows from it.

    `anew` makes both in any case: the entry is put aside.
    """
    when_differs = anew or spec_to_json(form.spec) != old.spec
    same_runs = form.payload == old.payload and form.waiting == waiting_of(old.definition)
    if not when_differs and same_runs and form.job_id == schedule.job_id:
        if _definition(form) != {
            **timing_of(old.definition),
            **health_of(old.definition),
            **waiting_of(old.definition),
            "job": str(form.job_id),
        }:  # only written differently: the cursor stays where it is
            old.definition = _definition(form)
            old.save(update_fields=["definition"])
        return old
    job = _job(tenant, form.job_id)
    schedule.version, schedule.job_id = schedule.version + 1, job.id
    schedule.failures_from = schedule.version
    waits = schedule.resume_at if schedule.status == Status.PAUSED else None
    new = _version(schedule, form, waits or now)
    new.save(force_insert=True)
    if schedule.status == Status.PAUSED:
        if waits is not None:
            entries.remove(door.raw(), [schedule.pk])
            _entry_make(tenant, job, new, waits)
        return new
    if when_differs or entry is None or job.paused:
        _entry_drop(tenant, entry, now, "schedule_changed" if when_differs else "job_paused", actor)
        if when_differs or schedule.status == Status.ACTIVE:
            schedule.status = _entry_make(tenant, job, new, now)
    else:
        entries.put(
            door.raw(), entry_at(tenant, job, new, nominal_at=entry.nominal_at, due_at=entry.due_at), now=now
        )  # fmt: skip
    return new


def _problem(entry: Entry | None) -> str:
    """Why a locked entry is put aside; empty when it is served."""
    parked = DueEntry.objects.filter(key=entry.key).values_list("parked", flat=True) if entry is not None else ()
    return "".join(parked)


def _is_over(schedule: Schedule, definition: ScheduleVersion, now: datetime) -> bool:
    """Whether an active schedule without an entry has fired for the last time: fire does not write schedules."""
    if schedule.status != Status.ACTIVE:
        return False
    try:
        return first_due(spec_from_json(definition.spec), key=str(schedule.pk), after=now) is None
    except TimingInvalid:  # whatever it is, pausing it is safe
        return False


def _known(version: ScheduleVersion, schedule: Schedule) -> Known | None:
    try:
        return Known(timing_of(version.definition), spec_from_json(version.spec), schedule.paused_at)
    except TimingInvalid:  # whatever made it unreadable, its owner can mend it
        return None


def _job(tenant: Tenant, job_id: UUID) -> JobNow:
    try:
        return share_job(tenant, job_id)
    except NotFound as error:
        raise InvalidInput([FieldError("/job", "not_found", "There is no such job.")]) from error


def _definition(form: ScheduleForm) -> dict[str, Any]:
    return {**form.timing, **form.health, **form.waiting, "job": str(form.job_id)}


def _version(schedule: Schedule, form: ScheduleForm, now: datetime) -> ScheduleVersion:
    return ScheduleVersion(
        schedule=schedule, version=schedule.version, definition=_definition(form), spec=spec_to_json(form.spec),
        payload=form.payload, own_payload=form.payload is not None, created_at=now,
    )  # fmt: skip


def _entry_make(tenant: Tenant, job: JobNow, definition: ScheduleVersion, now: datetime) -> str:
    """Puts the entry from now on; the schedule's status that follows. A paused job's schedules have none."""
    if job.paused:
        return Status.ACTIVE
    entry = entry_for(tenant, job, definition, now=now)
    if entry is None:
        return Status.COMPLETED
    entries.put(door.raw(), entry, now=now)
    return Status.ACTIVE


def _entry_drop(tenant: Tenant, entry: Entry | None, now: datetime, reason: str, actor: Actor) -> None:
    if entry is not None:
        conn = door.raw()
        pass_over(conn, tenant.schema_name, [entry], now=now, reason=reason, by=actor.name)
        entries.remove(conn, [entry.key])


def _save(schedule: Schedule, now: datetime, *names: str) -> None:
    schedule.revision += 1
    schedule.updated_at = now
    schedule.save(update_fields=[*names, "revision", "updated_at"])


def _record(actor: Actor, action: str, schedule: Schedule, now: datetime, tenant: Tenant, **more: Any) -> None:
    record(
        actor=actor, action=action, object_type="schedule", object_id=schedule.pk, now=now, tenant_id=tenant.pk, **more
    )  # fmt: skip
