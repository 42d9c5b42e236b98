"""One batch of fire, one transaction: lock what is due (rows that somebody holds are passed over), decide in pure code,
move or delete the entries, insert the executions (one pipelined statement per tenant schema; what exists already is not
inserted again), add a ticket for each that was inserted.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.dispatch import quotas
from apps.dispatch.missed import missed_events
from apps.dispatch.planning import Plan, make_plan
from apps.dispatch.pressure.backlogs import Backlogs
from apps.dispatch.pressure.deferral import Deferral
from apps.due import entries
from apps.due.entries import Entry
from apps.events import store as events
from apps.executions import store as executions
from apps.tickets import store as tickets
from apps.usage import deltas
from apps.usage.figures import CANCELLED, COUNTED, FIRED, SKIPPED, Tally
from apps.workflows.dependencies.depending import dependents_decide
from kernel.pools import POOLS, PULL
from tenants import suspension, transactions
from tenants.registry import Registry
from tenants.suspension import Standstill
from tenants.transactions import Riding

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
Ring = Callable[[Collection[str]], None]  # tells the release loops of this process: something is ready in these pools
FEW = 100  # tickets cost less as one statement among others than as a copy


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
    """Writes and commits. Counts, and the pools of which something may be ready now."""
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
        rung = {*pools, *POOLS} if followed else pools  # what waited for those that made way may go as well
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
    return counts, rung


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
