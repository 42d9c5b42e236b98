"""Backfills as they are shown: over the API, by the command and on pages."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery

from apps.operations.backfill.forecast import Pace, expected_end, measured_end
from apps.operations.backfill.live import typical_s
from apps.operations.backfill.outlook import Outlook, per_day_of
from apps.operations.backfill.progress import Part, progress
from apps.operations.backfill.recognising import STANDINGS
from apps.operations.backfill.services import ACTION, TARGET, Asked
from apps.operations.backfill.wish import AT_ONCE, Wish, wish_of
from apps.operations.models import Operation
from apps.operations.states import ITEM_STATES
from apps.schedules.models import Schedule, ScheduleVersion
from apps.schedules.timing import spec_from_json
from kernel.errors import NotFound
from kernel.pools import WORKFLOW
from tenants import door
from tenants.models import Tenant

GOES_ON = ("planning", "running")


def backfills(schedule_id: UUID | None = None) -> "QuerySet[Operation]":
    """All of the tenant that this is called in, or those of a schedule."""
    found = Operation.objects.filter(action=ACTION, target=TARGET)
    return found if schedule_id is None else found.filter(filter__schedule=str(schedule_id))


def backfill_find(backfill_id: UUID) -> Operation:
    """NotFound when it is none, or another operation. In the tenant."""
    found = backfills().filter(pk=backfill_id).first()
    if found is None:
        raise NotFound("There is no such backfill.")
    return found


def backfill_item(one: Operation) -> dict[str, Any]:
    """A backfill as lists show it."""
    wish = wish_of(one.params)
    return {
        "id": one.pk,
        "state": one.state,
        **wish_shape(wish),
        "max_in_flight": one.max_in_flight,
        "rate_per_s": one.rate_per_s,
        "canary": one.canary,
        "stop_after_failures": one.stop_after_failures,
        "reason": one.reason or None,
        "paused_reason": one.paused_reason or None,
        "waits_for": one.waits_for or None,
        "error": one.error or None,
        "planned": one.planned,
        "counts": {name: getattr(one, name) for name in ITEM_STATES},
        "created_by": one.created_by,
        "created_at": one.created_at,
        "started_at": one.started_at,
        "finished_at": one.finished_at,
    }


def schedule_of(one: Operation) -> Schedule | None:
    """The schedule of a backfill with its job, and the text of its trigger as `spec`; None when it is gone."""
    current = ScheduleVersion.objects.filter(schedule=OuterRef("pk"), version=OuterRef("version"))
    found = Schedule.objects.select_related("job").annotate(spec=Subquery(current.values("spec")[:1]))
    schedule: Schedule | None = found.filter(pk=wish_of(one.params).schedule_id).first()
    return schedule


def backfill_shape(
    tenant: Tenant, one: Operation, *, now: datetime, schedule: Schedule | None = None
) -> dict[str, Any]:
    """A backfill with its progress day by day, and when it will have ended. In the tenant.

    `schedule` is what `schedule_of` has found, where the caller needs it, too.
    """
    wish = wish_of(one.params)
    schedule = schedule or schedule_of(one)
    zone = "UTC" if schedule is None else _zone_of(schedule)
    parts = progress(door.raw(), tenant.schema_name, one.pk, wish.within, zone)
    is_workflow = schedule is not None and schedule.job.kind == WORKFLOW
    return {
        **backfill_item(one),
        "job": None if schedule is None or is_workflow else schedule.job_id,
        "workflow": schedule.job_id if schedule is not None and is_workflow else None,
        "timezone": zone,
        "days": [_part_shape(part) for part in parts],
        "expected_end": _end(tenant, one, schedule, wish, now),
        "as_of": now,
    }


def outlook_shape(asked: Asked, seen: Outlook) -> dict[str, Any]:
    """What a backfill would do."""
    schedule = asked.found.schedule
    is_workflow = schedule.job.kind == WORKFLOW
    return {
        "dry_run": True,
        **wish_shape(asked.wish),
        "job": None if is_workflow else schedule.job_id,
        "workflow": schedule.job_id if is_workflow else None,
        "timezone": asked.found.spec.zone,
        "max_in_flight": asked.pace.max_in_flight,
        "rate_per_s": asked.pace.rate_per_s,
        "occurrences": seen.standings.total(),
        "standings": {name: seen.standings[name] for name in STANDINGS},
        "count": seen.count,
        "first": seen.first,
        "last": seen.last,
        "sample": seen.sample,
        "expected_end": seen.expected_end,
        "quotas": [
            {"quota": use.quota, "limit": use.limit, "use": use.use, "adds": use.adds, "enough": use.enough}
            for use in seen.uses
        ],
        "warnings": seen.warnings,
    }


def wish_shape(wish: Wish) -> dict[str, Any]:
    """What was asked for."""
    return {
        "schedule": wish.schedule_id,
        "from": wish.within.since,
        "to": wish.within.until,
        "order": wish.order,
        "only": wish.only,
        "overlap": wish.overlap,
        "priority": wish.priority,
        "definition": wish.definition,
    }


def _zone_of(schedule: Schedule) -> str:
    """The zone in which the schedule has its days."""
    text = getattr(schedule, "spec", None)  # `schedule_of` has put it there
    return "UTC" if text is None else spec_from_json(text).zone


def _part_shape(part: Part) -> dict[str, Any]:
    return {"day": part.name, **part.counts}


def _end(tenant: Tenant, one: Operation, schedule: Schedule | None, wish: Wish, now: datetime) -> datetime | None:
    """As fast as it went until now, or as runs of its job usually go; not before the plan's days have room for it.

    None when it has ended, or stands still.
    """
    if one.state not in GOES_ON or not one.is_planned or one.started_at is None:
        return None
    left = one.pending + one.running
    measured = measured_end(left, done=one.succeeded + one.failed, since=one.started_at, now=now)
    per_day = per_day_of(tenant, now=now)
    has_room = per_day is None or per_day[0] - per_day[1] >= one.pending
    if schedule is None or (measured is not None and has_room):
        return measured
    run_s = typical_s(door.raw(), tenant.schema_name, schedule.job_id)
    at_once = 1 if wish.serial else one.max_in_flight or AT_ONCE
    pace = Pace(run_s, at_once, one.rate_per_s)
    return expected_end(left if has_room else one.pending, pace, now=now, per_day=None if has_room else per_day)
