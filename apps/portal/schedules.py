"""Schedules: when things run, whether they will, and how the last ones went."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from apps.executions.filtering import ExecutionFilter
from apps.executions.reading import executions_read
from apps.portal.executions import lines
from apps.portal.pages import Offer, Page
from apps.portal.wishes import SchedulesPause, SchedulesResume, offer_for
from apps.presenting.charts import STRIP_RUNS, strip
from apps.presenting.fields import Field, Form, Option, choices
from apps.presenting.paging import PAGE_ROWS, as_uuid, paged, position_of
from apps.presenting.schedule_shown import ahead_of, rules_of, words_of
from apps.presenting.shown import look_of, moment
from apps.schedules.defined import DefinedSchedule, jobs_of, version_of
from apps.schedules.listing import DefinitionFilter, schedules_read
from apps.schedules.models import Schedule
from apps.schedules.names import job_options
from apps.schedules.reading import schedule_shapes
from kernel.errors import NotFound

STATUSES = tuple(Schedule.Status.values)
COUNTS = (20, 100, 500)  # how many runs ahead may be asked for
RECENT = 10


class ScheduleList(Page):
    """All schedules, newest first."""

    actions = {"GET": "schedule.read"}
    section = "schedules"

    def get(self, request: HttpRequest) -> HttpResponse:
        form = self._form(request)
        status = form.text("status")
        wanted = DefinitionFilter(
            name=form.text("name") or None, statuses=[status] if status in STATUSES else [],
            job_id=as_uuid(form.text("job")),
        )  # fmt: skip
        found = schedules_read(self.tenant, wanted, now=self.now, after=position_of(request), size=PAGE_ROWS)
        shapes = schedule_shapes(self.tenant, found.rows, now=self.now)
        shown = [
            {"row": one.schedule, "shape": shape, "words": words_of(one.definition.spec).partition(";")[0]}
            for one, shape in zip(found.rows, shapes, strict=True)
        ]
        return self.page(
            "portal/schedules.html", title="Schedules", form=form, filtered=any(f.value for f in form.fields.values()),
            listed=paged(request, shown, after=found.after and found.after.id),
            offers=[
                self.offer("New schedule", "portal:schedule-new", "schedule.create", kind="primary"),
                offer_for(self, SchedulesResume if status == "paused" else SchedulesPause,
                          {"name": form.text("name"), "status": status, "job": form.text("job")}),
            ],
        )  # fmt: skip

    def _form(self, request: HttpRequest) -> Form:
        form = Form([
            Field("name", "Name contains"),
            Field("status", "Status", "select", options=[Option("", "any"), *choices(STATUSES)]),
            Field("job", "Job", "select"),
        ])  # fmt: skip
        form.take(request.GET)
        job = as_uuid(form.text("job"))
        form["job"].options = [Option("", "any"), *(Option(*one) for one in job_options(also=job))]
        form["job"].value = str(job) if job else ""
        form["name"].value = form["name"].value[:200]
        return form


class ScheduleDetail(Page):
    """One schedule: what it will do and what it did."""

    actions = {"GET": "schedule.read"}
    section = "schedules"

    def get(self, request: HttpRequest, schedule_id: UUID) -> HttpResponse:
        found = access_schedule(schedule_id)
        (shape,) = schedule_shapes(self.tenant, [found], now=self.now)
        count = next((one for one in COUNTS if request.GET.get("count") == str(one)), COUNTS[0])
        wanted = ExecutionFilter(schedule_id=schedule_id, schedule_job_ids=jobs_of(schedule_id))
        rows = executions_read(self.tenant, wanted, size=STRIP_RUNS).rows
        tally = Counter(row.state for row in rows)
        meaning = ", ".join(f"{number} {look_of(state).word}" for state, number in tally.most_common())
        bars = [
            (look_of(row.state).tone, f"{moment(row.actual_at)} {look_of(row.state).word}") for row in reversed(rows)
        ]
        return self.page(
            "portal/schedule.html", title=found.schedule.name, schedule=found.schedule, shape=shape,
            words=words_of(found.definition.spec), count=count, counts=COUNTS,
            ahead=ahead_of(found.definition.spec, after=max(self.now, found.schedule.resume_at or self.now),
                           count=count, key=str(schedule_id)),
            strip=strip(bars, meaning=f"The last {len(rows)} runs: {meaning}") if rows else "", tally=meaning,
            lines=lines(rows[:RECENT], now=self.now), rules=rules_of(shape),
            offers=self._offers(found, shape["status"]),
        )  # fmt: skip

    def _offers(self, found: DefinedSchedule, status: str) -> list[Offer]:
        key = found.schedule.pk
        turn = (
            self.offer("Resume", "portal:schedule-resume", "schedule.resume", key, kind="primary")
            if status == "paused"
            else self.offer("Pause", "portal:schedule-pause", "schedule.pause", key,
                            blocked="It is completed: there is nothing to pause." if status == "completed" else "")
        )  # fmt: skip
        return [
            self.offer("Why?", "portal:schedule-explain", "schedule.read", key),
            self.offer("Edit", "portal:schedule-edit", "schedule.update", key),
            self.offer("Run now", "portal:schedule-trigger", "schedule.trigger", key),
            self.offer("Backfill", "portal:schedule-backfill", "schedule.backfill", key),
            turn,
            self.offer("Delete", "portal:schedule-delete", "schedule.delete", key),
        ]


def access_schedule(schedule_id: UUID) -> DefinedSchedule:
    """With its current version and job, in the schema of the host's tenant; the same 404 for all that is not there."""
    schedule = Schedule.objects.select_related("job").filter(pk=schedule_id, deleted_at=None).first()
    if schedule is None:
        raise NotFound("There is no such schedule.")
    return DefinedSchedule(schedule, version_of(schedule))
