"""Catch-up of a schedule whose job is paused: its policies decide at once, and what is to run waits for the job.

Fire can't do it: without a due entry nothing of a paused job is due, and the job's resume makes one without any debt.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from apps.audit.services import Actor
from apps.due.entries import Entry
from apps.executions import store as executions
from apps.schedules import occurring, policy
from apps.schedules.models import ScheduleVersion
from apps.schedules.passed import pass_over
from apps.schedules.remaking import entry_at
from apps.schedules.running import FIRED_BY_CHARS, JobNow, make_way
from apps.schedules.timing import spec_from_json
from apps.tickets import store as tickets
from apps.tickets.gates import CLOSED
from apps.usage import counting, deltas
from apps.usage.admitting import live_of
from apps.usage.figures import COUNTED, FIRED, SKIPPED, Tally
from kernel.ids import uuid7
from tenants import door
from tenants.models import Tenant


def catch_up_behind_gate(
    tenant: Tenant,
    job: JobNow,
    version: ScheduleVersion,
    *,
    labels: Mapping[str, str],
    stopped_at: datetime,
    now: datetime,
    actor: Actor,
) -> None:
    """What the schedule missed from `stopped_at` to `now`: executions whose tickets wait while the job is paused."""
    spec = spec_from_json(version.spec)
    first = policy.first_due(spec, key=str(version.schedule_id), after=stopped_at)
    while first is not None and first[1] <= now:  # what exceeds one decision comes in the next
        entry = entry_at(tenant, job, version, labels=labels, nominal_at=first[0], due_at=first[1])
        entry = entry._replace(max_concurrency=CLOSED)
        first = _decide(tenant, entry, spec, now, actor.stored[:FIRED_BY_CHARS])
    if first is not None and first[0] <= now:  # its jitter ends later than the debt
        entry = entry_at(tenant, job, version, labels=labels, nominal_at=first[0], due_at=first[1])
        pass_over(door.raw(), tenant.schema_name, [entry], now=now, reason="job_paused", by=actor.stored)


def _decide(
    tenant: Tenant, entry: Entry, spec: policy.Spec, now: datetime, by: str
) -> tuple[datetime, datetime] | None:
    conn, guarded = door.raw(), spec.overlap != "allow"
    live = tickets.alive_of_schedules(conn, [entry.key]).get(entry.key, 0) if guarded else 0
    decision = policy.decide(
        spec, key=str(entry.key), nominal_at=entry.nominal_at, due_at=entry.due_at, now=now, live=live
    )  # fmt: skip
    if decision.alert is not None:  # a debt of many years is told, and not run
        pass_over(conn, tenant.schema_name, [entry], now=now, reason="job_paused", by=by)
        return None
    runs = list(occurring.runs_of(entry, decision, guarded=guarded, first_id=uuid7(), now=now, fired_by=by))
    room = room_for(tenant, len(runs), now)
    made, cut = runs[: room.runs], [fired for fired, _ in runs[room.runs :]]
    if decision.replaces and made:
        make_way(tenant, entry.key, cancels=decision.cancels, now=now)
    skips = [occurring.skipped(entry, skip, by) for skip in decision.skips]
    skips += [occurring.cut_off(cut, room.reason)] if cut else []
    write_runs(tenant, made, skips, room, now=now)
    if decision.next_nominal is None or decision.next_due is None:
        return None
    return decision.next_nominal, decision.next_due


class Room(NamedTuple):
    """How many runs the tenant's plan has room for, whether they are counted already, and why not for more."""

    runs: int
    counted: bool
    reason: str


def room_for(tenant: Tenant, wanted: int, now: datetime) -> Room:
    """For how many of these runs there is room; where the plan counts them, they are counted."""
    conn, plan, reason = door.raw(), tenant.plan, occurring.BACKLOG_FULL
    if plan.max_live is not None and wanted:
        wanted = min(wanted, max(0, plan.max_live - live_of(conn, tenant.pk, most=plan.max_live)))
    if plan.max_runs_per_day is None or not wanted:
        return Room(wanted, False, reason)
    room = counting.reserve(conn, {tenant.pk: wanted}, now=now).get(tenant.pk, 0)
    return Room(room, True, reason if room == wanted else occurring.DAILY_QUOTA)


def write_runs(
    tenant: Tenant,
    made: Sequence[tuple[executions.Fired, tickets.Ticket]],
    skips: Sequence[executions.Skipped],
    room: Room,
    *,
    now: datetime,
) -> int:
    """Writes runs that there is room for, and rows of those that do not run; how many runs there were not before."""
    conn = door.raw()
    new = {row[0] for row in executions.fire(conn, tenant.schema_name, [fired for fired, _ in made], now=now)}
    tickets.add(conn, [ticket for fired, ticket in made if fired.id in new])
    executions.skip(conn, tenant.schema_name, skips, now=now)
    if room.counted and len(new) < room.runs:
        counting.take(conn, {tenant.pk: len(new) - room.runs}, {}, now=now)
    tally = Tally()
    tally.add(tenant.pk, FIRED, len(new))
    tally.add(tenant.pk, COUNTED, len(new) if room.counted else 0)
    tally.add(tenant.pk, SKIPPED, sum(skip.occurrences for skip in skips))
    deltas.add(conn, tally, now=now)
    return len(new)
