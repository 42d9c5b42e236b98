"""What becomes of the due entries of a batch, as values: the moves, executions, skip rows and tickets to write.

Reads no table and no clock; `fire` locks before and writes after.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from apps.due.entries import Entry, Move
from apps.executions import store as executions
from apps.schedules import policy, timing
from apps.tickets import store as tickets
from kernel.ids import occurrence_run_key, uuid7, uuid7s
from tenants.registry import Registry

log = logging.getLogger(__name__)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(slots=True)
class Plan:
    """What one batch will write."""

    moves: list[Move] = field(default_factory=list)
    finished: list[Entry] = field(default_factory=list)
    fired: dict[int, list[executions.Fired]] = field(default_factory=lambda: defaultdict(list))
    skipped: dict[int, list[executions.Skipped]] = field(default_factory=lambda: defaultdict(list))
    begun: dict[int, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    new_tickets: dict[UUID, tickets.Ticket] = field(default_factory=dict)
    poison: list[tuple[Entry, str]] = field(default_factory=list)
    held: list[tuple[Entry, str]] = field(default_factory=list)  # left as they are, with an alert
    replacing: list[UUID] = field(default_factory=list)  # schedules whose waiting runs make way for the new one
    cancelling: list[UUID] = field(default_factory=list)  # and those whose running ones do


def make_plan(
    found: Sequence[Entry], *, now: datetime, registry: Registry, alive: dict[UUID, int],
    fired_by: Callable[[Entry], str],
) -> Plan:  # fmt: skip
    """Decides what becomes of each entry. An entry that can't be decided is set aside, alone.

    `fired_by` says who fires an entry: each shard's lease has a term of its own.
    """
    plan = Plan()
    ids = iter(uuid7s(len(found)))
    for entry in found:
        try:
            if registry.get(entry.tenant_id) is None:
                raise LookupError(f"tenant {entry.tenant_id} does not exist")
            if entry.kind == "execution":
                _begin(entry, plan, now)
            else:
                _decide(entry, plan, now, alive.get(entry.key, 0), next(ids), fired_by(entry))
        except Exception as error:
            log.exception("due entry %s is put aside", entry.key)
            plan.poison.append((entry, f"{type(error).__name__}: {error}"))
    return plan


def _decide(entry: Entry, plan: Plan, now: datetime, alive: int, first_id: UUID, fired_by: str) -> None:
    spec = timing.spec_from_json(entry.spec)
    decision = policy.decide(
        spec, key=str(entry.key), nominal_at=entry.nominal_at, due_at=entry.due_at, now=now, live=alive,
        done=entry.runs_done,
    )  # fmt: skip
    if decision.alert is not None:
        plan.held.append((entry, decision.alert))
        return
    guarded = spec.overlap != "allow"
    if decision.replaces:
        plan.replacing.append(entry.key)
    if decision.cancels:
        plan.cancelling.append(entry.key)
    for number, fire in enumerate(decision.fires):
        execution_id = first_id if number == 0 else uuid7()
        run_key = occurrence_run_key(entry.key, fire.nominal_at)
        plan.fired[entry.tenant_id].append(
            executions.Fired(
                execution_id, run_key, entry.job_id, entry.job_version, entry.key, entry.version, fire.trigger,
                entry.priority, fire.nominal_at, fire.actual_at, fired_by,
            )
        )  # fmt: skip
        plan.new_tickets[execution_id] = _ticket(
            entry, execution_id=execution_id, run_key=run_key, trigger=fire.trigger, guarded=guarded,
            nominal_at=fire.nominal_at, actual_at=fire.actual_at, now=now, place=number,
        )  # fmt: skip
    for skip in decision.skips:
        plan.skipped[entry.tenant_id].append(
            executions.Skipped(
                uuid7(), occurrence_run_key(entry.key, skip.nominal_at), entry.job_id, entry.job_version, entry.key,
                entry.version, entry.priority, skip.nominal_at, skip.until, skip.count, skip.reason, fired_by,
            )
        )  # fmt: skip
    if decision.next_due is not None and decision.next_nominal is not None:
        due, nominal = decision.next_due, decision.next_nominal
        plan.moves.append(Move(entry.key, entry.due_at, entry.version, due, nominal, decision.done))
    else:
        plan.finished.append(entry)


def _begin(entry: Entry, plan: Plan, now: datetime) -> None:
    """A delayed execution whose time has come: its row exists, it gets a ticket."""
    plan.begun[entry.tenant_id].append(entry)
    plan.finished.append(entry)
    plan.new_tickets[entry.key] = _ticket(
        entry, execution_id=entry.key, run_key=entry.spec, trigger="api", guarded=False, nominal_at=None,
        actual_at=entry.due_at, now=now,
    )  # fmt: skip


def _ticket(
    entry: Entry, *, execution_id: UUID, run_key: str, trigger: str, guarded: bool, nominal_at: datetime | None,
    actual_at: datetime, now: datetime, place: int = 0,
) -> tickets.Ticket:  # fmt: skip
    of_schedule = entry.kind == "schedule"
    own = "schedule" if of_schedule else "execution"
    catch_up = trigger == "catch_up"
    rank = tickets.new_rank(actual_at, entry.priority, catch_up=catch_up)
    if catch_up:  # all of one debt have one instant: this keeps their order
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
        gate=tickets.gate_of(entry.job_id, entry.max_concurrency),
        gate_limit=entry.max_concurrency,
        guarded=guarded,
        payload_from=own if entry.own_payload else "job",
        state="ready",
        available_at=max(now, actual_at),
        rank=rank if actual_at <= now else None,  # a rate of catch-up spreads them: release ranks them in their time
        attempt=0,
        failures=0,
    )
