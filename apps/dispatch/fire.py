"""Fire: turn due entries into executions and tickets, and move the entries on.

One batch is one transaction: lock what is due (rows that somebody holds are passed over), decide in pure code, move
or delete the entries, insert the executions (one pipelined statement per tenant schema; what exists already is not
inserted again), add a ticket for each that was inserted. A batch that fails is fired per tenant (see `apart`).
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings

from apps.dispatch.apart import Apart
from apps.dispatch.keeper import Keeper
from apps.due import entries
from apps.due.entries import Entry, Move
from apps.executions import store as executions
from apps.schedules import policy, timing
from apps.tickets import store as tickets
from kernel.ids import occurrence_run_key, uuid7, uuid7s
from kernel.pools import PULL
from kernel.service import Pass
from tenants.door import Line
from tenants.registry import Registry

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
KIND = "fire"
LOOK_AHEAD_MAX = 50_000
_MICROSECOND = timedelta(microseconds=1)
LOCK_TIMEOUT_MS = 400  # a batch holds the entries of many tenants while it waits for the table of one


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


class FireService:
    """Fires the shards that this process holds. One thread, one connection."""

    name = "fire"

    def __init__(self, line: Line, keeper: Keeper) -> None:
        self._line = line
        self._keeper = keeper
        self._registry = Registry(line)
        self._looked_ahead_to: datetime | None = None
        self._apart = Apart()
        self._ready: Conn | None = None

    def run_once(self) -> Pass:
        shards = self._keeper.held(KIND)
        if not shards:
            return Pass()
        conn = self._line.get()
        if self._ready is not conn:
            conn.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
            self._ready = conn
        now, earliest = entries.peek(conn, sorted(shards))
        due = [shard for shard, at in earliest.items() if at <= now]
        if not due:
            self._look_ahead(conn, sorted(shards), now)
            nearest = min(earliest.values(), default=None)
            return Pass(wait_s=(nearest - now).total_seconds() if nearest is not None else None)
        self._registry.refresh()
        terms = {shard: shards[shard] for shard in due}
        counts = self._fire(conn, due, terms, now)
        # Going on at once only helps when this pass got somewhere: what is locked or failing must not make it spin.
        return Pass(counts, full=counts["entries"] > 0)

    def close(self) -> None:
        self._line.close()

    def _fire(self, conn: Conn, shards: list[int], terms: dict[int, int], now: datetime) -> dict[str, int]:
        batch = partial(
            fire_batch, conn, self._registry, shards, now=now, limit=settings.FIRE_BATCH,
            fired_by=lambda entry: self._keeper.signature(terms.get(entry.shard)),
        )  # fmt: skip
        avoid = self._apart.avoided()
        try:
            counts = batch(not_tenants=avoid)
        except psycopg.Error:
            if conn.closed:
                raise
            log.warning("a fire batch failed, firing per tenant", exc_info=True)
            with conn.transaction():
                seen = entries.lock_due(conn, shards, now=now, limit=settings.FIRE_BATCH, not_tenants=avoid)
            counts = self._apart.fire(conn, seen, batch)
        again = self._apart.to_try_again()
        if again:
            with conn.transaction():
                seen = entries.lock_due(conn, shards, now=now, limit=settings.FIRE_BATCH, only_tenants=again)
            for name, count in self._apart.fire(conn, seen, batch).items():
                counts[name] = counts.get(name, 0) + count
        return counts

    def _look_ahead(self, conn: Conn, shards: list[int], now: datetime) -> None:
        """Reads and computes what is due in the coming seconds, so that the aligned instant is only a write."""
        until = now + timedelta(seconds=settings.LOOK_AHEAD_S)
        start = max(now, self._looked_ahead_to or now)
        if (until - start).total_seconds() < 1.0:
            return
        for entry in entries.read_due(conn, shards, after=start, until=until, limit=LOOK_AHEAD_MAX):
            if entry.kind == "schedule":
                try:
                    timing.next_after(timing.spec_from_json(entry.spec), entry.nominal_at)
                except Exception:
                    continue
        self._looked_ahead_to = until


def fire_batch(
    conn: Conn, registry: Registry, shards: Sequence[int], *, now: datetime, limit: int, fired_by: Any,
    not_tenants: Sequence[int] = (), only: Sequence[UUID] | None = None,
) -> dict[str, int]:  # fmt: skip
    """One transaction: locks, decides, writes. Returns counts; `entries` is how many were locked."""
    with conn.transaction():
        if only is None:
            found = entries.lock_due(conn, shards, now=now, limit=limit, not_tenants=not_tenants)
        else:
            found = [entry for entry in entries.lock(conn, only) if entry.due_at <= now]
        if not found:
            return {"entries": 0}
        if {entry.tenant_id for entry in found} - registry.by_id.keys():
            registry.refresh(force=True)  # made since the last look; only what is really gone is put aside
        plan = make_plan(found, now=now, registry=registry, alive=_alive(conn, found))
        counts = _write(conn, registry, plan, now=now, fired_by=fired_by(found[0]))
    if plan.held:
        log.error("%d due entries are held back (%s), such as %s", len(plan.held), plan.held[0][1], plan.held[0][0].key)
    counts["held"] = len(plan.held)
    counts["entries"] = len(found) - len(plan.held)
    return counts


def make_plan(found: Sequence[Entry], *, now: datetime, registry: Registry, alive: dict[UUID, int]) -> Plan:
    """Decides what becomes of each entry. An entry that can't be decided is set aside, alone."""
    plan = Plan()
    ids = iter(uuid7s(len(found)))
    for entry in found:
        try:
            if registry.get(entry.tenant_id) is None:
                raise LookupError(f"tenant {entry.tenant_id} does not exist")
            if entry.kind == "execution":
                _begin(entry, plan, now)
            else:
                _decide(entry, plan, now, alive.get(entry.key, 0), next(ids))
        except Exception as error:
            log.exception("due entry %s is put aside", entry.key)
            plan.poison.append((entry, f"{type(error).__name__}: {error}"))
    return plan


def _decide(entry: Entry, plan: Plan, now: datetime, alive: int, first_id: UUID) -> None:
    spec = timing.spec_from_json(entry.spec)
    decision = policy.decide(
        spec, key=str(entry.key), nominal_at=entry.nominal_at, due_at=entry.due_at, now=now, live=alive
    )
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
                entry.priority, fire.nominal_at, fire.actual_at,
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
                entry.version, entry.priority, skip.nominal_at, skip.until, skip.count, skip.reason,
            )
        )  # fmt: skip
    if decision.next_due is not None and decision.next_nominal is not None:
        plan.moves.append(Move(entry.key, entry.due_at, entry.version, decision.next_due, decision.next_nominal))
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


def _write(conn: Conn, registry: Registry, plan: Plan, *, now: datetime, fired_by: str) -> dict[str, int]:
    schemas = {tenant_id: tenancy.schema for tenant_id, tenancy in registry.by_id.items()}
    replaced = _make_way(conn, plan) if plan.replacing else {}
    with conn.pipeline():
        if plan.moves:
            moved = entries.move(conn, plan.moves)
        if plan.finished:
            gone = entries.finish(conn, plan.finished)
        inserted = [
            executions.fire(conn, schemas[tenant_id], rows, now=now, fired_by=fired_by)
            for tenant_id, rows in sorted(plan.fired.items())
        ]
        inserted += [
            executions.began(conn, schemas[tenant_id], [entry.key for entry in rows])
            for tenant_id, rows in sorted(plan.begun.items())
        ]
        for tenant_id, ended in sorted(replaced.items()):
            executions.replace(conn, schemas[tenant_id], ended, now=now)
        for tenant_id, skips in sorted(plan.skipped.items()):
            executions.skip(conn, schemas[tenant_id], skips, now=now, fired_by=fired_by)
        for entry, reason in plan.poison:
            entries.park(conn, entry.key, reason)
    written = (moved.rowcount if plan.moves else 0) + (gone.rowcount if plan.finished else 0)
    if written != len(plan.moves) + len(plan.finished):
        # Can't be while the rows are locked; if it ever is, nothing of this batch may stand.
        raise psycopg.errors.SerializationFailure("due entries moved under their lock")
    new = [row[0] for cursor in inserted for row in cursor]
    made = [plan.new_tickets[execution_id] for execution_id in new]
    tickets.copy_in(conn, made)
    if new:
        tickets.notify_ready(conn)
        tickets.notify_pull(conn, ((one.tenant_id, one.queue) for one in made if one.pool == PULL))
    return {
        "fired": len(new),
        "already_there": len(plan.new_tickets) - len(new),
        "skipped": sum(skip.occurrences for rows in plan.skipped.values() for skip in rows),
        "poison": len(plan.poison),
        "replaced": sum(len(rows) for rows in replaced.values()),
    }


def _make_way(conn: Conn, plan: Plan) -> dict[int, list[executions.Replaced]]:
    """Takes the tickets of what waits; then, since one of these may just have started, asks what runs to stop."""
    found: dict[int, list[executions.Replaced]] = defaultdict(list)
    for one in tickets.replace_waiting(conn, plan.replacing):
        found[one.tenant_id].append(
            executions.Replaced(one.execution_id, one.attempt, one.first_queued_at, one.first_started_at)
        )
    if plan.cancelling:
        tickets.cancel_running_of(conn, plan.cancelling)
    return found


def _alive(conn: Conn, found: Sequence[Entry]) -> dict[UUID, int]:
    """Live executions of the schedules whose overlap policy asks for them."""
    wanted = [entry.key for entry in found if entry.kind == "schedule" and '"overlap":"allow"' not in entry.spec]
    return tickets.alive_of_schedules(conn, wanted) if wanted else {}
