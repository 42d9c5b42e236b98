"""Making and editing a schedule, with its preview beside the form: the same code that fires decides what is shown."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from apps.portal.pages import Page, go
from apps.portal.schedules import access_schedule
from apps.presenting.fields import Form
from apps.presenting.load_words import load_words
from apps.presenting.paging import as_uuid
from apps.presenting.schedule_fields import Offered, definition_of, fill, places_of, schedule_form
from apps.presenting.schedule_shown import Forecast, Limits, differences, forecast_of, known_of
from apps.schedules import services
from apps.schedules.defined import DefinedSchedule, schedule_as_given
from apps.schedules.loads import load_hint
from apps.schedules.names import calendar_options, job_options, workflow_options
from apps.schedules.schedule_input import Known
from apps.schedules.services_calendars import exclusion_read
from apps.schedules.timing import zone_names
from kernel.errors import Conflict, InvalidInput, QuotaExceeded, Stale
from kernel.pools import WORKFLOW
from tenants import door

SHOWN = 10
FRAGMENT = "X-Shardbeat-Fragment"


class ScheduleForm(Page):
    """What making and editing share."""

    section = "schedules"
    heading = ""

    def shown(self, form: Form, *, found: DefinedSchedule | None, forecast: Forecast | None = None,
              status: int = 200, stale: list[tuple[str, Any, Any]] | None = None) -> HttpResponse:  # fmt: skip
        if self.request.headers.get(FRAGMENT):
            base = {"forecast": forecast, "form": form, "now": self.now, "load": self._load(forecast, found)}
            return render(self.request, "portal/schedule_preview.html", base)
        return self.page(
            "portal/schedule_form.html", status=status, title=self.heading, form=form, forecast=forecast, stale=stale,
            load=self._load(forecast, found),
            zones=sorted(zone_names()), schedule=found.schedule if found else None,
        )  # fmt: skip

    def forecast(self, data: dict[str, Any], found: DefinedSchedule | None) -> Forecast:
        """What would run. InvalidInput as saving would raise it, but for a name and a job, which it does not need."""
        plan = self.tenant.plan
        return forecast_of(
            data, key=str(found.schedule.pk) if found else "", known=_known(found) if found else None, now=self.now,
            limits=Limits(plan.min_interval_s, plan.max_payload_bytes), exclusion_of=exclusion_read, count=SHOWN,
        )  # fmt: skip

    def _load(self, forecast: Forecast | None, found: DefinedSchedule | None) -> list[str]:
        """Where its runs meet those of others, in sentences."""
        if forecast is None:
            return []
        key = str(found.schedule.pk) if found else ""
        told = load_hint(door.raw(), forecast.spec, key=key, now=self.now)
        return load_words(told.hint if told is not None else None)

    def judged(self, form: Form, error: InvalidInput) -> None:
        form.blame(error.errors, places_of(form))


class ScheduleNew(ScheduleForm):
    """A new one."""

    actions = {"GET": "schedule.create", "POST": "schedule.create"}
    heading = "New schedule"

    def get(self, request: HttpRequest) -> HttpResponse:
        form = schedule_form(offered=_offered())
        form["job"].value = str(as_uuid(request.GET.get("job", "")) or "")
        return self.shown(form, found=None)

    def post(self, request: HttpRequest) -> HttpResponse:
        form = schedule_form(offered=_offered(as_uuid(request.POST.get("job", ""))))
        form.take(request.POST)
        try:
            data = definition_of(form)
            if request.POST.get("do") != "save":
                return self.shown(form, found=None, forecast=self.forecast(data, None))
            made = services.schedule_create(tenant=self.tenant, actor=self.actor, data=data, now=self.now)
        except InvalidInput as error:
            self.judged(form, error)
            return self.shown(form, found=None, status=400)
        except (Conflict, QuotaExceeded) as error:
            self.refused(error)
            form.refuse(error)
            return self.shown(form, found=None, status=error.status)
        messages.success(request, f"{made.schedule.name} is made, and due from now on.")
        return go("portal:schedule", made.schedule.pk)


class ScheduleEdit(ScheduleForm):
    """Changing one: old against new before it is saved, and what somebody else changed meanwhile."""

    actions = {"GET": "schedule.update", "POST": "schedule.update"}
    heading = "Edit schedule"

    def get(self, request: HttpRequest, schedule_id: UUID) -> HttpResponse:
        found = access_schedule(schedule_id)
        form = self._form(found)
        try:
            forecast = self.forecast(definition_of(form), found)
        except InvalidInput:  # of a stored text that can't be read; its owner is here to mend it
            forecast = None
        return self.shown(form, found=found, forecast=forecast)

    def post(self, request: HttpRequest, schedule_id: UUID) -> HttpResponse:
        found = access_schedule(schedule_id)
        form = self._form(found)
        form.take(request.POST)
        try:
            data = definition_of(form)
            if request.POST.get("do") != "save":
                return self.shown(form, found=found, forecast=self.forecast(data, found))
            changed = services.schedule_replace(
                tenant=self.tenant, actor=self.actor, schedule_id=schedule_id, data=data, now=self.now,
                expect=form.seen(),
            )  # fmt: skip
        except Stale as error:
            self.refused(error)
            found = access_schedule(schedule_id)
            form["revision"].value = str(found.schedule.revision)
            return self.shown(form, found=found, status=409, stale=differences(schedule_as_given(found), data))
        except InvalidInput as error:
            self.judged(form, error)
            return self.shown(form, found=found, status=400)
        except (Conflict, QuotaExceeded) as error:
            self.refused(error)
            form.refuse(error)
            return self.shown(form, found=found, status=error.status)
        messages.success(request, f"Saved. {changed.schedule.name} is version {changed.schedule.version} now.")
        return go("portal:schedule", schedule_id)

    def _form(self, found: DefinedSchedule) -> Form:
        also = found.schedule.job_id if found.schedule.job.kind != WORKFLOW else None
        form = schedule_form(offered=_offered(also))
        fill(form, schedule_as_given(found))
        form["revision"].value = str(found.schedule.revision)
        return form


def _offered(also: UUID | None = None) -> Offered:
    return Offered(job_options(also=also), workflow_options(), calendar_options())


def _known(found: DefinedSchedule) -> Known | None:
    return known_of(found.definition.spec, found.definition.definition, found.schedule.paused_at)
