"""Jobs: what runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from apps.executions.filtering import ExecutionFilter
from apps.executions.reading import executions_read
from apps.portal.executions import lines
from apps.portal.pages import Offer, Page
from apps.portal.wishes import JobsPause, JobsResume, offer_for
from apps.presenting.fields import Field, Form, Option, choices
from apps.presenting.paging import PAGE_ROWS, paged, position_of
from apps.schedules.defined import DefinedJob, definition_of
from apps.schedules.job_input import KINDS
from apps.schedules.listing import DefinitionFilter, jobs_read
from apps.schedules.locked_jobs import shown
from apps.schedules.models import Job, Schedule
from apps.schedules.reading import job_shape, schedule_shapes, schedules_defined
from apps.schedules.retry import DEFAULTS
from kernel.errors import NotFound

STATUSES = ("active", "paused")
SHOWN_SCHEDULES = 20
RECENT = 10


class JobList(Page):
    """All jobs, newest first."""

    actions = {"GET": "job.read"}
    section = "jobs"

    def get(self, request: HttpRequest) -> HttpResponse:
        anything = [Option("", "any")]
        form = Form([
            Field("name", "Name contains"), Field("kind", "Kind", "select", options=[*anything, *choices(KINDS)]),
            Field("status", "Status", "select", options=[*anything, *choices(STATUSES)]),
        ])  # fmt: skip
        form.take(request.GET)
        form["name"].value = form["name"].value[:200]
        kind, status = form.text("kind"), form.text("status")
        wanted = DefinitionFilter(
            name=form.text("name") or None, kinds=[kind] if kind in KINDS else [],
            statuses=[status] if status in STATUSES else [],
        )  # fmt: skip
        found = jobs_read(self.tenant, wanted, after=position_of(request), size=PAGE_ROWS)
        shapes = [job_shape(one) for one in found.rows]
        shown = [
            {"row": one.job, "shape": shape, "target": target_line(shape)}
            for one, shape in zip(found.rows, shapes, strict=True)
        ]
        return self.page(
            "portal/jobs.html", title="Jobs", form=form, filtered=any(f.value for f in form.fields.values()),
            listed=paged(request, shown, after=found.after and found.after.id),
            offers=[
                self.offer("New job", "portal:job-new", "job.create", kind="primary"),
                offer_for(self, JobsResume if status == "paused" else JobsPause,
                          {"name": form.text("name"), "kind": kind, "status": status}),
            ],
        )  # fmt: skip


class JobDetail(Page):
    """One job."""

    actions = {"GET": "job.read"}
    section = "jobs"

    def get(self, request: HttpRequest, job_id: UUID) -> HttpResponse:
        found = access_job(job_id)
        shape = job_shape(found)
        using = Schedule.objects.select_related("job").filter(job_id=job_id, deleted_at=None).order_by("-pk")
        defined = schedules_defined(list(using[: SHOWN_SCHEDULES + 1]))
        schedules = list(zip(
            (one.schedule for one in defined), schedule_shapes(self.tenant, defined, now=self.now), strict=True
        ))  # fmt: skip
        rows = executions_read(self.tenant, ExecutionFilter(job_ids=[job_id]), size=RECENT).rows
        retry = {name: value for name, value in shape["retry"].items() if value != DEFAULTS.get(name)}
        return self.page(
            "portal/job.html", title=found.job.name, job=found.job, shape=shape, target=target_line(shape),
            schedules=schedules[:SHOWN_SCHEDULES], more_schedules=len(schedules) > SHOWN_SCHEDULES, retry=retry,
            lines=lines(rows, now=self.now, job=found.job), offers=self._offers(found.job, bool(schedules)),
        )  # fmt: skip

    def _offers(self, job: Job, used: bool) -> list[Offer]:
        turn = (
            self.offer("Pause", "portal:job-pause", "job.pause", job.pk)
            if job.paused_at is None
            else self.offer("Resume", "portal:job-resume", "job.resume", job.pk, kind="primary")
        )
        return [
            self.offer("Edit", "portal:job-edit", "job.update", job.pk),
            self.offer("Run now", "portal:job-run", "execution.submit", job.pk),
            turn,
            self.offer("Delete", "portal:job-delete", "job.delete", job.pk,
                       blocked="Schedules use it; delete those first." if used else ""),
        ]  # fmt: skip


def access_job(job_id: UUID) -> DefinedJob:
    """With its current version, in the schema of the host's tenant; the same 404 for all that is not there."""
    job = shown("job").filter(pk=job_id).first()
    if job is None:
        raise NotFound("There is no such job.")
    return DefinedJob(job, definition_of(job))


def target_line(shape: dict[str, Any]) -> str:
    """What it calls, in one line, without credentials."""
    target = shape["target"] if isinstance(shape["target"], dict) else {}
    if shape["kind"] == "http":
        url = target.get("url")
        return f"{target.get('method') or 'POST'} {url if isinstance(url, str) else 'a URL with a secret'}"
    if shape["kind"] == "python":
        return str(target.get("task", ""))
    if shape["kind"] == "container":
        return str(target.get("image", ""))
    return f"queue {shape['queue']}" if shape["queue"] else "delivered to a queue of yours"
