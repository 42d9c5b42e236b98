"""One schedule: will it run when I think, how did it go, and who changed it?"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest

from apps.audit.looking import newest_about
from apps.audit.shown import Shown
from apps.console.middleware import tenant_of
from apps.console.pages import TENANT, page
from apps.console.schedules.access import access_schedule, list_url, schedule_url
from apps.console.schedules.results import OF_ITS_OWN, newest_pauses, results_of
from apps.console.schedules.strips import strip_of
from apps.console.shown import masked
from apps.presenting.schedule_shown import ahead_of, rules_of, words_of
from apps.schedules.models import Schedule
from apps.schedules.reading import schedule_shapes
from tenants.models import Tenant

COUNTS = (20, 100, 500)  # how many runs ahead may be asked for
RECENT = 10
CHANGES = 10


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
    results = results_of(tenant, schedule_id)
    changes = newest_about(tenant.pk, [str(schedule_id)], most=CHANGES)
    return {
        "title": found.schedule.name, "schedule": found.schedule, "shape": shape, "is_paused": is_paused,
        "words": words_of(found.definition.spec), "paused_by": _paused_by(tenant, schedule_id, changes, is_paused),
        "next_runs": ahead_of(
            found.definition.spec, after=max(now, shape["resume_at"] or now), count=count, key=str(schedule_id)
        ),
        "count": count, "counts": COUNTS, "rules": rules_of(shape),
        "strip": strip_of([one for one in results if one.trigger in OF_ITS_OWN]),
        "recent": results[-RECENT:][::-1], "base": list_url(tenant),
        "edit_url": schedule_url(tenant, schedule_id, page="edit/"), "payload": masked(shape["payload"]),
        "changes": changes, "saved": _saved(request, found.schedule),
    }  # fmt: skip


def _paused_by(tenant: Tenant, schedule_id: UUID, changes: list[Shown], is_paused: bool) -> str:
    """Who paused it last; mostly that is among its newest changes."""
    if not is_paused:
        return ""
    newest = (one.who for one in changes if one.event.action == "schedule.pause" and one.event.allowed)
    if who := next(newest, ""):
        return who
    return next((one.who for one in newest_pauses(tenant, [schedule_id]).values()), "")


def _saved(request: HttpRequest, schedule: Schedule) -> dict[str, Any] | None:
    """The receipt of the form that led here: whether it made the schedule, and the version that can be put back."""
    text = request.GET.get("saved", "")
    if not (text.isascii() and text.isdigit() and len(text) < 9):
        return None
    before = int(text)
    target = f"{schedule.pk}/{before}" if 0 < before < schedule.version else ""
    return {"made": not before, "target": target, "before": before}
