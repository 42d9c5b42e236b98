"""Making and changing a schedule: its next runs beside the form, and old against new before anything is saved."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from apps.audit.trail import actor_of
from apps.console.middleware import tenant_of
from apps.console.pages import TENANT, page
from apps.console.roles import OPERATE
from apps.console.schedules.access import access_schedule, list_url, schedule_url
from apps.console.schedules.draft import Draft, draft_of
from apps.presenting.paging import as_uuid
from apps.presenting.schedule_fields import places_of
from apps.presenting.schedule_shown import Forecast
from apps.schedules.timing import zone_names
from kernel.errors import Conflict, InvalidInput, QuotaExceeded, Stale

TEMPLATE, PREVIEW = "console/schedules/form.html", "console/schedules/preview.html"
METHODS = ("GET", "POST")
LOOK = "Look at what it would do, then save it."


@page(
    "schedule-new", "schedules/new/", title="New schedule", template=TEMPLATE, level=OPERATE, place="schedules",
    site=TENANT, methods=METHODS,
)  # fmt: skip
def schedule_new(request: HttpRequest, now: datetime) -> dict[str, Any] | HttpResponse:
    """A new one; `?job=` chooses what it runs."""
    tenant, job = tenant_of(request), as_uuid(request.GET.get("job", "") or request.POST.get("job", ""))
    draft = draft_of(tenant, None, also_job=job)
    if request.method == "POST":
        return _posted(request, draft, now)
    draft.form["job"].value = str(job or "")
    return _context(draft)


@page(
    "schedule-edit", "schedules/<uuid:schedule_id>/edit/", title="Edit schedule", template=TEMPLATE, level=OPERATE,
    place="schedules", site=TENANT, methods=METHODS,
)  # fmt: skip
def schedule_edit(request: HttpRequest, now: datetime, schedule_id: UUID) -> dict[str, Any] | HttpResponse:
    """Changing one."""
    draft = draft_of(tenant_of(request), access_schedule(schedule_id))
    if request.method == "POST":
        return _posted(request, draft, now)
    return _looked_at(draft, now, faulty=200)  # of a stored text that can't be read: who is here may mend it


def _posted(request: HttpRequest, draft: Draft, now: datetime) -> dict[str, Any] | HttpResponse:
    draft.form.take(request.POST)
    if request.headers.get("HX-Request"):  # the preview follows the form; a fault is an answer, too
        return render(request, PREVIEW, {**_looked_at(draft, now), "now": now})
    if request.POST.get("do") != "save":
        return _looked_at(draft, now)
    before = draft.found.schedule.version if draft.found is not None else 0
    try:
        draft.read()
        if draft.is_stale:
            return _stale(draft, now)
        if draft.form.text("seen") != draft.seen:
            return {**_looked_at(draft, now), "notice": LOOK}
        saved = draft.apply(actor=actor_of(request), now=now)
    except Stale:
        return _stale(draft, now)
    except InvalidInput as error:
        draft.form.blame(error.errors, places_of(draft.form))
        return _refused(draft, now, error.status)
    except (Conflict, QuotaExceeded) as error:
        draft.form.refuse(error)
        return _refused(draft, now, error.status)
    url = schedule_url(draft.tenant, saved.schedule.pk)
    return HttpResponseRedirect(f"{url}?saved={before}", status=303)


def _looked_at(draft: Draft, now: datetime, *, faulty: int = 400) -> dict[str, Any]:
    """The form with what it would do, or with what is wrong with it; then `faulty` is the status."""
    try:
        draft.read()
        forecast = draft.forecast(now)
    except InvalidInput as error:
        draft.form.blame(error.errors, places_of(draft.form))
        return _context(draft, status=faulty)
    return _context(draft, **_outlook(draft, forecast, now))


def _refused(draft: Draft, now: datetime, status: int) -> dict[str, Any]:
    """The form with what is wrong with it, and with what it would do where that can be told."""
    try:
        outlook = {} if draft.data is None else _outlook(draft, draft.forecast(now), now)
    except InvalidInput:
        outlook = {}
    return _context(draft, status=status, **outlook)


def _outlook(draft: Draft, forecast: Forecast, now: datetime) -> dict[str, Any]:
    """What it would do and change, from now on looked at."""
    draft.form["seen"].value = draft.seen
    return {"forecast": forecast, "changes": draft.changes(), "load": draft.load(forecast, now)}


def _stale(draft: Draft, now: datetime) -> dict[str, Any]:
    """Somebody was quicker: how it is now beside what was written here, which stays in the form."""
    assert draft.found is not None
    draft.found = access_schedule(draft.found.schedule.pk)
    draft.form["revision"].value = str(draft.found.schedule.revision)
    return {**_looked_at(draft, now), "is_stale": True, "status": 409}


def _context(draft: Draft, *, status: int = 200, **more: Any) -> dict[str, Any]:
    found = draft.found
    title = {"title": f"Edit {found.schedule.name}"} if found is not None else {}
    return {
        "form": draft.form, "schedule": found.schedule if found is not None else None, "zones": sorted(zone_names()),
        "base": list_url(draft.tenant), "status": status, **title, **more,
    }  # fmt: skip
