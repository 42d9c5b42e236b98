"""Rows of what a decision makes of a due entry: executions with their tickets, and skip rows. Values in, values out."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from apps.due.entries import Entry
from apps.executions import store as executions
from apps.schedules.policy import Decision, Skip
from apps.tickets import store as tickets
from apps.tickets.values import lane_of, start_by
from kernel.ids import occurrence_run_key, uuid7

DAILY_QUOTA = "daily_quota"  # why an occurrence is skipped for which its tenant's day has no room
BACKLOG_FULL = "backlog_full"  # or whose tenant has as many unfinished executions as its plan allows
_MICROSECOND = timedelta(microseconds=1)


def runs_of(
    entry: Entry, decision: Decision, *, guarded: bool, first_id: UUID, now: datetime, fired_by: str
) -> Iterator[tuple[executions.Fired, tickets.Ticket]]:
    """The executions to make of a schedule's due entry, each with its ticket."""
    for number, fire in enumerate(decision.fires):
        execution_id = first_id if number == 0 else uuid7()
        run_key = occurrence_run_key(entry.key, fire.nominal_at)
        fired = executions.Fired(
            execution_id, run_key, entry.job_id, entry.job_version, entry.key, entry.version, fire.trigger,
            entry.priority, fire.nominal_at, fire.actual_at, fired_by,
        )  # fmt: skip
        ticket = ticket_of(
            entry, execution_id=execution_id, run_key=run_key, trigger=fire.trigger, guarded=guarded,
            nominal_at=fire.nominal_at, actual_at=fire.actual_at, now=now, place=number,
        )  # fmt: skip
        yield fired, ticket


def skipped(entry: Entry, skip: Skip, fired_by: str) -> executions.Skipped:
    """The row of occurrences that do not run."""
    return executions.Skipped(
        uuid7(), occurrence_run_key(entry.key, skip.nominal_at), entry.job_id, entry.job_version, entry.key,
        entry.version, entry.priority, skip.nominal_at, skip.until, skip.count, skip.reason, fired_by,
    )  # fmt: skip


def cut_off(runs: Sequence[executions.Fired], reason: str) -> executions.Skipped:
    """The row of one schedule's runs, which follow one another, that are not made after all."""
    first, last = runs[0], runs[-1]
    return executions.Skipped(
        uuid7(), first.run_key, first.job_id, first.job_version, first.schedule_id, first.schedule_version,
        first.priority, first.nominal_at, last.nominal_at, len(runs), reason, first.fired_by,
    )  # fmt: skip


def ticket_of(
    entry: Entry, *, execution_id: UUID, run_key: str, trigger: str, guarded: bool, nominal_at: datetime | None,
    actual_at: datetime, now: datetime, place: int = 0,
) -> tickets.Ticket:  # fmt: skip
    """The ticket of an execution that a due entry becomes. `place` is its place in a debt."""
    of_schedule = entry.kind == "schedule"
    own = "schedule" if of_schedule else "execution"
    rank = tickets.new_rank(actual_at, entry.priority)
    if trigger == "catch_up":  # all of one debt have one instant: this keeps their order
        rank += place * _MICROSECOND
    return tickets.Ticket(
        execution_id=execution_id,
        tenant_id=entry.tenant_id,
        job_id=entry.job_id,
        job_version=entry.job_version,
        schedule_id=entry.key if of_schedule else None,
        schedule_version=entry.version if of_schedule else None,
        run_key=run_key,
        trigger=trigger,
        nominal_at=nominal_at,
        actual_at=actual_at,
        pool=entry.pool,
        queue=entry.queue,
        priority=entry.priority,
        timeout_s=entry.timeout_s,
        flow=entry.flow or entry.job_id,
        flow_limit=entry.flow_limit,
        key=entry.flow_key,
        job_limit=entry.max_concurrency,
        lane=lane_of(trigger),
        guarded=guarded,
        payload_from=own if entry.own_payload else "job",
        state="ready",
        available_at=max(now, actual_at),
        rank=rank if actual_at <= now else None,  # a rate of catch-up spreads them: release ranks them in their time
        attempt=0,
        failures=0,
        start_by=start_by(actual_at, entry.queue_age_s),
        total_timeout_s=entry.total_timeout_s,
        followed=entry.followed,
    )
