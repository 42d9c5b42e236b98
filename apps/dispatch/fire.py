"""Fire: turn due entries into executions and tickets, and move the entries on.

One batch is one transaction: lock what is due (rows that somebody holds are passed over), decide in pure code, move
or delete the entries, insert the executions (one pipelined statement per tenant schema; what exists already is not
inserted again), add a ticket for each that was inserted. A batch that fails is fired per tenant (see `apart`).
"""

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings

from apps.dispatch import quotas
from apps.dispatch.apart import Apart
from apps.dispatch.keeper import Keeper
from apps.dispatch.missed import missed_events
from apps.dispatch.pace import Yielding
from apps.dispatch.planning import Plan, make_plan
from apps.dispatch.pressure.backlogs import Backlogs
from apps.dispatch.pressure.deferral import Deferral
from apps.due import entries
from apps.due.entries import Entry
from apps.events import store as events
from apps.executions import store as executions
from apps.schedules import timing
from apps.schedules.timing_runs import counted
from apps.tickets import store as tickets
from apps.usage import deltas
from apps.usage.figures import CANCELLED, COUNTED, FIRED, SKIPPED, Tally
from apps.workflows.dependencies.depending import dependents_decide
from kernel.clock import monotonic_s
from kernel.pools import PULL
from kernel.service import Pass
from tenants import suspension, transactions
from tenants.door import Line
from tenants.registry import Registry
from tenants.suspension import Standstill
from tenants.transactions import Riding

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
Ring = Callable[[Collection[str]], None]  # tells the release loops of this process: something is ready in these pools
KIND = "fire"
LOOK_AHEAD_MAX = 50_000
CALM_S = 0.05  # after what was fired
LEARN_S = 2.0  # where something is due all the time
FEW = 100  # tickets cost less as one statement among others than as a copy
LOCK_TIMEOUT_MS = 400  # a batch holds the entries of many tenants while it waits for the table of one


class FireService:
    """Fires the shards that this process holds. One thread, one connection."""

    name = "fire"

    def __init__(
        self, line: Line, keeper: Keeper, *, yielding: Yielding | None = None, ring: Ring | None = None
    ) -> None:
        self._line = line
        self._ring = ring
        self._yielding = yielding or Yielding()
        self._keeper = keeper
        self._registry = Registry(line)
        self._looked_ahead_to: datetime | None = None
        self._apart = Apart()
        self._backlogs = Backlogs()
        self._deferral = Deferral(batch=settings.FIRE_BATCH)
        self._has_fired = False  # in its last pass
        self._learnt_at = float("-inf")
        self._ready: Conn | None = None
        self.backend: int | None = None  # the database's process behind the connection: whose notices come from here

    def run_once(self) -> Pass:
        shards = self._keeper.held(KIND)
        if not shards:
            return Pass()
        conn = self._line.fresh()
        if self._ready is not conn:
            conn.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
            self._ready, self.backend = conn, conn.info.backend_pid
        now, earliest = entries.peek(conn, sorted(shards))
        due = [shard for shard, at in earliest.items() if at <= now]
        if not due:
            wait_s = self._until(min(earliest.values(), default=None), now)
            if self._has_fired:  # what it has fired is released now, which goes before preparing what comes
                self._has_fired = False
                return Pass(wait_s=CALM_S if wait_s is None else min(wait_s, CALM_S))
            self._learn(conn)
            self._look_ahead(conn, sorted(shards), now)
            return Pass(wait_s=wait_s)
        if monotonic_s() - self._learnt_at > LEARN_S:
            self._learn(conn)
        terms = {shard: shards[shard] for shard in due}
        counts = self._fire(conn, due, terms, now, owed=min(earliest.values()) <= now - entries.FRESH)
        self._has_fired = True
        # Going on at once only helps when this pass got somewhere: what is locked or failing must not make it spin.
        if counts["entries"] > 0 or not self._deferral.active:
            return Pass(counts, full=counts["entries"] > 0)
        # What is held back is due all the time: what comes next must not wait for the next look at it.
        _, later = entries.peek(conn, sorted(shards), after=now)
        self._look_ahead(conn, sorted(shards), now)
        return Pass(counts, wait_s=self._until(min(later.values(), default=None), now))

    def close(self) -> None:
        self._line.close()

    def _learn(self, conn: Conn) -> None:
        """What it has to know of tenants and pools, while nothing is due."""
        self._registry.refresh()
        self._deferral.ask(conn)
        self._learnt_at = monotonic_s()

    def _rings(self, pools: Collection[str]) -> None:
        self._yielding.due_at = math.inf  # nobody makes way any longer
        if self._ring is not None:
            self._ring(pools)

    def _until(self, nearest: datetime | None, now: datetime) -> float | None:
        wait_s = None if nearest is None else (nearest - now).total_seconds()
        self._yielding.due_at = math.inf if wait_s is None else monotonic_s() + wait_s
        return wait_s

    def _fire(
        self, conn: Conn, shards: list[int], terms: dict[int, int], now: datetime, *, owed: bool
    ) -> dict[str, int]:
        batch = partial(
            fire_batch, conn, self._registry, shards, now=now, limit=settings.FIRE_BATCH,
            fired_by=lambda entry: self._keeper.signature(terms.get(entry.shard)), backlogs=self._backlogs,
            deferral=self._deferral, ring=self._rings,
        )  # fmt: skip
        avoid, deferral = self._apart.avoided(), self._deferral
        debt = deferral.looks() and owed
        not_debt = deferral.keys(now) if debt else []
        try:
            counts = batch(not_tenants=avoid, debt=debt, not_debt=not_debt)
        except psycopg.Error:
            if conn.closed:
                raise
            log.warning("a fire batch failed, firing per tenant", exc_info=True)
            with conn.transaction():
                seen = entries.lock_due(
                    conn, shards, now=now, limit=settings.FIRE_BATCH, not_tenants=avoid, debt=debt, not_debt=not_debt
                )
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
                    spec = timing.spec_from_json(entry.spec)
                    if entry.runs_done is not None:
                        spec, _ = counted(spec, nominal_at=entry.nominal_at, done=entry.runs_done)
                    timing.next_after(spec, entry.nominal_at)
                except Exception:
                    continue
        self._looked_ahead_to = until


def fire_batch(
    conn: Conn, registry: Registry, shards: Sequence[int], *, now: datetime, limit: int,
    fired_by: Callable[[Entry], str],
    not_tenants: Sequence[int] = (), only: Sequence[UUID] | None = None, backlogs: Backlogs | None = None,
    deferral: Deferral | None = None, debt: bool = True, not_debt: Sequence[UUID] = (), ring: Ring | None = None,
) -> dict[str, int]:  # fmt: skip
    """One transaction: locks, decides, writes; then rings. Returns counts; `entries` is how many were locked."""
    backlogs = backlogs or Backlogs()
    with transactions.transaction(conn) as within:
        if only is None:
            found = entries.lock_due(
                conn, shards, now=now, limit=limit, not_tenants=not_tenants, debt=debt, not_debt=not_debt,
                within=within,
            )  # fmt: skip
        else:
            within.begin()
            found = [entry for entry in entries.lock(conn, only) if entry.due_at <= now]
        if not found:
            return {"entries": 0}
        if {entry.tenant_id for entry in found} - registry.by_id.keys():
            registry.refresh(force=True)  # made since the last look; only what is really gone is put aside
        plan = make_plan(
            found, now=now, registry=registry, alive=_alive(conn, found),
            standstills=_standstills(conn, found), fired_by=fired_by, deferral=deferral,
        )  # fmt: skip
        counted = quotas.keep_within(conn, registry, plan, backlogs, now=now)
        counts, pools = _write(conn, registry, plan, counted, within, now=now)
    if ring is not None and pools:
        ring(pools)
    backlogs.add({tenant_id: len(rows) for tenant_id, rows in plan.fired.items()})
    if plan.held:
        log.error("%d due entries are held back (%s), such as %s", len(plan.held), plan.held[0][1], plan.held[0][0].key)
    counts["held"], counts["deferred"] = len(plan.held), len(plan.deferred)
    counts["entries"] = len(found) - len(plan.held) - len(plan.deferred)
    return counts


def _write(
    conn: Conn, registry: Registry, plan: Plan, counted: Mapping[int, int], within: Riding, *, now: datetime
) -> tuple[dict[str, int], set[str]]:
    """Writes and commits. Counts, and the pools of which something is ready now."""
    schemas = {tenant_id: tenancy.schema for tenant_id, tenancy in registry.by_id.items()}
    replaced, followed = _make_way(conn, plan) if plan.replacing else ({}, {})
    with conn.pipeline():
        if plan.moves:
            moved = entries.move(conn, plan.moves)
        if plan.finished:
            gone = entries.finish(conn, plan.finished)
        inserted = [
            executions.fire(conn, schemas[tenant_id], rows, now=now) for tenant_id, rows in sorted(plan.fired.items())
        ]
        inserted += [
            executions.began(conn, schemas[tenant_id], [entry.key for entry in rows])
            for tenant_id, rows in sorted(plan.begun.items())
        ]
        for tenant_id, ended in sorted(replaced.items()):
            executions.replace(conn, schemas[tenant_id], ended, now=now)
        for tenant_id, skips in sorted(plan.skipped.items()):
            executions.skip(conn, schemas[tenant_id], skips, now=now)
            _tell_missed(conn, registry, tenant_id, skips, now)
        for tenant_id, skips in sorted(plan.standing.items()):
            executions.skip_on(conn, schemas[tenant_id], skips, now=now)
            _tell_missed(conn, registry, tenant_id, skips, now)
        for entry, reason in plan.poison:
            entries.park(conn, entry.key, reason)
    for tenant_id, ends in sorted(followed.items()):
        dependents_decide(conn, registry.by_id[tenant_id], ends, now)
    written = (moved.rowcount if plan.moves else 0) + (gone.rowcount if plan.finished else 0)
    if written != len(plan.moves) + len(plan.finished):
        # Can't be while the rows are locked; if it ever is, nothing of this batch may stand.
        raise psycopg.errors.SerializationFailure("due entries moved under their lock")
    new = [row[0] for cursor in inserted for row in cursor]
    made = [plan.new_tickets[execution_id] for execution_id in new]
    few = len(made) <= FEW
    if not few:
        tickets.copy_in(conn, made)
    fired = Counter(one.tenant_id for one in made if one.schedule_id is not None)
    with conn.pipeline():
        if few and made:
            tickets.insert_few(conn, made)
        if counted:
            quotas.give_back(conn, counted, fired, now=now)
        deltas.add(conn, _tally(plan, fired, counted, replaced), now=now)
        pools = {one.pool for one in made}
        if new:
            tickets.notify_ready(conn, pools)
            tickets.notify_pull(conn, ((one.tenant_id, one.queue) for one in made if one.pool == PULL))
        within.commit()
    counts = {
        "fired": len(new),
        "already_there": len(plan.new_tickets) - len(new),
        "skipped": sum(
            skip.occurrences for part in (plan.skipped, plan.standing) for rows in part.values() for skip in rows
        ),
        "poison": len(plan.poison),
        "replaced": sum(len(rows) for rows in replaced.values()),
    }
    return counts, pools


def _tally(
    plan: Plan, fired: Mapping[int, int], counted: Mapping[int, int],
    replaced: Mapping[int, Sequence[executions.Replaced]],
) -> Tally:  # fmt: skip
    tally = Tally()
    for tenant_id, count in fired.items():
        tally.add(tenant_id, FIRED, count)
        if tenant_id in counted:
            tally.add(tenant_id, COUNTED, count)
    for part in (plan.skipped, plan.standing):
        for tenant_id, skips in part.items():
            tally.add(tenant_id, SKIPPED, sum(skip.occurrences for skip in skips))
    for tenant_id, ended in replaced.items():
        for one in ended:
            tally.add(tenant_id, CANCELLED if one.attempt else SKIPPED)
    return tally


def _tell_missed(
    conn: Conn, registry: Registry, tenant_id: int, skips: Sequence[executions.Skipped], now: datetime
) -> None:
    told = missed_events(skips, now)
    if told:
        tenancy = registry.by_id[tenant_id]
        events.emit(conn, tenancy.schema, tenant_id, told, ring=bool(tenancy.wants))


def _make_way(conn: Conn, plan: Plan) -> tuple[dict[int, list[executions.Replaced]], dict[int, dict[UUID, str]]]:
    """Takes the tickets of what waits and asks what runs to stop.

    What ended so, by tenant; and of that what others wait for, with its state.
    """
    found: dict[int, list[executions.Replaced]] = defaultdict(list)
    followed: dict[int, dict[UUID, str]] = defaultdict(dict)
    if plan.cancelling:
        tickets.lock_runs_of(conn, plan.replacing)  # in one order; and nothing starts between the two steps
    for one in tickets.replace_waiting(conn, plan.replacing):
        found[one.tenant_id].append(
            executions.Replaced(one.execution_id, one.attempt, one.first_queued_at, one.first_started_at)
        )
        if one.followed:
            followed[one.tenant_id][one.execution_id] = executions.replaced_state(one.attempt)
    if plan.cancelling:
        tickets.cancel_running_of(conn, plan.cancelling)
    return found, followed


def _alive(conn: Conn, found: Sequence[Entry]) -> dict[UUID, int]:
    """Live executions of the schedules whose overlap policy asks for them."""
    wanted = [entry.key for entry in found if entry.kind == "schedule" and '"overlap":"allow"' not in entry.spec]
    return tickets.alive_of_schedules(conn, wanted) if wanted else {}


def _standstills(conn: Conn, found: Sequence[Entry]) -> dict[int, list[Standstill]]:
    """When the entries' tenants stood still since the oldest of these was due."""
    first = min(entry.due_at for entry in found)
    return suspension.standstills(conn, {entry.tenant_id for entry in found}, since=first)
