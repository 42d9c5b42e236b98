"""One schedule: will it run when I think, how did it go, and who changed it?"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest

from apps.audit.models import AuditEvent
from apps.audit.shown import shown
from apps.console.middleware import tenant_of
from apps.console.pages import TENANT, page
from apps.console.schedules.access import access_schedule, list_url, schedule_url
from apps.console.schedules.results import newest_pauses, newest_results
from apps.console.schedules.strips import strip_of
from apps.console.shown import masked
from apps.executions.filtering import ExecutionFilter
from apps.executions.reading import ExecutionRow, executions_read
from apps.presenting.schedule_shown import ahead_of, rules_of, words_of
from apps.schedules.defined import jobs_of
from apps.schedules.models import Schedule
from apps.schedules.reading import schedule_shapes

COUNTS = (20, 100, 500)  # how many runs ahead may be asked for
RECENT = 10
CHANGES = 10


class Recent(NamedTuple):
    """An execution and its page."""

    row: ExecutionRow
    url: str


@page(
    "schedule", "schedules/<uuid:schedule_id>/", title="Schedule", template="console/schedules/detail.html",
    place="schedules", site=TENANT,
)  # fmt: skip
def schedule(request: HttpRequest, now: datetime, schedule_id: UUID) -> dict[str, Any]:
    """What it will do, what it did, what its rules are."""
    tenant, found = tenant_of(request), access_schedule(schedule_id)
    (shape,) = schedule_shapes(tenant, [found], now=now)
    count = next((one for one in COUNTS if request.GET.get("count") == str(one)), COUNTS[0])
    is_paused = shape["status"] == Schedule.Status.PAUSED
    pauses = newest_pauses(tenant, [schedule_id]) if is_paused else {}
    wanted = ExecutionFilter(schedule_id=schedule_id, schedule_job_ids=jobs_of(schedule_id))
    executions = f"/t/{tenant.slug}/admin/executions/"
    changes = AuditEvent.objects.filter(object_id=str(schedule_id), tenant_id=tenant.pk).order_by("-pk")
    return {
        "title": found.schedule.name, "schedule": found.schedule, "shape": shape,
        "words": words_of(found.definition.spec), "is_paused": is_paused,
        "paused_by": pauses[str(schedule_id)].who if pauses else "",
        "ahead": ahead_of(
            found.definition.spec, after=max(now, shape["resume_at"] or now), count=count, key=str(schedule_id)
        ),
        "count": count, "counts": COUNTS, "rules": rules_of(shape),
        "strip": strip_of(newest_results(tenant, [schedule_id]).get(schedule_id, ())),
        "recent": [Recent(row, f"{executions}{row.id}/") for row in executions_read(tenant, wanted, size=RECENT).rows],
        "executions_url": f"{executions}?{urlencode({'schedule': str(schedule_id), 'window': 'all'})}",
        "base": list_url(tenant), "edit_url": schedule_url(tenant, schedule_id, page="edit/"),
        "payload": None if shape["payload"] is None else masked(shape["payload"]),
        "changes": shown(changes.defer("before", "after")[:CHANGES], seals=False),
        "saved": _saved(request, found.schedule),
    }  # fmt: skip


def _saved(request: HttpRequest, schedule: Schedule) -> dict[str, Any] | None:
    """The receipt of the form that led here: whether it made the schedule, and the version that can be put back."""
    text = request.GET.get("saved", "")
    if not (text.isascii() and text.isdigit() and len(text) < 9):
        return None
    before = int(text)
    target = f"{schedule.pk}/{before}" if 0 < before < schedule.version else ""
    return {"made": not before, "target": target}
