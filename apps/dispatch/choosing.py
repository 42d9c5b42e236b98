"""What one pass of release lets go: lane by lane, shared between tenants, and inside a tenant between its flows.

Every rule is asked of `admission`. What a tenant can't use of its share is offered to the others, in rounds. What is
held back is noted with its cause.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg

from apps.dispatch import admission
from apps.dispatch.capacity import Capacity
from apps.dispatch.causes import Causes
from apps.dispatch.flowshare import FlowShare
from apps.dispatch.gathering import Gathered, gather
from apps.dispatch.noting import Noting
from apps.dispatch.pace import Newcomers
from apps.dispatch.picking import Picking, Turns
from apps.dispatch.sharing import Shares, Sharing
from apps.dispatch.windows import Windows
from apps.tickets import waiting
from apps.tickets.values import LANES, LIVE, Candidate
from kernel.clock import monotonic_s
from tenants.registry import Registry, Tenancy

Conn = psycopg.Connection[Any]


@dataclass(slots=True)
class Memory:
    """What a pool's release remembers between passes. Without it nothing is wrong, only less even."""

    shares: Shares = field(default_factory=Shares)
    flows: FlowShare = field(default_factory=FlowShare)
    turns: Turns = field(default_factory=Turns)
    windows: Windows = field(default_factory=Windows)
    causes: Causes = field(default_factory=Causes)


class Choosing:
    """One pass over what `waits`, as (lane, tenant). `chosen` are locked and may go."""

    def __init__(
        self,
        conn: Conn,
        pool: str,
        *,
        registry: Registry,
        capacity: Capacity,
        memory: Memory,
        now: datetime,
        batch: int,
        waits: Sequence[tuple[int, int]],
        newcomers: Newcomers,
    ) -> None:
        self._conn, self._pool, self._now, self._capacity = conn, pool, now, capacity
        self._waits: dict[int, list[int]] = {lane: [] for lane in LANES}
        self._tenancies: dict[int, Tenancy] = {}
        for lane, tenant_id in waits:
            tenancy = registry.get(tenant_id)
            if tenancy is not None:
                self._tenancies[tenant_id] = tenancy
                self._waits[lane].append(tenant_id)
        newcomers.passed(self._waits[LIVE], held=capacity.held, at=monotonic_s())
        self._newcomers = newcomers
        self.gathered = Gathered({}, {})
        self.noting = Noting(memory.causes, now)
        self._source = waiting.PoolTickets(conn, pool)
        queues = {tenant_id: tenancy.queue(pool) for tenant_id, tenancy in self._tenancies.items()}
        self.picking = Picking(
            conn, self._source, now, capacity, memory.flows, memory.turns, memory.windows, queues
        )  # fmt: skip
        self.sharing = Sharing(pool, capacity, memory.shares, batch, self._waits, registry.by_id, self.picking.pick)

    @property
    def chosen(self) -> list[Candidate]:
        return list(self.picking.chosen.values())

    def hold(self) -> None:
        """For a pool without workers: lets nothing go, and notes what holds each tenant back."""
        self.gathered = gather(self._conn, self._pool, self._tenancies, self._capacity, now=self._now)
        self._admit()

    def choose(self, *, elapsed_s: float, early: bool = False) -> None:
        """Fills `chosen`. `elapsed_s` is the time since the last pass that shared; `early` comes for newcomers."""
        self.gathered = gather(self._conn, self._pool, self._tenancies, self._capacity, now=self._now)
        self._admit()
        newcomers, sharing = self._newcomers, self.sharing
        newcomers.may_go(sharing.left)
        others = any(one not in newcomers.new for waits in self._waits.values() for one in waits)
        sharing.newcomers = newcomers.new
        sharing.refill = not newcomers.go_alone(early=early, held=self._capacity.held, others=others)
        sharing.put_off = newcomers.put_off
        self.sharing.share(elapsed_s)
        self.noting.flows(self._source, self.picking)
        self.noting.hungry(self._hungry())

    def _admit(self) -> None:
        """How much of each tenant may go as far as its own limits are concerned; most have none, and one answer."""
        known: dict[object, tuple[admission.Refusal | None, float]] = {}
        for tenant_id, facts in self.gathered.facts.items():
            tenancy = self._tenancies[tenant_id]
            limited = (tenancy.max_running, tenancy.max_runs_per_min, facts.max_slots) != (None, None, None)
            held = (facts.platform_paused, facts.dispatch_paused, facts.pool_paused)
            case = tenant_id if limited else (facts.tenant_active, held, facts.pool_slots)
            if case not in known:
                refusal = admission.refusal(facts)
                known[case] = (refusal, 0.0 if refusal else admission.rooms(facts)["tenant"])
            refusal, left = known[case]
            if refusal is None:
                self.sharing.left[tenant_id] = left
            else:
                self.noting.tenant(tenant_id, refusal)

    def _hungry(self) -> Iterator[tuple[int, int, int, int]]:
        for one in self.sharing.hungry():
            offered, given = one[0] in self.sharing.offered, self.sharing.given[one[0]]
            self.noting.busy = self.noting.busy or not offered or given > 0
            yield one
