"""Measuring how busy the platform is: one dispatcher does it for all, every few seconds, into one row.

What is in flight, the heads of flows and the workers are read each time, which costs a few milliseconds, more with
thousands of flows. What has to be counted takes longer the more there is. Each of the two is done so seldom that it
takes at most a twentieth of the time. `gauging` makes figures of it, the admission list says which flows wait for
nothing but a slot.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from django.conf import settings

from apps.dispatch.admission import Facts, most, refusal
from apps.dispatch.keeper import Keeper
from apps.dispatch.pressure import loading
from apps.dispatch.pressure.gauging import Depth, InFlight, Limits, Readings, Serving, Waits, measured
from apps.dispatch.pressure.queueing import queues_measured
from apps.dispatch.pressure.scaling import Policy
from apps.due import entries
from apps.tickets import buckets, depths
from apps.tickets.values import Rate, tenant_rate
from apps.usage import lately, pressure
from kernel.clock import monotonic_s
from kernel.pools import POOLS, WORKFLOW
from kernel.service import Pass
from tenants.door import Line
from tenants.registry import Registry, Tenancy

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
LEASE_KIND = "reconcile"
EVERY_S = 2.0
IDLE_EVERY_S = 5.0  # while nothing is alive
COUNT_EVERY_S = 2.0  # at least
SHARE = 20  # each takes at most one part in so many of the time
EVERY_MAX_S = 15.0
COUNT_EVERY_MAX_S = 60.0
STATEMENT_TIMEOUT_S = 20


@dataclass(slots=True)
class Counts:
    """What had to be counted, and until when it is good enough."""

    ready: Sequence[depths.Count] = ()
    later: Sequence[depths.Count] = ()
    delayed: int = 0
    due: Mapping[int, entries.DueOf] = field(default_factory=dict)
    due_is_exact: bool = True
    past: lately.Lately = field(default_factory=lately.Lately)
    until: float = float("-inf")

    @property
    def live(self) -> int:
        """Without what is in flight."""
        return sum(one.tickets for part in (self.ready, self.later) for one in part) + self.delayed


class GaugeService:
    """Runs where the reconcile lease is held. One thread, one connection."""

    name = "gauges"

    def __init__(self, line: Line, keeper: Keeper) -> None:
        self._line = line
        self._keeper = keeper
        self._registry = Registry(line)
        self._counts = Counts()
        self._past = loading.Past()
        self._took_s = 0.0
        self._limited: Conn | None = None

    def run_once(self) -> Pass:
        if not self._keeper.held(LEASE_KIND):
            return Pass(wait_s=EVERY_S)
        conn = self._line.get()
        if self._limited is not conn:
            conn.execute(f"SET statement_timeout = '{STATEMENT_TIMEOUT_S}s'")
            self._limited = conn
        self._registry.refresh()
        if monotonic_s() >= self._counts.until:
            self._counts = count(conn)
        every_s = min(EVERY_MAX_S, max(EVERY_S if self._counts.live else IDLE_EVERY_S, self._took_s * SHARE))
        began = monotonic_s()
        past = self._past.read(conn)
        live = measure(conn, self._registry, self._counts, past=past, every_s=every_s)
        self._took_s = monotonic_s() - began
        return Pass({"live": live}, wait_s=every_s)

    def close(self) -> None:
        self._line.close()


def count(conn: Conn) -> Counts:
    """Counts what there is. The time that it takes says when it is done again."""
    began = monotonic_s()
    due, exact = entries.due_by_tenant(conn, range(settings.SHARDS), per_shard=loading.DUE_PER_SHARD)
    found = Counts(depths.ready(conn), depths.later(conn), entries.delayed(conn), due, exact, lately.read(conn))
    took = monotonic_s() - began
    found.until = monotonic_s() + min(COUNT_EVERY_MAX_S, max(COUNT_EVERY_S, took * SHARE))
    return found


def measure(
    conn: Conn, registry: Registry, counts: Counts, *, past: Mapping[int, lately.OfTenant] = MappingProxyType({}),
    every_s: float = EVERY_S,
) -> int:  # fmt: skip
    """Reads the rest, writes the figures; returns how many executions are alive."""
    before = pressure.read(conn)
    now, earliest = entries.peek(conn, range(settings.SHARDS))
    taken = depths.in_flight(conn)
    waits, held = _heads(conn, registry, taken, counts.ready, now)
    workers = depths.live_workers(conn)
    readings = Readings(
        depths=[
            *(
                Depth(one.pool, one.lane, one.tenant_id, one.tickets, held=held[one.pool, one.lane, one.tenant_id])
                for one in counts.ready
            ),
            *(Depth(one.pool, one.lane, one.tenant_id, 0, one.tickets) for one in counts.later),
        ],
        in_flight=_in_flight(taken),
        waits=waits,
        workers=[Serving(str(one.id), one.group, one.slots, one.ended or {}, one.slot_s or {}) for one in workers],
        usual_run_s=counts.past.run_s,
        elapsed_s=before.age_s if before is not None else 1.0,
    )
    figures = measured(
        before.figures if before is not None else None, readings, tenants=_limits(registry), policy=policy(),
        defer_s=settings.DEFER_CATCH_UP_S,
    )  # fmt: skip
    figures["pressed"] = [[one["pool"], one["group"]] for one in figures["pools"] if one["pressed"]]
    figures["queues"] = queues_measured(
        before.figures if before is not None else None, depths=readings.depths, in_flight=readings.in_flight,
        out_per_s=[one.queue_per_s for one in workers], elapsed_s=readings.elapsed_s,
        queue_of=lambda tenant_id, pool: one.queue(pool) if (one := registry.by_id.get(tenant_id)) else None,
    )  # fmt: skip
    oldest = min((at for at in earliest.values() if at <= now), default=now)
    figures["oldest_due_s"] = round((now - oldest).total_seconds(), 3)
    figures["dispatch"], figures["delayed"] = counts.past.dispatch, counts.delayed
    live = counts.live + sum(one.queued + one.running + one.outside for one in taken)
    pressure.write(conn, every_s=every_s, live=live, ended_per_s=counts.past.ended_per_s, figures=figures)
    found = loading.load_of(due=counts.due, ready=counts.ready, later=counts.later, taken=taken, held=held, past=past)
    loading.keep(conn, found, due_is_exact=counts.due_is_exact, workers=readings.workers, every_s=every_s)
    return live


def policy() -> Policy:
    """How pools are sized in this installation."""
    return Policy(utilisation=min(100, settings.SCALE_UTILISATION) / 100, drain_s=settings.SCALE_DRAIN_S)


def _in_flight(taken: Sequence[depths.Taken]) -> list[InFlight]:
    queued, running = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for one in taken:
        queued[one.pool, one.tenant_id] += one.queued
        running[one.pool, one.tenant_id] += one.running
    return [InFlight(*at, queued[at], running[at]) for at in sorted(queued.keys() | running.keys())]


def _limits(registry: Registry) -> dict[int, Limits]:
    return {one.id: Limits(one.group, _most(one)) for one in registry.by_id.values()}


def _most(tenancy: Tenancy) -> dict[str, int | None]:
    """The most that a tenant may have in flight, by pool."""
    found: dict[str, int | None] = {}
    for pool in POOLS:
        limits = [one for one in (tenancy.max_running, tenancy.max_slots.get(pool)) if one is not None]
        found[pool] = min(limits) if limits else None
    return found


class _Rates(NamedTuple):
    """Token buckets of jobs and of tenants, of those that have one."""

    jobs: Mapping[UUID, Rate]
    tenants: Mapping[int, Rate]


class _Uses:
    """What is in flight, as admission asks for it."""

    def __init__(self, taken: Sequence[depths.Taken]) -> None:
        self.tenant, self.pool = Counter[int](), Counter[tuple[str, int]]()
        self.job, self.flow = Counter[UUID](), Counter[UUID]()
        self.serial: set[UUID] = set()
        for one in taken:
            used = one.queued + one.running + one.outside
            self.tenant[one.tenant_id] += used if one.pool != WORKFLOW else 0
            self.pool[one.pool, one.tenant_id] += used
            self.job[one.job_id] += used
            self.flow[one.flow] += used
            self.serial |= set(one.serial or ())

    def facts(self, head: depths.Head, pool: str, tenancy: Tenancy | None, rates: _Rates, now: datetime) -> Facts:
        """Of the head of a flow, without what is true of its pool: slots that are taken are what it waits for."""
        return Facts(
            now=now, tenant_active=tenancy is not None and tenancy.is_open(pool), job_limit=head.job_limit,
            job_use=self.job[head.job_id], available_at=head.available_at, start_by=head.start_by,
            overlap_busy=head.serial in self.serial, tenant_use=self.tenant[head.tenant_id],
            max_running=tenancy.max_running if tenancy else None, pool_use=self.pool[pool, head.tenant_id],
            max_slots=tenancy.max_slots.get(pool) if tenancy else None, key_use=self.flow[head.flow],
            flow_limit=head.flow_limit, job_rate=rates.jobs.get(head.job_id),
            tenant_rate=rates.tenants.get(head.tenant_id),
        )  # fmt: skip


def _heads(
    conn: Conn, registry: Registry, taken: Sequence[depths.Taken], ready: Sequence[depths.Count], now: datetime
) -> tuple[list[Waits], Mapping[tuple[str, int, int], int]]:
    """The longest waits for a slot, and how much of (pool, lane, tenant) waits for something else."""
    uses = _Uses(taken)
    waits: dict[tuple[str, str, int], float] = defaultdict(float)
    held: Counter[tuple[str, int, int]] = Counter()
    for pool, lane in sorted({(one.pool, one.lane) for one in ready} | {(pool, 0) for pool in POOLS}):
        limited: dict[tuple[int, UUID], float] = {}
        heads = depths.heads(conn, pool=pool, lane=lane)
        rates = _rates(conn, registry, heads, now)
        for head in heads:
            tenancy = registry.get(head.tenant_id)
            facts = uses.facts(head, pool, tenancy, rates, now)
            if refusal(facts) is None:
                place = (pool, tenancy.group if tenancy else "", lane)
                waits[place] = max(waits[place], (now - head.available_at).total_seconds())
            own = (head.job_limit, head.flow_limit, facts.job_rate, facts.tenant_rate)
            if not facts.tenant_active or any(one is not None for one in own):
                limited[head.tenant_id, head.flow] = most(facts)
        for at, tickets in depths.of_flows(conn, list(limited), pool=pool, lane=lane).items() if limited else ():
            held[pool, lane, at[0]] += max(0, tickets - int(min(tickets, limited[at])))
    return [Waits(pool, group, lane, wait) for (pool, group, lane), wait in waits.items()], held


def _rates(conn: Conn, registry: Registry, heads: Sequence[depths.Head], now: datetime) -> _Rates:
    """The token buckets of these flows' jobs and tenants, as they are; nobody is kept from taking."""
    of_jobs = buckets.of_jobs(conn, {head.job_id: head.tenant_id for head in heads}, now=now, lock=False)
    limits = {
        one.id: tenant_rate(one.max_runs_per_min, one.runs_burst)
        for one in (registry.get(tenant_id) for tenant_id in {head.tenant_id for head in heads})
        if one is not None and one.max_runs_per_min is not None
    }
    return _Rates(of_jobs, buckets.of_tenants(conn, limits, now=now))
