"""What becomes of the due entries of a batch, as values: the moves, executions, skip rows and tickets to write.

Reads no table and no clock; `fire` locks before and writes after.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from apps.dispatch.pressure.deferral import Deferral
from apps.due.entries import Entry, Move
from apps.executions import store as executions
from apps.schedules import occurring, policy, timing
from apps.tickets import store as tickets
from kernel.ids import uuid7s
from tenants.registry import Registry
from tenants.suspension import Standstill

log = logging.getLogger(__name__)
JUST_BEFORE = timedelta(microseconds=1)  # the finest difference of two instants


@dataclass(slots=True)
class Plan:
    """What one batch will write."""

    moves: list[Move] = field(default_factory=list)
    finished: list[Entry] = field(default_factory=list)
    fired: dict[int, list[executions.Fired]] = field(default_factory=lambda: defaultdict(list))
    skipped: dict[int, list[executions.Skipped]] = field(default_factory=lambda: defaultdict(list))
    standing: dict[int, list[executions.Skipped]] = field(default_factory=lambda: defaultdict(list))  # suspended
    begun: dict[int, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    new_tickets: dict[UUID, tickets.Ticket] = field(default_factory=dict)
    poison: list[tuple[Entry, str]] = field(default_factory=list)
    deferred: list[Entry] = field(default_factory=list)  # left as they are: live work of their pool goes first
    held: list[tuple[Entry, str]] = field(default_factory=list)  # left as they are, with an alert
    replacing: list[UUID] = field(default_factory=list)  # schedules whose waiting runs make way for the new one
    cancelling: list[UUID] = field(default_factory=list)  # and those whose running ones do


def make_plan(
    found: Sequence[Entry], *, now: datetime, registry: Registry, alive: dict[UUID, int],
    standstills: Mapping[int, Sequence[Standstill]], fired_by: Callable[[Entry], str], deferral: Deferral | None = None,
) -> Plan:  # fmt: skip
    """Decides what becomes of each entry. An entry that can't be decided is set aside, alone.

    What was due while its tenant stood still is passed over, also when nobody looks until that is over; what was due
    before is decided as of then. Delayed runs get their tickets, which wait.
    `fired_by` says who fires an entry: each shard's lease has a term of its own. `deferral` says what yields.
    """
    plan = Plan()
    ids = iter(uuid7s(len(found)))
    for entry in found:
        try:
            tenancy = registry.get(entry.tenant_id)
            if tenancy is None:
                raise LookupError(f"tenant {entry.tenant_id} does not exist")
            if entry.kind == "execution":
                _begin(entry, plan, now)
                continue
            live = alive.get(entry.key, 0)
            standstill = _first_after(entry, standstills.get(entry.tenant_id, ()))
            if standstill is not None:
                decision = _as_of(standstill, entry, now, live)
                standing = standstill.since is None or entry.due_at >= standstill.since
                _carry_out(entry, decision, plan, now, next(ids), fired_by(entry), standing=standing)
            else:
                decision = _decision(entry, now, live)
                if deferral is not None and deferral.holds(entry, decision, tenancy.group, now):
                    plan.deferred.append(entry)
                else:
                    _carry_out(entry, decision, plan, now, next(ids), fired_by(entry))
        except Exception as error:
            log.exception("due entry %s is put aside", entry.key)
            plan.poison.append((entry, f"{type(error).__name__}: {error}"))
    return plan


def _decision(entry: Entry, now: datetime, alive: int) -> policy.Decision:
    return policy.decide(
        timing.spec_from_json(entry.spec), key=str(entry.key), nominal_at=entry.nominal_at, due_at=entry.due_at,
        now=now, live=alive, done=entry.runs_done,
    )  # fmt: skip


def _first_after(entry: Entry, standstills: Sequence[Standstill]) -> Standstill | None:
    """The first standstill that was not over when an entry was due; those after it are the next passes' matter."""
    return next((one for one in standstills if one.until is None or entry.due_at < one.until), None)


def _as_of(standstill: Standstill, entry: Entry, now: datetime, alive: int) -> policy.Decision:
    """What was due before the tenant stood still is owed, as it was when that began; what was due since is not."""
    if standstill.since is not None and entry.due_at < standstill.since:
        return _decision(entry, standstill.since - JUST_BEFORE, alive)
    return policy.stand_still(
        timing.spec_from_json(entry.spec), key=str(entry.key), nominal_at=entry.nominal_at, due_at=entry.due_at,
        now=now if standstill.until is None else standstill.until - JUST_BEFORE, done=entry.runs_done,
    )  # fmt: skip


def _carry_out(
    entry: Entry, decision: policy.Decision, plan: Plan, now: datetime, first_id: UUID, fired_by: str,
    *, standing: bool = False,
) -> None:  # fmt: skip
    if decision.alert is not None:
        plan.held.append((entry, decision.alert))
        return
    guarded = timing.spec_from_json(entry.spec).overlap != "allow"  # remembered from the decision
    if decision.replaces:
        plan.replacing.append(entry.key)
    if decision.cancels:
        plan.cancelling.append(entry.key)
    made = occurring.runs_of(entry, decision, guarded=guarded, first_id=first_id, now=now, fired_by=fired_by)
    for fired, ticket in made:
        plan.fired[entry.tenant_id].append(fired)
        plan.new_tickets[fired.id] = ticket
    told = plan.standing if standing else plan.skipped
    for skip in decision.skips:
        told[entry.tenant_id].append(occurring.skipped(entry, skip, fired_by))
    _go_on(entry, plan, decision)


def _go_on(entry: Entry, plan: Plan, decision: policy.Decision) -> None:
    if decision.next_due is not None and decision.next_nominal is not None:
        due, nominal = decision.next_due, decision.next_nominal
        plan.moves.append(Move(entry.key, entry.due_at, entry.version, due, nominal, decision.done))
    else:
        plan.finished.append(entry)


def _begin(entry: Entry, plan: Plan, now: datetime) -> None:
    """A delayed execution whose time has come: its row exists, it gets a ticket."""
    plan.begun[entry.tenant_id].append(entry)
    plan.finished.append(entry)
    plan.new_tickets[entry.key] = occurring.ticket_of(
        entry, execution_id=entry.key, run_key=entry.spec, trigger="api", guarded=False, nominal_at=None,
        actual_at=entry.due_at, now=now,
    )  # fmt: skip
