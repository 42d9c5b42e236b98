"""What can be done to named calendars. A change makes the due entries of all schedules that use it anew, from now on.

A spec carries a copy of its calendar's days, because firing reads no tenant table. Locks: due entries by key, schedule
rows by id, then the calendar, then jobs (shared); whoever saves a schedule holds the calendar's row as well.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F
from psycopg import sql

from apps.audit.services import Actor, record
from apps.due import entries
from apps.schedules.calendar_input import CalendarForm, exclusion_of, read_calendar
from apps.schedules.exclusion import Exclusion
from apps.schedules.history import JOB_PAUSED
from apps.schedules.locked import stop
from apps.schedules.models import Calendar, Schedule, ScheduleVersion
from apps.schedules.naming import names_conflict
from apps.schedules.passed import pass_over
from apps.schedules.remaking import entry_for, version_copy
from apps.schedules.running import share_job
from apps.schedules.timing import TimingInvalid, spec_from_json, spec_to_json
from apps.schedules.timing_runs import rebased
from kernel.errors import Conflict, NotFound, Stale
from kernel.ids import uuid7
from kernel.jsonrules import patched
from tenants import door
from tenants.limits import make_room
from tenants.models import Tenant
from tenants.work import Again, in_tenant

MAX_CALENDARS = 1_000
SHOWN_SCHEDULES = 20
_BY_NAME = """
SELECT m.name, c.id FROM unnest(%s::text[]) AS m(name)
JOIN {}.schedules_calendar c ON lower(c.name) = lower(m.name) AND c.deleted_at IS NULL
"""


def exclusion_shared(name: str) -> tuple[str, Exclusion] | None:
    """A calendar's days by its id or name; it does not change until this transaction ends."""
    found = _find(name)
    if found is None:
        return None
    row = Calendar.objects.select_for_update(no_key=True).filter(pk=found.pk, deleted_at=None).first()
    return None if row is None else (str(row.pk), exclusion_of(row.exclusion))


def exclusions_shared(tenant: Tenant, names: Collection[str]) -> dict[str, tuple[str, Exclusion]]:
    """The same of many, by what they were asked for by: two queries, locks in id order."""
    if not names:
        return {}
    ids = {name: found for name in names if (found := _id(name)) is not None}
    texts = [name for name in names if name not in ids]
    alive = Calendar.objects.filter(deleted_at=None)
    by_name: dict[str, UUID] = {}
    if texts:
        query = sql.SQL(_BY_NAME).format(sql.Identifier(tenant.schema_name))
        by_name = dict(door.raw().execute(query, [texts]).fetchall())
    asked = {**ids, **by_name}
    rows = alive.select_for_update(no_key=True).filter(pk__in=set(asked.values())).order_by("pk")
    found_rows = {row.pk: (str(row.pk), exclusion_of(row.exclusion)) for row in rows}
    return {name: found_rows[pk] for name, pk in asked.items() if pk in found_rows}


def exclusion_read(name: str) -> tuple[str, Exclusion] | None:
    """The same without a lock, for previews."""
    found = _find(name)
    return None if found is None else (str(found.pk), exclusion_of(found.exclusion))


def calendar_create(*, tenant: Tenant, actor: Actor, data: Any, now: datetime) -> Calendar:
    """Makes a calendar. InvalidInput with all faults; Conflict for a name that is taken; QuotaExceeded."""

    def work() -> Calendar:
        form = read_calendar(data)
        alive = Calendar.objects.filter(deleted_at=None)
        if make_room(tenant, alive, quota="max_calendars", what="calendars", bounded=True) >= MAX_CALENDARS:
            raise Conflict(f"There are {MAX_CALENDARS:,} calendars already; delete some.", code="too_many_calendars")
        made = Calendar(
            pk=uuid7(), name=form.name, days=form.days, exclusion=form.exclusion, created_at=now, updated_at=now
        )
        made.save(force_insert=True)
        _record(actor, "calendar.create", made, now, tenant, after={"name": form.name, **form.days})
        return made

    with names_conflict():
        return in_tenant(tenant, work)


def calendar_update(
    *, tenant: Tenant, actor: Actor, calendar_id: UUID, patch: Any, now: datetime, expect: Collection[int] | None = None
) -> Calendar:
    """Applies a JSON merge patch; lists are replaced whole, `ical` adds to them. Stale, NotFound."""
    return _change(tenant, actor, calendar_id, now, expect, lambda given: patched(given, patch))


def calendar_replace(
    *, tenant: Tenant, actor: Actor, calendar_id: UUID, data: Any, now: datetime, expect: Collection[int] | None = None
) -> Calendar:
    """Replaces a calendar. Stale, NotFound."""
    return _change(tenant, actor, calendar_id, now, expect, lambda _: data)


def calendar_delete(
    *, tenant: Tenant, actor: Actor, calendar_id: UUID, now: datetime, expect: Collection[int] | None = None
) -> None:
    """Deletes a calendar that no schedule uses. Conflict with the schedules that do."""

    def work() -> None:
        found = _lock(calendar_id, expect)
        names = [{"id": str(one.pk), "name": one.name} for one in schedules_using(calendar_id)[:SHOWN_SCHEDULES]]
        if names:
            detail = "Schedules use this calendar; give them another one, or none, first."
            raise Conflict(detail, code="calendar_in_use", schedules=names)
        found.deleted_at = now
        _save(found, now, "deleted_at")
        _record(actor, "calendar.delete", found, now, tenant, before={"name": found.name})

    in_tenant(tenant, work)


def schedules_using(calendar_id: UUID) -> list[Schedule]:
    """Schedules whose current version names the calendar, in id order."""
    versions = ScheduleVersion.objects.filter(
        version=F("schedule__version"), schedule__deleted_at=None, definition__calendar=str(calendar_id)
    )
    return list(Schedule.objects.filter(pk__in=versions.values("schedule_id")).order_by("pk"))


def _change(
    tenant: Tenant, actor: Actor, calendar_id: UUID, now: datetime, expect: Collection[int] | None, make: Any
) -> Calendar:
    def work() -> Calendar:
        using = [one.pk for one in schedules_using(calendar_id)]
        found_entries = {entry.key: entry for entry in entries.lock(door.raw(), using)}
        schedules = list(Schedule.objects.select_for_update(of=("self",)).filter(pk__in=using).order_by("pk"))
        found = _lock(calendar_id, expect)
        if [one.pk for one in schedules_using(calendar_id)] != using:
            raise Again
        given = {"name": found.name, **found.days}
        form: CalendarForm = read_calendar(make(given))
        if (form.name, form.exclusion) == (found.name, found.exclusion):
            return found
        if form.exclusion != found.exclusion:
            exclusion = exclusion_of(form.exclusion)
            for schedule in schedules:
                _remake(tenant, actor, schedule, found_entries.get(schedule.pk), exclusion, now)
        found.name, found.days, found.exclusion = form.name, form.days, form.exclusion
        _save(found, now, "name", "days", "exclusion")
        _record(actor, "calendar.update", found, now, tenant, before=given, after={"name": form.name, **form.days})
        return found

    with names_conflict():
        return in_tenant(tenant, work)


def _remake(
    tenant: Tenant, actor: Actor, schedule: Schedule, entry: Any, exclusion: Exclusion, now: datetime
) -> None:  # fmt: skip
    """A new version with the calendar's new days; its entry goes on from now, or from the end of a pause."""
    version = ScheduleVersion.objects.filter(schedule_id=schedule.pk, version=schedule.version).get()
    try:
        spec = replace(
            rebased(spec_from_json(version.spec), stopped_at=schedule.paused_at or now, now=now), exclusion=exclusion
        )
    except TimingInvalid:  # reconcile reports what can't be read
        return
    waits = schedule.resume_at if schedule.status == Schedule.Status.PAUSED else None
    begins = max(now, waits) if waits is not None else now
    new = version_copy(version, now=begins, spec=spec_to_json(spec))
    new.save(force_insert=True)
    schedule.version = new.version
    conn = door.raw()
    if entry is not None:
        pass_over(conn, tenant.schema_name, [entry], now=now, reason="schedule_changed", by=actor.stored)
        entries.remove(conn, [entry.key])
    if schedule.status == Schedule.Status.ACTIVE or waits is not None:
        job = share_job(tenant, schedule.job_id)
        made = None if job.paused else entry_for(tenant, job, new, labels=schedule.labels, now=begins)
        if made is not None:
            entries.put(conn, made, now=now)
        if job.paused:
            stop(tenant, schedule, begins, JOB_PAUSED)
    else:
        stop(tenant, schedule, begins, schedule.status)
    schedule.revision += 1
    schedule.updated_at = now
    schedule.save(update_fields=["version", "revision", "updated_at"])


def _find(name: str) -> Calendar | None:
    alive = Calendar.objects.filter(deleted_at=None)
    pk = _id(name)
    return alive.filter(name__iexact=name).first() if pk is None else alive.filter(pk=pk).first()


def _id(name: str) -> UUID | None:
    try:
        return UUID(name)
    except ValueError:
        return None


def _lock(calendar_id: UUID, expect: Collection[int] | None) -> Calendar:
    found = Calendar.objects.select_for_update().filter(pk=calendar_id, deleted_at=None).first()
    if found is None:
        raise NotFound("There is no such calendar.")
    if expect is not None and found.revision not in expect:
        raise Stale("The calendar has changed since; read it again.")
    return found


def _save(calendar: Calendar, now: datetime, *names: str) -> None:
    calendar.revision += 1
    calendar.updated_at = now
    calendar.save(update_fields=[*names, "revision", "updated_at"])


def _record(actor: Actor, action: str, calendar: Calendar, now: datetime, tenant: Tenant, **more: Any) -> None:
    record(
        actor=actor, action=action, object_type="calendar", object_id=calendar.pk, now=now, tenant_id=tenant.pk, **more
    )  # fmt: skip
