"""Backfill: past occurrences of a schedule become runs, in order and a few at a time."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.archive.errors import ArchiveUnreachable
from apps.events import store as events
from apps.operations.backfill.live import live_of
from apps.operations.backfill.outlook import scheduled, segments_of, stood
from apps.operations.backfill.recognising import wants
from apps.operations.backfill.segments import page
from apps.operations.backfill.starting import occurrence_start
from apps.operations.backfill.telling import done_event
from apps.operations.backfill.wish import wish_of
from apps.operations.backfill.yielding import holds
from apps.operations.kinds.base import Cursor, Done, HeldBack, Kind, NewItem, Planned, TakenItem, Work
from apps.operations.kinds.executions import cancel_unstarted
from apps.operations.models import Operation
from apps.schedules.timing_triggers import instant_of, instant_text
from kernel.errors import Faults, NotFound
from kernel.pools import pool_of
from tenants import door
from tenants.models import Tenant


class BackfillSchedule(Kind):
    """Items are the occurrences that were wanted when it was planned; each is looked at again when its turn comes."""

    action = "backfill"
    target = "schedules"
    permission = "schedule.backfill"

    def filtered(self, given: Any, faults: Faults) -> dict[str, Any]:
        return {"schedule": str(UUID(given["schedule"]))}

    def checked(self, tenant: Tenant, given: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
        """What `backfill.services` has read of a body."""
        return wish_of(given).as_params()

    def planned(self, tenant: Tenant, operation: Operation, *, after: Cursor | None, size: int) -> Planned:
        wish = wish_of(operation.params)
        found = scheduled(wish.schedule_id)
        last = None if after is None else instant_of(after["at"])
        instants = page(segments_of(tenant, found, wish), order=wish.order, after=last, size=size)
        stands = stood(tenant, wish, found, instants)
        items = [NewItem(None, at) for at, how in stands if wants(wish.only, how)]
        return Planned(items, {"at": instant_text(instants[-1])} if len(instants) == size else None)

    def holds(self, work: Work) -> str:
        wish = wish_of(work.operation.params)
        try:
            found = scheduled(wish.schedule_id)
        except NotFound:  # each item says so
            return ""
        job = found.job
        live = live_of(
            work.tenant, job_id=job.job.pk, serial=wish.serial, next_due=found.due_at,
            pool=pool_of(job.job.kind, job.definition.queue),
        )  # fmt: skip
        return holds(live, running=work.operation.running, serial=wish.serial, now=work.now)

    def apply(self, work: Work, item: TakenItem) -> Done:
        assert item.nominal_at is not None
        try:
            found = occurrence_start(
                tenant=work.tenant, actor=work.actor, backfill_id=work.operation.pk, now=work.now,
                wish=wish_of(work.operation.params), nominal_at=item.nominal_at,
            )  # fmt: skip
        except ArchiveUnreachable as error:  # what became of the occurrence can be asked again later
            raise HeldBack(error.code) from error
        if found.held:
            raise HeldBack(found.held)
        if found.execution_id is None:
            return Done("skipped", found.skipped)
        return Done("running", made_id=found.execution_id)

    def ended(self, tenant: Tenant, operation: Operation, *, now: datetime) -> None:
        told = done_event(operation, now)
        events.emit(door.raw(), tenant.schema_name, tenant.pk, [told], ring=bool(tenant.event_types))

    def undo(self, work: Work, item: TakenItem) -> None:
        """Cancels a run that nobody has begun; Conflict otherwise."""
        cancel_unstarted(work, item)
