"""The demo's backfill: a day of an hourly schedule of the first tenant, from before there was any of it."""

from __future__ import annotations

from datetime import datetime, timedelta

from apps.operations.backfill.reading import backfills
from apps.operations.backfill.services import backfill_ask
from apps.schedules.models import Schedule
from demo.content import ACTOR
from tenants import door
from tenants.models import Tenant

SCHEDULE = "demo:recount-collection-subscribers"
AT_ONCE = 4
DAY = timedelta(days=1)


def ask(tenant: Tenant, *, now: datetime) -> bool:
    """Asks for it, once; whether that was now. A tenant without the schedule has none."""
    with door.inside(tenant):
        schedule = Schedule.objects.filter(external_id=SCHEDULE, deleted_at=None).first()
        if schedule is None or backfills().filter(filter__schedule=str(schedule.pk)).exists():
            return False
    until = schedule.created_at.replace(minute=0, second=0, microsecond=0)
    data = {
        "from": (until - DAY).isoformat(), "to": until.isoformat(), "max_in_flight": AT_ONCE, "reason": "demo",
    }  # fmt: skip
    backfill_ask(tenant=tenant, actor=ACTOR, schedule_id=schedule.pk, data=data, now=now)
    return True
