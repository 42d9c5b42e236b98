"""The versions of a job and of a schedule."""

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_job, access_schedule
from apps.api.documents_versions import JobVersionAnswer, ScheduleVersionAnswer
from apps.api.endpoint import Endpoint
from apps.api.lists import PAGING, ListQuery, listed
from apps.api.openapi import CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, listing, operation
from apps.schedules.models import JobVersion, ScheduleVersion
from apps.schedules.reading_versions import (
    job_version_shape,
    job_versions_read,
    schedule_version_shape,
    schedule_versions_read,
)
from kernel.errors import NotFound
from kernel.keyset import Position

PAGE_PARAMETERS = [PAGE_SIZE_PARAMETER, CURSOR_PARAMETER]
MAX_VERSION = 2_147_483_647
Version = TypeVar("Version", JobVersion, ScheduleVersion)


class JobVersions(Endpoint):
    """What a job has been."""

    actions = {"GET": "job.read"}

    @operation(
        "jobs_versions", "List the versions of a job, newest first", answer=listing(JobVersionAnswer, "JobVersion"),
        parameters=PAGE_PARAMETERS, tag="jobs",
    )  # fmt: skip
    def get(self, request: Request, job_id: UUID) -> Response:
        query = self.query(*PAGING)
        before, size = query.before(), query.page_size()
        query.finish()
        job = access_job(actor=self.actor, job_id=job_id, need="job.read").job
        rows = job_versions_read(job, before=number_of(before), limit=size + 1)
        return version_page(rows, size, query, lambda row: job_version_shape(job, row))


class JobVersionDetail(Endpoint):
    """One version of a job."""

    actions = {"GET": "job.read"}

    @operation("jobs_version", "Read a version of a job", answer=JobVersionAnswer, tag="jobs")
    def get(self, request: Request, job_id: UUID, version: int) -> Response:
        self.query().finish()
        job = access_job(actor=self.actor, job_id=job_id, need="job.read").job
        rows = job_versions_read(job, before=min(version, MAX_VERSION) + 1, limit=1)
        return Response(job_version_shape(job, only_version(rows, version)))


class ScheduleVersions(Endpoint):
    """What a schedule has been."""

    actions = {"GET": "schedule.read"}

    @operation(
        "schedules_versions", "List the versions of a schedule, newest first",
        answer=listing(ScheduleVersionAnswer, "ScheduleVersion"), parameters=PAGE_PARAMETERS, tag="schedules",
    )  # fmt: skip
    def get(self, request: Request, schedule_id: UUID) -> Response:
        query = self.query(*PAGING)
        before, size = query.before(), query.page_size()
        query.finish()
        schedule = access_schedule(actor=self.actor, schedule_id=schedule_id, need="schedule.read").schedule
        rows = schedule_versions_read(schedule, before=number_of(before), limit=size + 1)
        return version_page(rows, size, query, schedule_version_shape)


class ScheduleVersionDetail(Endpoint):
    """One version of a schedule."""

    actions = {"GET": "schedule.read"}

    @operation("schedules_version", "Read a version of a schedule", answer=ScheduleVersionAnswer, tag="schedules")
    def get(self, request: Request, schedule_id: UUID, version: int) -> Response:
        self.query().finish()
        schedule = access_schedule(actor=self.actor, schedule_id=schedule_id, need="schedule.read").schedule
        rows = schedule_versions_read(schedule, before=min(version, MAX_VERSION) + 1, limit=1)
        return Response(schedule_version_shape(only_version(rows, version)))


def version_page(
    rows: list[Version], size: int, query: ListQuery, shape: Callable[[Version], dict[str, Any]]
) -> Response:
    """Of one row more than the page has. Its cursors hold numbers."""
    after = Position(UUID(int=rows[size - 1].version)) if len(rows) > size else None
    return Response(listed(rows[:size], after, query=query, count=None, shape=shape))


def only_version(rows: list[Version], version: int) -> Version:
    if not rows or rows[0].version != version:
        raise NotFound("There is no such version.")
    return rows[0]


def number_of(cursor: UUID | None) -> int | None:
    return None if cursor is None else min(cursor.int, MAX_VERSION)
