"""One occurrence of a backfill becomes a run, or it is said why not.

Under the locks of the schedule's due entry and row, so that fire, triggers and other backfills take turns with it.
"""

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from apps.audit.services import Actor, record
from apps.operations.backfill.dispositions import known_of, records
from apps.operations.backfill.recognising import Record, Standing, standing, wants
from apps.operations.backfill.segments import NOW, of_then, version_at
from apps.operations.backfill.wish import Wish
from apps.operations.backfill.yielding import RUNS_ALREADY
from apps.schedules.defined import job_of, version_of
from apps.schedules.history_store import history_read
from apps.schedules.locked import lock_schedule
from apps.schedules.models import Schedule, ScheduleVersion
from apps.schedules.running import Run, run_start, share_job
from apps.tickets import store as tickets
from apps.usage.admitting import admit_runs
from kernel.ids import first_id_at, occurrence_run_key
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant

TRIGGER = "backfill"
PLANNED_LATELY = timedelta(hours=12)  # less than the least age of what is archived
# Why an occurrence that a backfill wanted when it was planned is not run after all.
SKIPS: dict[Standing, str] = {
    "ran": "already_ran", "alive": "still_alive", "due": "still_due", "failed": "has_failed", "missing": "never_ran",
    "not_known": "history_removed",
}  # fmt: skip
OVERLAPPED = "overlap_skipped"
NO_DEFINITION = "no_definition"  # of that time; there was one when it was planned


class Outcome(NamedTuple):
    """A run, or the code of why there is none: it is `skipped` for good, or `held` back until its turn comes."""

    execution_id: UUID | None = None
    skipped: str = ""
    held: str = ""


def occurrence_start(
    *, tenant: Tenant, actor: Actor, backfill_id: UUID, wish: Wish, nominal_at: datetime, now: datetime
) -> Outcome:
    """Makes the run of an occurrence, ready now, under a run key that no second try can have. NotFound, QuotaExceeded.

    Overloaded.
    """

    def work() -> Outcome:
        entry, schedule = lock_schedule(wish.schedule_id, now=now)
        conn = door.raw()
        # What was missing when it was planned was not in the archive, and nothing comes into that so soon. One that
        # was paused for long looks again: what another one ran meanwhile may be there by now.
        archived = wish.only != "missing" or backfill_id < first_id_at(now - PLANNED_LATELY)
        found = records(conn, tenant, schedule.pk, [nominal_at], archived=archived).get(nominal_at)
        due_from = None if entry is None else entry.nominal_at
        how = standing(nominal_at, found, known_of(tenant, schedule, due_from))
        if not wants(wish.only, how):
            return Outcome(skipped=SKIPS[how])
        definition = _definition(tenant, schedule, wish, nominal_at)
        if definition is None:
            return Outcome(skipped=NO_DEFINITION)
        job = share_job(tenant, job_of(definition, schedule))
        if wish.serial and tickets.alive_of_schedules(conn, [schedule.pk]):
            return Outcome(skipped=OVERLAPPED) if wish.overlap == "skip" else Outcome(held=RUNS_ALREADY)
        admit_runs(conn, tenant, 1, now)
        run = _run(actor, backfill_id, wish, definition, nominal_at, found)
        execution_id = run_start(tenant, job, run, now=now)
        after = {"execution": str(execution_id), "nominal_at": nominal_at.isoformat(), "backfill": str(backfill_id)}
        record(
            actor=actor, action="schedule.backfill_run", object_type="schedule", object_id=schedule.pk, now=now,
            tenant_id=tenant.pk, after=after,
        )  # fmt: skip
        return Outcome(execution_id)

    return in_tenant(tenant, work)


def _definition(tenant: Tenant, schedule: Schedule, wish: Wish, nominal_at: datetime) -> ScheduleVersion | None:
    """The version that is meant; None when none was in force at that instant."""
    if wish.definition == NOW:
        return version_of(schedule)
    history = history_read(door.raw(), tenant.schema_name, schedule.pk)
    number = None if history is None else version_at(of_then(history, wish.within), nominal_at)
    if number is None:
        return None
    return ScheduleVersion.objects.filter(schedule_id=schedule.pk, version=number).first()


def _run(
    actor: Actor, backfill_id: UUID, wish: Wish, definition: ScheduleVersion, nominal_at: datetime,
    found: Record | None,
) -> Run:  # fmt: skip
    return Run(
        trigger=TRIGGER, fired_by=actor.stored, schedule_id=wish.schedule_id, schedule_version=definition.version,
        payload_from="schedule" if definition.own_payload else "job", priority=wish.priority, nominal_at=nominal_at,
        guarded=wish.serial, replay_of=None if found is None else found.id,
        run_key=occurrence_run_key(backfill_id, nominal_at),
    )  # fmt: skip
