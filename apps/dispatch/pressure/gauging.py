"""From what was read of the live tables to the figures of each pool and group of workers. Pure.

A measurement builds on the one before, which any dispatcher may have made: it holds all that the next one needs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from apps.dispatch.pressure.scaling import (
    RUN_S,
    Demand,
    Policy,
    Rates,
    Share,
    averaged,
    presses,
    slots_wanted,
    workers_wanted,
)
from kernel.pools import CELERY_POOLS

LANES = ("live", "catch_up", "backfill")
WORKERS_KEPT = 10_000  # whose counters are remembered from one measurement to the next
PLACES_KEPT = 1_000  # pools and groups, those with workers or work first
Place = tuple[str, str]  # pool and group of workers


class Depth(NamedTuple):
    """How many tickets of a tenant are in one lane of a pool: ready, or waiting for their time."""

    pool: str
    lane: int
    tenant_id: int
    ready: int
    later: int = 0
    held: int = 0  # of those that are ready: wait for something else than a slot


class InFlight(NamedTuple):
    """How many tickets of a tenant are queued or hold a slot in a pool."""

    pool: str
    tenant_id: int
    queued: int
    running: int


class Waits(NamedTuple):
    """The longest wait in seconds in one lane of a pool and group, of runs that wait for nothing but a slot."""

    pool: str
    group: str
    lane: int
    oldest_s: float


class Serving(NamedTuple):
    """A live worker: its group, and by pool its slots, the runs it has ended since it started and their seconds."""

    id: str
    group: str
    slots: Mapping[str, int]
    ended: Mapping[str, int]
    slot_s: Mapping[str, float] = {}


class Limits(NamedTuple):
    """What is known of a tenant: its group of workers, and the most runs it may have in flight in a pool."""

    group: str
    most: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Readings:
    """All that was read at one moment."""

    depths: Sequence[Depth] = ()
    in_flight: Sequence[InFlight] = ()
    waits: Sequence[Waits] = ()
    workers: Sequence[Serving] = ()
    usual_run_s: float | None = None  # of all pools, over a longer time
    elapsed_s: float = 1.0  # since the measurement before


@dataclass(slots=True)
class PoolFigures:
    """One pool and group of workers. Times in seconds."""

    pool: str
    group: str
    workers: int = 0
    slots: int = 0
    ready: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LANES, 0))
    held: int = 0  # of these wait for something else than a slot
    later: int = 0  # wait for their time, such as retries
    queued: int = 0
    running: int = 0
    oldest_wait_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LANES, 0.0))
    arrivals_per_s: float = 0.0
    ended_per_s: float = 0.0
    busy: float = 0.0
    run_s: float = RUN_S
    known: bool = False  # whether that was ever measured here
    usable: int = 0
    slots_each: int | None = None  # of a worker, when there was one last
    wanted_slots: int = 0
    wanted_workers: int | None = None  # where a worker's slots are known
    pressed: bool = False  # what was missed yields


def measured(
    before: Mapping[str, Any] | None, now: Readings, *, tenants: Mapping[int, Limits], policy: Policy, defer_s: float
) -> dict[str, Any]:
    """The figures to keep: `pools`, a row each, and the workers' counters for the next time."""
    was = {(one.pool, one.group): one for one in pools_of(before)}
    found: dict[Place, PoolFigures] = {}

    def place(pool: str, group: str) -> PoolFigures:
        return found.setdefault((pool, group), PoolFigures(pool, group))

    for pool, group in was:
        place(pool, group)  # a pool without work and workers is remembered: how long its runs take
    shares: dict[Place, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for depth in now.depths:
        group = _group(tenants, depth.tenant_id)
        row = place(depth.pool, group)
        row.ready[LANES[depth.lane]] += depth.ready
        row.later += depth.later
        row.held += min(depth.held, depth.ready)
        shares[depth.pool, group][depth.tenant_id][0] += max(0, depth.ready - depth.held)
    for one in now.in_flight:
        group = _group(tenants, one.tenant_id)
        row = place(one.pool, group)
        row.queued += one.queued
        row.running += one.running
        of_tenant = shares[one.pool, group][one.tenant_id]
        of_tenant[0] += one.queued
        of_tenant[1] += one.running
    for wait in now.waits:
        place(wait.pool, wait.group).oldest_wait_s[LANES[wait.lane]] = round(wait.oldest_s, 3)
    for worker in now.workers:
        for pool, slots in worker.slots.items():
            row = place(pool, worker.group)
            row.workers += 1
            row.slots += slots
    ended = _since(before, "ended", now.workers, {one.id: one.ended for one in now.workers})
    slot_s = _since(before, "slot_s", now.workers, {one.id: one.slot_s for one in now.workers})
    for at, row in found.items():
        of_pool = [
            Share(waiting, running, tenants[tenant].most.get(row.pool) if tenant in tenants else None)
            for tenant, (waiting, running) in shares[at].items()
        ]
        _rate(row, was.get(at), of_pool, (int(ended.get(at, 0)), slot_s.get(at, 0.0)), now, policy, defer_s)
    kept = sorted(found.values(), key=lambda row: (not row.workers, not row.usable, -row.arrivals_per_s))[:PLACES_KEPT]
    pools = [asdict(row) for row in sorted(kept, key=lambda row: (row.pool, row.group))]
    workers = now.workers[:WORKERS_KEPT]
    return {
        "pools": pools, "ended": {one.id: dict(one.ended) for one in workers},
        "slot_s": {one.id: dict(one.slot_s) for one in workers},
    }  # fmt: skip


def pools_of(figures: Mapping[str, Any] | None) -> list[PoolFigures]:
    """The pools of a measurement, which another version may have made."""
    names = {one.name for one in fields(PoolFigures)}
    return [
        PoolFigures(**{name: value for name, value in one.items() if name in names})
        for one in (figures or {}).get("pools", ())
    ]


def _rate(
    row: PoolFigures, was: PoolFigures | None, shares: Sequence[Share], ended: tuple[int, float], now: Readings,
    policy: Policy, defer_s: float,
) -> None:  # fmt: skip
    row.usable = sum(share.usable for share in shares)
    before = Rates(was.arrivals_per_s, was.ended_per_s, was.busy) if was else None
    grown = row.usable - was.usable if was else 0
    rates = averaged(before, ended=ended[0], grown=grown, slot_s=ended[1], elapsed_s=now.elapsed_s)
    row.arrivals_per_s, row.ended_per_s, row.busy = rates.arrivals_per_s, rates.ended_per_s, rates.busy
    known = was.run_s if was and was.known else now.usual_run_s
    row.run_s = next(one for one in (rates.run_s, known, RUN_S) if one is not None)
    row.known = rates.run_s is not None or bool(was and was.known)
    if row.workers:
        row.slots_each = row.slots // row.workers
    elif was:
        row.slots_each = was.slots_each
    if row.pool in CELERY_POOLS:  # others have no workers of ours
        row.wanted_slots = slots_wanted(Demand(row.arrivals_per_s, row.run_s, shares), policy).slots
        row.wanted_workers = row.slots_each and workers_wanted(row.wanted_slots, per_worker=row.slots_each)
    oldest_s = row.oldest_wait_s[LANES[0]] if row.pool in CELERY_POOLS else 0.0  # what is not shared presses nobody
    row.pressed = presses(bool(was and was.pressed), oldest_wait_s=oldest_s, after_s=defer_s)


def _since(
    before: Mapping[str, Any] | None, name: str, workers: Sequence[Serving], now: Mapping[str, Mapping[str, float]]
) -> dict[Place, float]:
    """How much the workers' counters have grown; that of a new worker as a whole, of one that is gone not."""
    total: dict[Place, float] = defaultdict(float)
    if before is None or name not in before:
        return total
    for worker in workers:
        known = before[name].get(worker.id, {})
        for pool, count in now[worker.id].items():
            total[pool, worker.group] += max(0.0, count - known.get(pool, 0))
    return total


def _group(tenants: Mapping[int, Limits], tenant_id: int) -> str:
    found = tenants.get(tenant_id)
    return found.group if found is not None else ""
