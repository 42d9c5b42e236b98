"""What is told of occurrences that did not run although nobody wanted that. Pure but for new ids."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

from apps.events.store import NewEvent, instant_text
from apps.executions.store import Skipped
from apps.schedules.occurring import BACKLOG_FULL, DAILY_QUOTA
from kernel.ids import id_from, uuid7

TYPE = "schedule.missed"
# An overlap policy, a pause and a calendar leave out what their owner wants left out; these are told.
LIMITS = frozenset({DAILY_QUOTA, BACKLOG_FULL})
MISSED = frozenset({"misfire_skipped", "misfire_capped", "misfire_too_old", *LIMITS})


def missed_events(skips: Sequence[Skipped], now: datetime) -> list[NewEvent]:
    """An event for each row of skipped occurrences that its schedule's owner should hear of.

    A limit of the plan is told once a day for each schedule: the id of the event says so.
    """
    return [_event(skip, now) for skip in skips if skip.reason in MISSED]


def _event(skip: Skipped, now: datetime) -> NewEvent:
    event_id, row = uuid7(), cast("UUID | None", skip.id)
    if skip.reason in LIMITS:
        day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        event_id = id_from(day, _kind(skip.reason), skip.schedule_id.bytes)
        row = None  # it may be an older one that grows
    data = {
        "schedule": str(skip.schedule_id),
        "job": str(skip.job_id),
        "execution": None if row is None else str(row),
        "reason": skip.reason,
        "nominal_at": instant_text(skip.nominal_at),
        "until_at": instant_text(skip.until_at),
        "count": skip.occurrences,
    }
    return NewEvent(event_id, TYPE, now, data, skip.job_id, skip.schedule_id, row)


def _kind(reason: str) -> bytes:
    """Each limit is told for itself."""
    return (TYPE if reason == DAILY_QUOTA else f"{TYPE}/{reason}").encode()
