"""What is told of a backfill that has ended."""

from datetime import datetime

from apps.events import store as events
from apps.operations.backfill.wish import wish_of
from apps.operations.models import Operation
from apps.operations.states import ITEM_STATES
from apps.schedules.models import Schedule

TYPE = "backfill.done"


def done_event(one: Operation, now: datetime) -> events.NewEvent:
    """The event, with how many occurrences ended how. In the tenant."""
    wish = wish_of(one.params)
    job_id = Schedule.objects.filter(pk=wish.schedule_id).values_list("job_id", flat=True).first()
    data = {
        "backfill": str(one.pk), "schedule": str(wish.schedule_id), "job": None if job_id is None else str(job_id),
        "state": one.state, "from": events.instant_text(wish.within.since),
        "to": events.instant_text(wish.within.until), "planned": one.planned,
        "counts": {name: getattr(one, name) for name in ITEM_STATES}, "by": one.created_by,
    }  # fmt: skip
    return events.new_event(TYPE, now, data, job_id=job_id, schedule_id=wish.schedule_id)
