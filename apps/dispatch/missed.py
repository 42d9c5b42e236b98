"""What is told of occurrences that did not run although nobody wanted that. Pure but for new ids."""

from collections.abc import Sequence
from datetime import datetime

from apps.events.store import NewEvent, instant_text, new_event
from apps.executions.store import Skipped

# An overlap policy, a pause and a calendar leave out what their owner wants left out; these are told.
MISSED = frozenset({"misfire_skipped", "misfire_capped", "misfire_too_old", "quota_exceeded"})


def missed_events(skips: Sequence[Skipped], now: datetime) -> list[NewEvent]:
    """An event for each row of skipped occurrences that its schedule's owner should hear of."""
    return [_event(skip, now) for skip in skips if skip.reason in MISSED]


def _event(skip: Skipped, now: datetime) -> NewEvent:
    data = {
        "schedule": str(skip.schedule_id),
        "job": str(skip.job_id),
        "execution": str(skip.id),
        "reason": skip.reason,
        "nominal_at": instant_text(skip.nominal_at),
        "until_at": instant_text(skip.until_at),
        "count": skip.occurrences,
    }
    return new_event(
        "schedule.missed", now, data, job_id=skip.job_id, schedule_id=skip.schedule_id, execution_id=skip.id
    )
