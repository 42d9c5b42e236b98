"""What can be done to schedules. Each service is one transaction with its audit row.

A due entry is locked first, then the schedule's row, then the job's (shared): fire meets an edit or a pause on the
entry. What decides when, what is sent or which job runs makes a new version; an edit or a resume never fires by itself.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.audit.services import Actor
from apps.due import entries
from apps.due.entries import Entry
from apps.due.models import DueEntry
from apps.schedules.changes import changes
from apps.schedules.defined import DefinedSchedule, schedule_as_given, version_of
from apps.schedules.history import COMPLETED, DELETED, PAUSED
from apps.schedules.keyed import flows_of_schedules
from apps.schedules.locked import entry_drop, entry_make, entry_pass, lock_schedule, note, save, stop
from apps.schedules.models import Schedule, ScheduleVersion
from apps.schedules.naming import names_conflict
from apps.schedules.remaking import entry_at, rebased_text
from apps.schedules.running import JobNow, missing, share_jobs
from apps.schedules.schedule_input import (
    Known,
    ScheduleForm,
    definition_of_form,
    health_of,
    read_schedule,
    timing_of,
    waiting_of,
)
from apps.schedules.services_calendars import exclusion_shared
from apps.schedules.timing import TimingInvalid, spec_from_json, spec_to_json
from kernel.errors import InvalidInput
from kernel.jsonrules import patched
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant

Status = Schedule.Status


def schedule_update(
    *, tenant: Tenant, actor: Actor, schedule_id: UUID, patch: Any, now: datetime,
    expect: Collection[int] | None = None,
) -> DefinedSchedule:  # fmt: skip
    """Applies a JSON merge patch. Stale when `expect` does not hold the schedule's revision.

    A trigger that is given replaces the whole trigger: one kind merged into another would be none. It also brings back
    a schedule whose due entry was put aside. A job takes the place of a workflow, and the other way round.
    """
    return _change(
        tenant=tenant, actor=actor, schedule_id=schedule_id, now=now, expect=expect, mend=_has_trigger(patch),
        make=lambda given: _patched(given, patch),
    )  # fmt: skip


def schedule_replace(
    *, tenant: Tenant, actor: Actor, schedule_id: UUID, data: Any, now: datetime,
    expect: Collection[int] | None = None, reason: str = "",
) -> DefinedSchedule:  # fmt: skip
    """Replaces the schedule's members; what is missing takes its default. Stale as in `schedule_update`.

    `reason` is for the trail.
    """
    return _change(
        tenant=tenant, actor=actor, schedule_id=schedule_id, now=now, expect=expect, mend=True, make=lambda _: data,
        reason=reason,
    )  # fmt: skip


def schedule_delete(
    *, tenant: Tenant, actor: Actor, schedule_id: UUID, now: datetime, expect: Collection[int] | None = None,
    reason: str = "",
) -> None:  # fmt: skip
    """Deletes a schedule; its history stays and runs that are alive go on. `reason` is for the trail."""

    def work() -> None:
        entry, schedule = lock_schedule(schedule_id, expect, now=now)
        entry_drop(tenant, entry, now, "schedule_deleted", actor)
        stop(tenant, schedule, now, DELETED)
        schedule.deleted_at = now
        save(schedule, now, "deleted_at")
        note(actor, "schedule.delete", schedule, now, tenant, before={"name": schedule.name}, reason=reason)

    in_tenant(tenant, work)


def _change(
    *, tenant: Tenant, actor: Actor, schedule_id: UUID, now: datetime, expect: Collection[int] | None,
    mend: bool, make: Callable[[dict[str, Any]], Any], reason: str = "",
) -> DefinedSchedule:  # fmt: skip
    def work() -> DefinedSchedule:
        entry, schedule = lock_schedule(schedule_id, expect, now=now)
        old = version_of(schedule)
        given, labels = schedule_as_given(DefinedSchedule(schedule, old)), schedule.labels
        form = read_schedule(
            make(given), key=str(schedule_id), now=now, min_interval_s=tenant.plan.min_interval_s,
            max_payload_bytes=tenant.plan.max_payload_bytes, known=_known(old, schedule), exclusion_of=exclusion_shared,
        )  # fmt: skip
        problem = _problem(entry) if mend else ""
        schedule.name, schedule.labels, schedule.external_id = form.name, form.labels, form.external_id
        new = _redefine(tenant, actor, entry, schedule, old, form, now, anew=bool(problem))
        before, after = changes(given, schedule_as_given(DefinedSchedule(schedule, new)))
        if problem:
            before, after = {**before, "problem": problem}, {**after, "problem": None}
        if after:
            save(schedule, now, "name", "labels", "external_id", "version", "job", "status", "failures_from")
            note(actor, "schedule.update", schedule, now, tenant, before=before, after=after, reason=reason)
        if entry is not None and new is old and labels != schedule.labels:  # its job's key may be a label
            conn = door.raw()
            entries.set_flows(conn, flows_of_schedules(conn, tenant.schema_name, [schedule_id]))
        return DefinedSchedule(schedule, new)

    with names_conflict():
        return in_tenant(tenant, work)


def _has_trigger(patch: Any) -> bool:
    return isinstance(patch, Mapping) and patch.get("trigger") is not None


def _patched(given: dict[str, Any], patch: Any) -> Any:
    if _has_trigger(patch):
        given = {**given, "trigger": None}
    if isinstance(patch, Mapping) and any(patch.get(name) is not None for name in ("job", "workflow")):
        given = {**given, "job": None, "workflow": None}
    return patched(given, patch)


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
        if definition_of_form(form) != {
            **timing_of(old.definition),
            **health_of(old.definition),
            **waiting_of(old.definition),
            form.word: str(form.job_id),
        }:  # only written differently: the cursor stays where it is
            old.definition = definition_of_form(form)
            old.save(update_fields=["definition"])
        return old
    job = _job(tenant, form)
    schedule.version, schedule.job_id = schedule.version + 1, job.id
    schedule.failures_from = schedule.version
    waits = schedule.resume_at if schedule.status == Status.PAUSED else None
    new = _version(schedule, form, waits or now)
    if waits is not None:  # what the pause still passes over is none of its max_runs
        new.spec = rebased_text(new, stopped_at=schedule.paused_at, now=waits)
    new.save(force_insert=True)
    if schedule.status == Status.PAUSED:
        if waits is not None:
            entry_make(tenant, job, schedule, new, waits)
        else:
            stop(tenant, schedule, now, PAUSED)
        return new
    if when_differs or entry is None or job.paused:
        entry_pass(tenant, entry, now, "schedule_changed" if when_differs else "job_paused", actor)
        if when_differs or schedule.status == Status.ACTIVE:
            schedule.status = entry_make(tenant, job, schedule, new, now)
        else:
            entries.remove(door.raw(), [schedule.pk])
            stop(tenant, schedule, now, COMPLETED)
    else:
        again = entry_at(
            tenant, job, new, labels=schedule.labels, nominal_at=entry.nominal_at, due_at=entry.due_at
        )  # fmt: skip
        entries.put(door.raw(), again, now=now)
    return new


def _problem(entry: Entry | None) -> str:
    """Why a locked entry is put aside; empty when it is served."""
    parked = DueEntry.objects.filter(key=entry.key).values_list("parked", flat=True) if entry is not None else ()
    return "".join(parked)


def _known(version: ScheduleVersion, schedule: Schedule) -> Known | None:
    try:
        return Known(timing_of(version.definition), spec_from_json(version.spec), schedule.paused_at)
    except TimingInvalid:  # whatever made it unreadable, its owner can mend it
        return None


def _job(tenant: Tenant, form: ScheduleForm) -> JobNow:
    job = share_jobs(tenant, [form.job_id]).get(form.job_id)
    if job is None or job.word != form.word:
        raise InvalidInput([missing(form.word)])
    return job


def _version(schedule: Schedule, form: ScheduleForm, now: datetime) -> ScheduleVersion:
    return ScheduleVersion(
        schedule=schedule, version=schedule.version, definition=definition_of_form(form), spec=spec_to_json(form.spec),
        payload=form.payload, own_payload=form.payload is not None, created_at=now, from_at=now,
    )  # fmt: skip
