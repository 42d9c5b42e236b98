"""Names of jobs and schedules for rows that hold only their ids, and what a form offers: one query a kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from django.db.models.functions import Lower

from apps.schedules.locked_jobs import shown
from apps.schedules.models import Calendar, Job, Schedule
from kernel.pools import WORKFLOW

OFFERED_MAX = 500  # names that a select offers


class Names(NamedTuple):
    jobs: dict[UUID, str]
    schedules: dict[UUID, str]
    pages: frozenset[UUID]  # those of the jobs that have a page: no deleted ones, no workflows


def names_of(*, jobs: Iterable[UUID | None] = (), schedules: Iterable[UUID | None] = ()) -> Names:
    """Also of deleted ones: their history stays. Workflows are among the jobs."""
    wanted_jobs = {one for one in jobs if one is not None}
    wanted_schedules = {one for one in schedules if one is not None}
    found = Job.objects.filter(pk__in=wanted_jobs).only("pk", "name", "kind", "deleted_at") if wanted_jobs else ()
    rows = {job.pk: job for job in found}
    return Names(
        {key: job.name for key, job in rows.items()},
        dict(Schedule.objects.filter(pk__in=wanted_schedules).values_list("pk", "name")) if wanted_schedules else {},
        frozenset(key for key, job in rows.items() if job.deleted_at is None and job.kind != WORKFLOW),
    )


def workflow_options() -> list[tuple[str, str]]:
    """Workflows to choose from, by name."""
    found = shown("workflow").order_by(Lower("name")).values_list("pk", "name")[:OFFERED_MAX]
    return [(str(pk), name) for pk, name in found]


def calendar_options() -> list[tuple[str, str]]:
    """Calendars to choose from, by name."""
    found = Calendar.objects.filter(deleted_at=None).order_by("name").values_list("pk", "name")[:OFFERED_MAX]
    return [(str(pk), name) for pk, name in found]


def job_options(*, also: UUID | None = None) -> list[tuple[str, str]]:
    """Jobs to choose from, by name; `also` is among them whatever there is."""
    found = shown("job").order_by(Lower("name")).values_list("pk", "name")[:OFFERED_MAX]
    options = [(str(pk), name) for pk, name in found]
    if also is not None and str(also) not in {value for value, _ in options}:
        options += [(str(pk), name) for pk, name in Job.objects.filter(pk=also).values_list("pk", "name")]
    return options
