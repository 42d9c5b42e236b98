"""Jobs and schedules as they are read: with their versions, next and last runs; a fixed number of queries for many."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F
from psycopg import sql

from apps.schedules.defined import DefinedJob, DefinedSchedule, job_as_given, schedule_as_given
from apps.schedules.models import Job, JobVersion, Schedule, ScheduleVersion
from apps.schedules.services_secrets import PLAIN_KINDS
from kernel.masking import masked_target
from tenants import door
from tenants.models import Tenant

# Their due entries, and the newest occurrence that was fired, by the index that keeps occurrences unique.
_AROUND = """
SELECT s.id, d.due_at, d.parked, (SELECT e.actual_at FROM {schema}.executions_execution e
              WHERE e.schedule_id = s.id AND e.trigger IN ('schedule', 'catch_up') AND e.nominal_at IS NOT NULL
                AND e.state <> 'skipped'
              ORDER BY e.nominal_at DESC LIMIT 1)
FROM unnest(%s::uuid[]) AS s(id)
LEFT JOIN LATERAL (SELECT d.due_at, d.parked FROM due_dueentry d WHERE d.key = s.id LIMIT 1) d ON true
"""


def job_shape(defined: DefinedJob) -> dict[str, Any]:
    """A job."""
    job, given = defined.job, job_as_given(defined)
    return {
        "id": job.pk,
        **given,
        "target": given["target"] if job.kind in PLAIN_KINDS else masked_target(given["target"]),
        "version": job.version,
        "status": "active" if job.paused_at is None else "paused",
        "paused_at": job.paused_at,
        "paused_reason": job.paused_reason or None,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
    }


def jobs_defined(jobs: Sequence[Job]) -> list[DefinedJob]:
    """Jobs with their current versions, in one query."""
    found = JobVersion.objects.filter(job_id__in=[job.pk for job in jobs], version=F("job__version"))
    versions = {version.job_id: version for version in found}
    return [DefinedJob(job, versions[job.pk]) for job in jobs if job.pk in versions]


def schedules_defined(schedules: Sequence[Schedule]) -> list[DefinedSchedule]:
    """Schedules with their current versions, in one query."""
    ids = [schedule.pk for schedule in schedules]
    found = ScheduleVersion.objects.filter(schedule_id__in=ids, version=F("schedule__version"))
    versions = {version.schedule_id: version for version in found}
    return [DefinedSchedule(one, versions[one.pk]) for one in schedules if one.pk in versions]


def schedules_with(ids: Sequence[UUID]) -> list[DefinedSchedule]:
    """Those of these schedules that are not deleted, in this order, with their current versions and jobs; one query."""
    found = ScheduleVersion.objects.select_related("schedule__job").filter(
        schedule_id__in=ids, version=F("schedule__version"), schedule__deleted_at=None
    )
    by_id = {version.schedule_id: DefinedSchedule(version.schedule, version) for version in found}
    return [by_id[key] for key in ids if key in by_id]


def schedule_shapes(tenant: Tenant, defined: Sequence[DefinedSchedule], *, now: datetime) -> list[dict[str, Any]]:
    """Schedules with when they run next and ran last. Their jobs must be read with them."""
    following = {one.schedule.pk: (one.next_at, "") for one in defined if one.made and one.next_at is not None}
    last: dict[UUID, datetime | None] = {}
    ids = [one.schedule.pk for one in defined if not one.made]
    if ids:
        query = sql.SQL(_AROUND).format(schema=sql.Identifier(tenant.schema_name))
        for key, due_at, parked, last_at in door.raw().execute(query, [ids]):
            last[key] = last_at
            if due_at is not None:
                following[key] = (due_at, parked)
    return [_schedule_shape(one, following.get(one.schedule.pk), last.get(one.schedule.pk), now) for one in defined]


def _schedule_shape(
    one: DefinedSchedule, following: tuple[datetime, str] | None, last_at: datetime | None, now: datetime
) -> dict[str, Any]:
    """`following` is the due entry: its instant, and why it is put aside; then there is no next run."""
    schedule = one.schedule
    status = schedule.status
    next_at, problem = following or (None, "")
    over = status == Schedule.Status.PAUSED and schedule.resume_at is not None and schedule.resume_at <= now
    if over:  # nothing is written when a pause ends by itself
        status = Schedule.Status.ACTIVE
    # Fire does not write schedules: one that has fired for the last time is found by having no entry.
    if status == Schedule.Status.ACTIVE and following is None and schedule.job.paused_at is None:
        status = Schedule.Status.COMPLETED
    given = schedule_as_given(one)
    given["timezone"] = given["timezone"] or "UTC"
    return {
        "id": schedule.pk,
        **given,
        "version": schedule.version,
        "status": str(status),
        "paused_reason": None if over else schedule.paused_reason or None,
        "paused_at": None if over else schedule.paused_at,
        "resume_at": None if over else schedule.resume_at,
        "next_at": None if problem else next_at,
        "problem": problem or None,
        "last_at": last_at,
        "created_at": schedule.created_at,
        "updated_at": schedule.updated_at,
    }
