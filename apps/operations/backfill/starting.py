"""One occurrence of a backfill becomes a run, or it is said why not.

Under the locks of the schedule's due entry and row, so that fire, triggers and other backfills take turns with it.
"""

from datetime import datetime, timedelta
from uuid import UUID

from apps.audit.services import record
from apps.due.entries import Entry
from apps.operations.backfill.dispositions import records
from apps.operations.backfill.recognising import Known, Record, Standing, standing, wants
from apps.operations.backfill.wish import Wish
from apps.operations.backfill.yielding import RUNS_ALREADY
from apps.operations.kinds.base import Done, HeldBack, Work
from apps.schedules.defined import version_of
from apps.schedules.locked import lock_schedule
from apps.schedules.models import Schedule, ScheduleVersion
from apps.schedules.running import Run, run_start, share_job
from apps.tickets import store as tickets
from apps.usage.admitting import admit_runs
from kernel.ids import occurrence_run_key
from tenants import door
from tenants.models import Tenant

TRIGGER = "backfill"
# Why an occurrence that a backfill wanted when it was planned is not run after all.
SKIPS: dict[Standing, str] = {
    "ran": "already_ran", "alive": "still_alive", "due": "still_due", "failed": "has_failed", "missing": "never_ran",
    "not_known": "history_removed",
}  # fmt: skip
OVERLAPPED = "overlap_skipped"


def known_of(tenant: Tenant, schedule: Schedule, due_from: datetime | None, *, now: datetime) -> Known:
    """What is known of a schedule's past. `due_from` is the occurrence that its due entry stands for."""
    return Known(schedule.created_at, now - timedelta(days=tenant.plan.retention_days), due_from)


def occurrence_start(work: Work, wish: Wish, nominal_at: datetime) -> Done:
    """Makes the run of an occurrence, ready now. NotFound, QuotaExceeded; HeldBack where it has to wait its turn."""
    entry, schedule = lock_schedule(wish.schedule_id, now=work.now)
    conn, tenant = door.raw(), work.tenant
    record_of = records(conn, tenant.schema_name, schedule.pk, [nominal_at]).get(nominal_at)
    how = standing(nominal_at, record_of, known_of(tenant, schedule, _due_from(entry), now=work.now))
    if not wants(wish.only, how):
        return Done("skipped", SKIPS[how])
    definition = version_of(schedule)
    job = share_job(tenant, schedule.job_id)
    if wish.serial and tickets.alive_of_schedules(conn, [schedule.pk]):
        if wish.overlap == "skip":
            return Done("skipped", OVERLAPPED)
        raise HeldBack(RUNS_ALREADY)
    admit_runs(conn, tenant, 1, work.now)
    run = _run(work, wish, definition, nominal_at, record_of)
    execution_id = run_start(tenant, job, run, now=work.now)
    _note(work, schedule.pk, execution_id, nominal_at)
    return Done("running", made_id=execution_id)


def _due_from(entry: Entry | None) -> datetime | None:
    return None if entry is None else entry.nominal_at


def _run(
    work: Work, wish: Wish, definition: ScheduleVersion, nominal_at: datetime, record_of: Record | None
) -> Run:  # fmt: skip
    return Run(
        trigger=TRIGGER, fired_by=work.actor.stored, schedule_id=wish.schedule_id,
        schedule_version=definition.version, payload_from="schedule" if definition.own_payload else "job",
        priority=wish.priority, nominal_at=nominal_at, guarded=wish.serial,
        replay_of=None if record_of is None else record_of.id,
        run_key=occurrence_run_key(work.operation.pk, nominal_at),
    )  # fmt: skip


def _note(work: Work, schedule_id: UUID, execution_id: UUID, nominal_at: datetime) -> None:
    after = {"execution": str(execution_id), "nominal_at": nominal_at.isoformat(), "operation": str(work.operation.pk)}
    record(
        actor=work.actor, action="schedule.backfill_run", object_type="schedule", object_id=schedule_id, now=work.now,
        tenant_id=work.tenant.pk, after=after,
    )  # fmt: skip
