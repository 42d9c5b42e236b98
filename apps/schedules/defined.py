"""Jobs and schedules together with their current versions."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.schedules.models import Job, JobVersion, Schedule, ScheduleVersion
from apps.schedules.schedule_input import health_of, runs_of, timing_of, waiting_of


@dataclass(frozen=True, slots=True)
class DefinedJob:
    """A job with its current version."""

    job: Job
    definition: JobVersion


@dataclass(frozen=True, slots=True)
class DefinedSchedule:
    """A schedule with its current version.

    `made` with `next_at` when it was just made: then nothing has run, and its due entry need not be read.
    """

    schedule: Schedule
    definition: ScheduleVersion
    made: bool = False
    next_at: datetime | None = None


def job_as_given(defined: DefinedJob) -> dict[str, Any]:
    """The job as its owner could have written it: the base of a merge patch."""
    job, definition = defined.job, defined.definition
    return {
        "name": job.name,
        "kind": job.kind,
        "target": definition.target,
        "payload": definition.payload,
        "timeout_s": definition.timeout_s,
        "max_queue_age_s": definition.max_queue_age_s,
        "total_timeout_s": definition.total_timeout_s,
        "retry": definition.retry,
        "priority": definition.priority,
        "max_concurrency": definition.max_concurrency,
        "concurrency_key": definition.concurrency_key,
        "rate_limit": definition.rate_limit,
        "queue": definition.queue or None,
        "labels": job.labels,
        "external_id": job.external_id,
    }


def schedule_as_given(defined: DefinedSchedule) -> dict[str, Any]:
    """The schedule as its owner could have written it: the base of a merge patch."""
    schedule, definition = defined.schedule, defined.definition
    return {
        "name": schedule.name,
        **runs_of(definition.definition, schedule.job_id),
        **timing_of(definition.definition),
        **health_of(definition.definition),
        **waiting_of(definition.definition),
        "payload": definition.payload,
        "labels": schedule.labels,
        "external_id": schedule.external_id,
    }


def definition_of(job: Job) -> JobVersion:
    """The current version of a job."""
    return JobVersion.objects.filter(job_id=job.pk, version=job.version).get()


def version_of(schedule: Schedule) -> ScheduleVersion:
    """The current version of a schedule."""
    return ScheduleVersion.objects.filter(schedule_id=schedule.pk, version=schedule.version).get()


def job_of(version: ScheduleVersion, schedule: Schedule) -> UUID:
    """What a version runs."""
    named = version.definition.get("job") or version.definition.get("workflow")
    return UUID(named) if named else schedule.job_id


def jobs_of(schedule_id: UUID) -> list[UUID]:
    """All jobs and workflows that a schedule has had, deleted or not."""
    versions = ScheduleVersion.objects.filter(schedule_id=schedule_id)
    found: set[UUID] = set()
    for *named, now in versions.values_list("definition__job", "definition__workflow", "schedule__job_id").distinct():
        found |= {UUID(one) for one in named if one} | {now}
    return sorted(found)
