"""The versions of jobs and schedules as they are read."""

from typing import Any

from apps.schedules.models import Job, JobVersion, Schedule, ScheduleVersion
from apps.schedules.schedule_input import health_of, timing_of, waiting_of
from apps.schedules.services_secrets import PLAIN_KINDS
from kernel.masking import masked_target


def job_versions_read(job: Job, *, before: int | None, limit: int) -> list[JobVersion]:
    """Versions of a job by descending number, below `before`."""
    found = JobVersion.objects.filter(job_id=job.pk)
    return list((found if before is None else found.filter(version__lt=before)).order_by("-version")[:limit])


def schedule_versions_read(schedule: Schedule, *, before: int | None, limit: int) -> list[ScheduleVersion]:
    """Versions of a schedule by descending number, below `before`."""
    found = ScheduleVersion.objects.filter(schedule_id=schedule.pk)
    return list((found if before is None else found.filter(version__lt=before)).order_by("-version")[:limit])


def job_version_shape(job: Job, version: JobVersion) -> dict[str, Any]:
    """A version of a job; credentials in its target are masked."""
    return {
        "version": version.version,
        "target": version.target if job.kind in PLAIN_KINDS else masked_target(version.target),
        "payload": version.payload,
        "timeout_s": version.timeout_s,
        "max_queue_age_s": version.max_queue_age_s,
        "total_timeout_s": version.total_timeout_s,
        "retry": version.retry,
        "priority": version.priority,
        "max_concurrency": version.max_concurrency,
        "concurrency_key": version.concurrency_key,
        "rate_limit": version.rate_limit,
        "queue": version.queue or None,
        "created_at": version.created_at,
    }


def schedule_version_shape(version: ScheduleVersion) -> dict[str, Any]:
    """A version of a schedule."""
    timing = timing_of(version.definition)
    return {
        "version": version.version,
        "job": version.definition.get("job"),
        "workflow": version.definition.get("workflow"),
        **timing,
        "timezone": timing["timezone"] or "UTC",
        **health_of(version.definition),
        **waiting_of(version.definition),
        "payload": version.payload,
        "created_at": version.created_at,
        "decides_after": version.from_at,
        "decides_until": version.until_at,
        "ended_by": version.ended_by or None,
    }
