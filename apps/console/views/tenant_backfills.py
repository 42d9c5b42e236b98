"""A tenant's backfills: what range of which schedule, how far day by day, and what they take of the quota."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest

from apps.console.middleware import tenant_of
from apps.console.pages import TENANT, page
from apps.console.views.tenant_operations import CHIPS, page_of, state_filter
from apps.due import outlines
from apps.operations.backfill.forecast import uses
from apps.operations.backfill.outlook import per_day_of
from apps.operations.backfill.reading import backfill_find, backfill_shape, backfills, schedule_of
from apps.operations.backfill.wish import AT_ONCE, wish_of
from apps.operations.codes import reasons_read
from apps.presenting.paging import as_uuid
from apps.presenting.progress import bar, bar_of, counted
from apps.schedules.models import Schedule
from apps.usage.admitting import live_of
from tenants import door

WORDS = {
    "missing": "those that never ran", "failed": "those that failed", "all": "all of them, once more",
    "asc": "oldest first", "desc": "newest first",
}  # fmt: skip


@page("backfills", "backfills/", title="Backfills", template="console/machines/tenant_backfills.html", site=TENANT)
def backfill_list(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """Newest first; of one schedule when that is asked for."""
    schedule = as_uuid(request.GET.get("schedule", ""))
    found, state = state_filter(request, backfills(schedule))
    rows = page_of(request, found)
    wishes = [wish_of(one.params) for one in rows.rows]
    names = dict(Schedule.objects.filter(pk__in={one.schedule_id for one in wishes}).values_list("pk", "name"))
    return {
        "listed": rows, "state": state, "schedule": schedule,
        "shown": [
            (one, wish, names.get(wish.schedule_id, ""), bar(one), (WORDS[wish.only], WORDS[wish.order]))
            for one, wish in zip(rows.rows, wishes, strict=True)
        ],
        "chips": CHIPS,
    }  # fmt: skip


@page(
    "backfill", "backfills/<uuid:key>/", title="Backfill", template="console/machines/backfill.html", site=TENANT,
    place="backfills",
)  # fmt: skip
def backfill(request: HttpRequest, now: datetime, key: UUID) -> dict[str, Any]:
    """One of them, day by day."""
    tenant, conn, one = tenant_of(request), door.raw(), backfill_find(key)
    schedule = schedule_of(one)
    shape = backfill_shape(tenant, one, now=now, schedule=schedule)
    live = (tenant.plan.max_live, live_of(conn, tenant.pk, most=tenant.plan.max_live)) if tenant.plan.max_live else None
    at_once = one.max_in_flight or AT_ONCE
    return {
        "title": f"Backfill of {schedule.name}" if schedule else "Backfill", "one": one, "shape": shape,
        "schedule": schedule, "bar": bar(one), "since": shape["from"], "until": shape["to"],
        "words": (WORDS[shape["only"]], WORDS[shape["order"]]), "seen": outlines.find(conn, one.pk),
        "days": [(day["day"], day, bar_of(day)) for day in shape["days"]],
        "uses": uses(one.pending, at_once=at_once, per_day=per_day_of(tenant, now=now), live=live),
        "counts": counted(one),
        "reasons": reasons_read(conn, tenant.schema_name, one.pk),
    }  # fmt: skip
