"""What people ask of backfills: one of a schedule or a workflow, or what it would do. Then it is an operation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from apps.audit.services import Actor
from apps.operations import services
from apps.operations.backfill.outlook import Outlook, Scheduled, outlook, scheduled, segments_of
from apps.operations.backfill.segments import THEN, count
from apps.operations.backfill.wish import AT_ONCE, FIELDS, Wish, check_count, read_wish
from apps.operations.models import Operation
from apps.operations.outlined import BACKFILL
from apps.operations.pacing import NAMES as PACE_NAMES
from apps.operations.pacing import Pace
from apps.schedules.input_fields import Fields
from apps.schedules.models import Schedule
from apps.workflows.definitions.defined import DefinedWorkflow
from kernel.errors import Faults, FieldError, InvalidInput
from kernel.pools import WORKFLOW
from tenants.models import Tenant
from tenants.work import in_tenant

ACTION, TARGET = BACKFILL, "schedules"
MEMBERS = (*FIELDS, *PACE_NAMES, "reason", "dry_run")
MAX_REASON_CHARS = 500
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Asked:
    """A valid wish for a backfill, how fast it is to go, and why."""

    wish: Wish
    pace: Pace
    reason: str
    dry_run: bool
    found: Scheduled

    @property
    def at_once(self) -> int:
        return self.pace.max_in_flight or AT_ONCE


class Rehearsal(NamedTuple):
    """What was asked for, and what it would do."""

    asked: Asked
    seen: Outlook


def backfill_ask(
    *, tenant: Tenant, actor: Actor, schedule_id: UUID, data: Mapping[str, Any], now: datetime
) -> Operation | Rehearsal:
    """Asks for a backfill, which a dispatcher plans and works off; with `dry_run` in the data only what it would do.

    NotFound; InvalidInput with all faults.
    """

    def work() -> Operation | Rehearsal:
        asked = _read(tenant, schedule_id, data, now)
        if asked.dry_run:
            return Rehearsal(
                asked,
                outlook(
                    tenant, asked.wish, asked.found, at_once=asked.at_once, rate_per_s=asked.pace.rate_per_s, now=now
                ),
            )
        wish = services.Wish(
            ACTION, TARGET, {"schedule": str(schedule_id)}, asked.wish.as_params(), asked.pace, asked.reason
        )
        return services.operation_create(tenant=tenant, actor=actor, wish=wish, now=now)

    return in_tenant(tenant, work)


def schedule_of_workflow(workflow_id: UUID, given: Any) -> UUID:
    """The schedule whose occurrences of a workflow are meant: the one that is given, or its only one. InvalidInput.

    In the tenant. A workflow that nobody schedules has no occurrences.
    """
    known = {str(one.pk): one for one in Schedule.objects.filter(job_id=workflow_id, deleted_at=None).order_by("name")}
    if isinstance(given, str) and given.lower() in known:
        return known[given.lower()].pk
    if given is None and len(known) == 1:
        return next(iter(known.values())).pk
    if given is not None:
        fault = FieldError("/schedule", "not_found", "This workflow has no such schedule.")
    elif known:
        names = ", ".join(f"{key} ({one.name})" for key, one in list(known.items())[:SHOWN])
        fault = FieldError("/schedule", "required", f"This workflow has {len(known)} schedules; say which: {names}.")
    else:
        detail = "This workflow has no schedule, so it has no occurrences. Make one; it may be paused."
        fault = FieldError("/schedule", "no_schedule", detail)
    raise InvalidInput([fault])


def _read(tenant: Tenant, schedule_id: UUID, data: Mapping[str, Any], now: datetime) -> Asked:
    found = scheduled(schedule_id)
    faults = Faults()
    fields = Fields(data, faults)
    fields.only(MEMBERS)
    wish = read_wish(fields, schedule_id=schedule_id, spec=found.spec, now=now, chained=_is_chained(found))
    given = {name: fields.data[name] for name in PACE_NAMES if fields.data.get(name) is not None}
    pace = Pace(max_in_flight=AT_ONCE).changed(given, faults)
    reason = fields.text("reason", most=MAX_REASON_CHARS, lines=True) or ""
    if wish is not None and wish.definition == THEN:
        check_count(faults, count(segments_of(tenant, found, wish)))
    dry_run = fields.flag("dry_run")
    faults.raise_if_any()
    assert wish is not None
    return Asked(wish, replace(pace, max_in_flight=1) if wish.serial else pace, reason, dry_run, found)


def _is_chained(found: Scheduled) -> bool:
    """Whether a step of the workflow waits for the run before."""
    if found.job.job.kind != WORKFLOW:
        return False
    workflow = DefinedWorkflow(found.job.job, found.job.definition).workflow
    return any(step.depends_on_previous for step in workflow.steps)
