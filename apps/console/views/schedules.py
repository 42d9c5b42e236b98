"""A tenant's schedules: what runs when, how it went, and who paused what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest

from apps.console.chips import chips
from apps.console.middleware import tenant_of
from apps.console.pages import TENANT, page
from apps.console.schedules.access import schedule_url
from apps.console.schedules.results import newest_pauses, newest_results
from apps.console.schedules.strips import Strip, strip_of
from apps.presenting.paging import as_uuid, paged, position_of
from apps.presenting.schedule_shown import words_of
from apps.schedules.listing import DefinitionFilter, schedules_read
from apps.schedules.models import Schedule
from apps.schedules.reading import schedule_shapes

ROWS = 40
NAME_CHARS = 200
STATUSES = tuple(Schedule.Status.values)


@dataclass(frozen=True, slots=True)
class Row:
    """One schedule of the list."""

    schedule: Schedule
    shape: dict[str, Any]
    words: str
    strip: Strip
    paused_by: str


@page(
    "schedules", "schedules/", title="Schedules", template="console/schedules/list.html", site=TENANT,
)  # fmt: skip
def schedules(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """Newest first; by name, status and job."""
    tenant = tenant_of(request)
    name = request.GET.get("name", "").strip()[:NAME_CHARS]
    status = request.GET.get("status", "")
    status = status if status in STATUSES else ""
    job = as_uuid(request.GET.get("job", ""))
    wanted = DefinitionFilter(name=name or None, statuses=[status] if status else [], job_id=job)
    found = schedules_read(tenant, wanted, now=now, after=position_of(request), size=ROWS)
    shapes = schedule_shapes(tenant, found.rows, now=now)
    results = newest_results(tenant, [one.schedule.pk for one in found.rows])
    pauses = newest_pauses(tenant, [shape["id"] for shape in shapes if shape["status"] == Schedule.Status.PAUSED])
    rows = [
        Row(
            one.schedule, shape, words_of(one.definition.spec).partition(";")[0],
            strip_of(results.get(one.schedule.pk, ())),
            pauses[str(one.schedule.pk)].who if str(one.schedule.pk) in pauses else "",
        )
        for one, shape in zip(found.rows, shapes, strict=True)
    ]  # fmt: skip
    return {
        "listed": paged(request, rows, after=found.after and found.after.id), "name": name, "chosen": status,
        "job": job, "filtered": bool(name or status or job),
        "new_url": schedule_url(tenant, "new"),
        "statuses": chips(request, "status", [("", "all"), *((one, one) for one in STATUSES)], chosen=status),
    }  # fmt: skip
