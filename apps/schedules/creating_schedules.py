"""New schedules, one or many in one transaction, each with its due entry: one statement a kind of row.

Calendars are locked before jobs, as in all services of schedules; new rows and entries meet nobody.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.audit.services import Actor, Entry, record_many
from apps.due import entries
from apps.schedules import naming, store
from apps.schedules.batches import in_rounds, only, results
from apps.schedules.changes import changes
from apps.schedules.defined import DefinedSchedule, schedule_as_given
from apps.schedules.limits import plan_locked, quota_error, use_of
from apps.schedules.models import Schedule, ScheduleVersion
from apps.schedules.policy import first_due
from apps.schedules.remaking import entry_at
from apps.schedules.running import JobNow, share_jobs
from apps.schedules.schedule_input import ScheduleForm, definition_of_form, read_schedule
from apps.schedules.services_calendars import exclusions_shared
from apps.schedules.timing import spec_to_json
from kernel.errors import FieldError, InvalidInput, QuotaExceeded, ShardbeatError
from kernel.ids import uuid7s
from kernel.jsonrules import value_faults
from tenants import door
from tenants.models import Plan, Tenant
from tenants.work import in_tenant

Refused = dict[int, ShardbeatError]
Made = tuple[DefinedSchedule, entries.Entry | None]


def schedule_create(*, tenant: Tenant, actor: Actor, data: Any, now: datetime) -> DefinedSchedule:
    """Makes a schedule and its due entry. InvalidInput with all faults; Conflict for a name; QuotaExceeded."""
    return only(schedules_create(tenant=tenant, actor=actor, items=[data], now=now))


def schedules_create(
    *, tenant: Tenant, actor: Actor, items: Sequence[Any], now: datetime, atomic: bool = False
) -> list[DefinedSchedule | ShardbeatError]:
    """Makes schedules; of each the schedule, or what it was refused with as `schedule_create` would raise it.

    All or nothing when `atomic`: BatchRefused.
    """

    def work() -> list[DefinedSchedule | ShardbeatError]:
        plan = plan_locked(tenant, quota="max_schedules")
        ids = uuid7s(len(items))
        forms, refused = _read(tenant, items, ids, plan, now)
        use = use_of(Schedule.objects.filter(deleted_at=None), plan.max_schedules)
        jobs = share_jobs(tenant, {form.job_id for form in forms.values()})
        for number in [number for number, form in forms.items() if form.job_id not in jobs]:
            refused[number] = InvalidInput([FieldError("/job", "not_found", "There is no such job.")])
            del forms[number]
        planned = {
            number: _planned(tenant, ids[number], form, jobs[form.job_id], now) for number, form in forms.items()
        }  # fmt: skip
        made: dict[int, DefinedSchedule] = {}

        def over(count: int) -> QuotaExceeded:
            return quota_error(quota="max_schedules", limit=plan.max_schedules, use=use + count, what="schedules")

        def make(some: dict[int, Made]) -> Refused:
            lost = _insert(tenant, some, now)
            made.update({number: one[0] for number, one in some.items() if number not in lost})
            return lost

        room = None if plan.max_schedules is None else plan.max_schedules - use
        refused |= in_rounds(planned, room=room, make=make, over=over)
        found = results(len(items), made, refused, atomic=atomic)
        record_many([_entry(one) for one in made.values()], actor=actor, now=now, tenant_id=tenant.pk)
        return found

    return in_tenant(tenant, work)


def _read(
    tenant: Tenant, items: Sequence[Any], ids: Sequence[UUID], plan: Plan, now: datetime
) -> tuple[dict[int, ScheduleForm], Refused]:
    exclusions = exclusions_shared(tenant, {name for data in items if (name := _calendar_of(data))})
    forms: dict[int, ScheduleForm] = {}
    refused: Refused = {}
    for number, (data, schedule_id) in enumerate(zip(items, ids, strict=True)):
        try:
            forms[number] = read_schedule(
                data, key=str(schedule_id), now=now, min_interval_s=plan.min_interval_s,
                max_payload_bytes=plan.max_payload_bytes, exclusion_of=exclusions.get,
            )  # fmt: skip
        except InvalidInput as error:
            refused[number] = error
    return forms, refused


def _calendar_of(data: Any) -> str | None:
    """What an item may name its calendar; what can be none is left to its reader."""
    name = data.get("calendar") if isinstance(data, Mapping) else None
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or value_faults(name):
        return None
    return name


def _planned(tenant: Tenant, schedule_id: UUID, form: ScheduleForm, job: JobNow, now: datetime) -> Made:
    schedule = Schedule(
        id=schedule_id, name=form.name, job_id=job.id, labels=form.labels, external_id=form.external_id,
        created_at=now, updated_at=now,
    )  # fmt: skip
    definition = ScheduleVersion(
        schedule_id=schedule_id, version=1, definition=definition_of_form(form), spec=spec_to_json(form.spec),
        payload=form.payload, own_payload=form.payload is not None, created_at=now,
    )  # fmt: skip
    first = None if job.paused else first_due(form.spec, key=str(schedule_id), after=now, created=True)
    if first is None:
        if not job.paused:
            schedule.status = Schedule.Status.COMPLETED
        return DefinedSchedule(schedule, definition, made=True), None
    entry = entry_at(tenant, job, definition, nominal_at=first[0], due_at=first[1])
    return DefinedSchedule(schedule, definition, made=True, next_at=entry.due_at), entry


def _insert(tenant: Tenant, some: Mapping[int, Made], now: datetime) -> Refused:
    """Writes what has a free name; returns what has not."""
    conn, schema = door.raw(), tenant.schema_name
    rows = {number: _row(one.schedule) for number, (one, _) in some.items()}
    there = store.schedules_insert(conn, schema, list(rows.values()), now=now)
    won = [some[number] for number, row in rows.items() if row.id in there]
    lost = {number: row for number, row in rows.items() if row.id not in there}
    if won:
        store.schedule_versions_insert(conn, schema, [_version_row(one.definition) for one, _ in won], now=now)
        entries.add(conn, [entry for _, entry in won if entry is not None], now=now)
    by_external_id = store.taken(conn, schema, "schedules_schedule", list(lost.values())) if lost else {}
    return {number: naming.taken("schedule", external_id=by_external_id[row.id]) for number, row in lost.items()}


def _row(schedule: Schedule) -> store.NewSchedule:
    return store.NewSchedule(
        schedule.pk, schedule.name, schedule.job_id, str(schedule.status), schedule.labels, schedule.external_id
    )


def _version_row(version: ScheduleVersion) -> store.NewScheduleVersion:
    return store.NewScheduleVersion(*(getattr(version, name) for name in store.NewScheduleVersion._fields))


def _entry(made: DefinedSchedule) -> Entry:
    return Entry("schedule.create", "schedule", made.schedule.pk, after=changes({}, schedule_as_given(made))[1])
