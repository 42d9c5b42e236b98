"""Mending what is missing: each occurrence that nothing is written of gets its run, or a row that says why not.

First its due entry is put where the last disposition says: what lies after that is for fire to decide. The rest is
decided here, under the locks of the due entry and of the schedule, which whoever writes dispositions holds as well.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from django.db.models import F

from apps.audit.services import Actor, record
from apps.dispatch.completeness import records
from apps.dispatch.completeness.checking import Completeness, completeness_of
from apps.dispatch.completeness.comparing import Gap
from apps.dispatch.completeness.mending import Mended, mended, passed_over
from apps.dispatch.missed import missed_events
from apps.dispatch.repairs_schedules import put_right
from apps.due import entries
from apps.events import store as events
from apps.executions import store as executions
from apps.schedules import occurring
from apps.schedules.catching_up import Room, room_for, write_runs
from apps.schedules.defined import job_of
from apps.schedules.models import JobVersion, Schedule, ScheduleVersion
from apps.schedules.policy import Decision, Skip
from apps.schedules.remaking import entry_at
from apps.schedules.running import FIRED_BY_CHARS, JobNow, share_jobs
from apps.schedules.timing_triggers import instant_text
from apps.tickets import store as tickets
from kernel.errors import NotFound
from kernel.ids import occurrence_run_key, uuid7
from tenants import door
from tenants.models import Tenant
from tenants.registry import tenancy_of
from tenants.work import Again, in_tenant

How = Literal["policy", "skip"]
HOW: tuple[How, ...] = ("policy", "skip")
Run = tuple[executions.Fired, tickets.Ticket]
RECORDED = "gap_recorded"  # the reason of a row for occurrences that somebody wrote off


@dataclass(frozen=True, slots=True)
class Repair:
    """What was missing, and what was made of it (with a dry run: what would be)."""

    before: Completeness
    made: int  # runs
    skipped: int  # occurrences that got a row
    put_back: bool  # the due entry stood too late, or was not there: fire goes on from there
    dry_run: bool


def completeness_repair(
    *, tenant: Tenant, actor: Actor, schedule_id: UUID, since: datetime, until: datetime, now: datetime,
    how: How = "policy", dry_run: bool = False, most: int | None = None,
) -> Repair:  # fmt: skip
    """Accounts for what is missing from `since` to `until`. NotFound, InvalidInput as `completeness_of`.

    By `policy` the misfire and overlap policies of the version of then decide what still runs, as with downtime, and
    what its plan has room for; a schedule that stands still now, or is deleted, makes no run. With `skip` each gets a
    row that says that it was written off.
    """

    def work() -> Repair:
        conn = door.raw()
        schedule = _lock(schedule_id)
        put_back = bool(put_right(conn, tenancy_of(tenant), [schedule_id], dry_run=dry_run))
        before = completeness_of(tenant, schedule_id, since=since, until=until, now=now, most=most)
        plan = _decided(tenant, schedule, before.found.gaps, how, now)
        made, skipped = _write(tenant, actor, schedule, plan, now, dry_run=dry_run)
        if not dry_run and (put_back or made or skipped):
            record(
                actor=actor, action="schedule.repair", object_type="schedule", object_id=schedule_id, now=now,
                tenant_id=tenant.pk, after={
                    "from": instant_text(since), "to": instant_text(before.until), "missing": before.found.missing,
                    "made": made, "skipped": skipped, "how": how,
                },
            )  # fmt: skip
        return Repair(before, made, skipped, put_back, dry_run)

    return in_tenant(tenant, work)


def _lock(schedule_id: UUID) -> Schedule:
    """The due entry, then the row, which may be that of a deleted schedule."""
    conn = door.raw()
    found = entries.lock(conn, [schedule_id])
    schedule = Schedule.objects.select_for_update(of=("self",)).filter(pk=schedule_id).first()
    if schedule is None:
        raise NotFound("There is no such schedule.")
    if not found and entries.next_of(conn, [schedule_id]):
        raise Again  # made while we waited for the row
    return schedule


def _decided(tenant: Tenant, schedule: Schedule, gaps: Sequence[Gap], how: How, now: datetime) -> list[Mended]:
    if not gaps:
        return []
    still = RECORDED if how == "skip" else _stands_still(tenant, schedule, now)
    if still:
        return passed_over(gaps, still)
    conn = door.raw()
    return mended(
        gaps, now=now, live=tickets.alive_of_schedules(conn, [schedule.pk]).get(schedule.pk, 0),
        ran_since=records.ran_since(conn, tenant.schema_name, schedule.pk, gaps[-1].last),
    )  # fmt: skip


def _stands_still(tenant: Tenant, schedule: Schedule, now: datetime) -> str:
    """Why nothing of this schedule may start now; empty when it may."""
    if schedule.deleted_at is not None:
        return "schedule_deleted"
    paused = schedule.status == Schedule.Status.PAUSED and (schedule.resume_at is None or schedule.resume_at > now)
    if paused:
        return "schedule_paused"
    return "" if tenant.status == Tenant.Status.ACTIVE else "tenant_suspended"


def _write(
    tenant: Tenant, actor: Actor, schedule: Schedule, plan: Sequence[Mended], now: datetime, *, dry_run: bool
) -> tuple[int, int]:  # fmt: skip
    """How many runs are made, and how many occurrences get a row."""
    if not plan:
        return 0, 0
    found = ScheduleVersion.objects.filter(schedule_id=schedule.pk, version__in={one.version for one in plan})
    versions = {version.version: version for version in found}
    by = actor.stored[:FIRED_BY_CHARS]
    ran = {number: job_of(version, schedule) for number, version in versions.items()}
    jobs, priorities = share_jobs(tenant, set(ran.values())), _priorities(set(ran.values()))
    runs: list[Run] = []
    skips: list[executions.Skipped] = []
    for one in plan:
        version, job_id = versions[one.version], ran[one.version]
        job = jobs.get(job_id)
        if job is None or job.paused:
            why = "job_paused" if job is not None else RECORDED
            one.skips += [Skip(fire.nominal_at, fire.nominal_at, 1, why) for fire in one.fires]
        else:
            runs += _runs(tenant, schedule, version, job, one, now, by)
        number, priority = priorities[job_id]
        skips += [_row(skip, schedule.pk, one.version, job_id, number, priority, by) for skip in one.skips]
    room = room_for(tenant, len(runs), now) if not dry_run else Room(len(runs), False, "")
    skips += [occurring.cut_off([fired], room.reason) for fired, _ in runs[room.runs :]]
    rows = sum(skip.occurrences for skip in skips)
    if dry_run:
        return len(runs), rows
    made = write_runs(tenant, runs[: room.runs], skips, room, now=now)
    told = missed_events(skips, now)
    if told:
        events.emit(door.raw(), tenant.schema_name, tenant.pk, told, ring=bool(tenant.event_types))
    return made, rows


def _runs(
    tenant: Tenant, schedule: Schedule, version: ScheduleVersion, job: JobNow, one: Mended, now: datetime, by: str
) -> Iterator[Run]:
    if not one.fires:
        return iter(())
    first = one.fires[0]
    entry = entry_at(
        tenant, job, version, labels=schedule.labels, nominal_at=first.nominal_at, due_at=first.actual_at
    )  # fmt: skip
    decision = Decision(tuple(one.fires), (), None, None)
    guarded = one.spec.overlap != "allow"
    return occurring.runs_of(entry, decision, guarded=guarded, first_id=uuid7(), now=now, fired_by=by)


def _row(
    skip: Skip, schedule_id: UUID, version: int, job_id: UUID, job_version: int, priority: int, by: str
) -> executions.Skipped:
    return executions.Skipped(
        uuid7(), occurrence_run_key(schedule_id, skip.nominal_at), job_id, job_version, schedule_id, version, priority,
        skip.nominal_at, skip.until, skip.count, skip.reason, by,
    )  # fmt: skip


def _priorities(job_ids: Collection[UUID]) -> dict[UUID, tuple[int, int]]:
    """Version and priority of these jobs as they are, deleted or not."""
    found = JobVersion.objects.filter(job_id__in=job_ids, version=F("job__version"))
    return {row[0]: (row[1], row[2]) for row in found.values_list("job_id", "version", "priority")}
