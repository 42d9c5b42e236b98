"""New schedules, one or many in one transaction, each with its due entry: one statement a kind of row.

Calendars are locked before jobs, as in all services of schedules; new rows and entries meet nobody.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from apps.audit.services import Actor, Entry, record_many
from apps.due import entries
from apps.schedules import naming, store
from apps.schedules.batches import in_rounds, only, results
from apps.schedules.changes import of_new
from apps.schedules.defined import DefinedSchedule
from apps.schedules.history import JOB_PAUSED
from apps.schedules.models import Schedule, ScheduleVersion
from apps.schedules.policy import first_due
from apps.schedules.remaking import entry_at
from apps.schedules.running import JobNow, missing, share_jobs
from apps.schedules.schedule_input import ScheduleForm, definition_of_form, read_schedule
from apps.schedules.services_calendars import exclusions_shared
from apps.schedules.timing import spec_to_json
from apps.schedules.timing_api import counts_from
from apps.usage import notices
from kernel.errors import InvalidInput, QuotaExceeded, ShardbeatError
from kernel.ids import uuid7s
from kernel.jsonrules import value_faults
from tenants import door
from tenants.limits import plan_locked, quota_error, use_of
from tenants.models import Plan, Tenant
from tenants.work import in_tenant

Refused = dict[int, ShardbeatError]


def schedule_create(
    *, tenant: Tenant, actor: Actor, data: Any, now: datetime, reason: str = ""
) -> DefinedSchedule:  # fmt: skip
    """Makes a schedule and its due entry. InvalidInput with all faults; Conflict for a name; QuotaExceeded."""
    return only(schedules_create(tenant=tenant, actor=actor, items=[data], now=now, reason=reason)).defined(now)


class Made(NamedTuple):
    """A new schedule as its rows say it: what many at a time need no objects for."""

    row: store.NewSchedule
    version: store.NewScheduleVersion
    entry: entries.Entry | None

    def defined(self, now: datetime) -> DefinedSchedule:
        """As it is read afterwards; `now` is when it was made."""
        row, version = self.row._asdict(), self.version._asdict()
        return DefinedSchedule(
            Schedule(**row, created_at=now, updated_at=now), ScheduleVersion(**version, version=1, created_at=now),
            made=True, next_at=self.entry.due_at if self.entry is not None else None,
        )  # fmt: skip


def schedules_create(
    *, tenant: Tenant, actor: Actor, items: Sequence[Any], now: datetime, atomic: bool = False, reason: str = ""
) -> list[Made | ShardbeatError]:
    """Makes schedules; of each what was made, or what it was refused with as `schedule_create` would raise it.

    All or nothing when `atomic`: BatchRefused. `reason` is for the trail.
    """

    def work() -> list[Made | ShardbeatError]:
        plan = plan_locked(tenant, quota="max_schedules")
        ids = uuid7s(len(items))
        forms, refused = _read(tenant, items, ids, plan, now)
        use = use_of(Schedule.objects.filter(deleted_at=None), plan.max_schedules)
        jobs = share_jobs(tenant, {form.job_id for form in forms.values()})
        for number, form in list(forms.items()):
            if form.job_id not in jobs or jobs[form.job_id].word != form.word:
                refused[number] = InvalidInput([missing(form.word)])
                del forms[number]
        planned = {
            number: _planned(tenant, ids[number], form, jobs[form.job_id], now) for number, form in forms.items()
        }  # fmt: skip

        def over(count: int) -> QuotaExceeded:
            return quota_error(quota="max_schedules", limit=plan.max_schedules, use=use + count, what="schedules")

        room = None if plan.max_schedules is None else plan.max_schedules - use
        refused |= in_rounds(planned, room=room, make=lambda some: _insert(tenant, some, now), over=over)
        made = {number: one for number, one in planned.items() if number not in refused}
        found = results(len(items), made, refused, atomic=atomic)
        notices.crossed(
            door.raw(), tenant.pk, quota="max_schedules", limit=plan.max_schedules, before=use, after=use + len(made),
            now=now,
        )  # fmt: skip
        record_many([_entry(one, reason) for one in made.values()], actor=actor, now=now, tenant_id=tenant.pk)
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
    begins = counts_from(form.spec.trigger, form.spec.start_at, now=now)
    version = store.NewScheduleVersion(
        schedule_id, definition_of_form(form), spec_to_json(form.spec), form.payload, form.payload is not None,
        from_at=begins, until_at=begins if job.paused else None, ended_by=JOB_PAUSED if job.paused else "",
    )  # fmt: skip
    first = None if job.paused else first_due(form.spec, key=str(schedule_id), after=begins)
    status = Schedule.Status.ACTIVE if first is not None or job.paused else Schedule.Status.COMPLETED
    return Made(
        store.NewSchedule(schedule_id, form.name, job.id, status.value, form.labels, form.external_id), version,
        None if first is None else entry_at(
            tenant, job, version, labels=form.labels, nominal_at=first[0], due_at=first[1]
        ),
    )  # fmt: skip


def _insert(tenant: Tenant, some: Mapping[int, Made], now: datetime) -> Refused:
    """Writes what has a free name; returns what has not."""
    conn, schema, planned = door.raw(), tenant.schema_name, list(some.values())
    rows, versions = [one.row for one in planned], [one.version for one in planned]
    there = store.schedules_insert(conn, schema, rows, versions, now=now)
    entries.add(conn, [one.entry for one in planned if one.entry is not None and one.row.id in there], now=now)
    lost = {number: one.row for number, one in some.items() if one.row.id not in there}
    by_external_id = store.taken(conn, schema, "schedules_schedule", list(lost.values())) if lost else {}
    return {number: naming.taken("schedule", external_id=by_external_id[row.id]) for number, row in lost.items()}


def _entry(made: Made, reason: str) -> Entry:
    row, version = made.row, made.version
    given = {
        **version.definition, "name": row.name, "payload": version.payload, "labels": row.labels,
        "external_id": row.external_id,
    }  # fmt: skip
    return Entry("schedule.create", "schedule", row.id, after=of_new(given), reason=reason)
