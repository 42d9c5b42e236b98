"""Everything that can be done to jobs and schedules, in one place to import from."""

from apps.schedules.creating_jobs import job_create, jobs_create
from apps.schedules.creating_schedules import schedule_create, schedules_create
from apps.schedules.defined import DefinedJob, DefinedSchedule, job_as_given, schedule_as_given
from apps.schedules.services_calendars import calendar_create, calendar_delete, calendar_replace, calendar_update
from apps.schedules.services_jobs import (
    job_delete,
    job_pause,
    job_replace,
    job_resume,
    job_update,
)
from apps.schedules.services_pausing import schedule_pause, schedule_resume
from apps.schedules.services_schedules import schedule_delete, schedule_replace, schedule_update
from apps.schedules.services_secrets import secret_delete
from apps.schedules.upserting import job_put, schedule_put

__all__ = [
    "DefinedJob",
    "DefinedSchedule",
    "calendar_create",
    "calendar_delete",
    "calendar_replace",
    "calendar_update",
    "job_as_given",
    "job_create",
    "job_delete",
    "job_pause",
    "job_put",
    "job_replace",
    "job_resume",
    "job_update",
    "jobs_create",
    "schedule_as_given",
    "schedule_create",
    "schedule_delete",
    "schedule_pause",
    "schedule_put",
    "schedule_replace",
    "schedule_resume",
    "schedule_update",
    "schedules_create",
    "secret_delete",
]
