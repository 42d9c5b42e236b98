"""What one pass of release lets go: lane by lane, shared between tenants, and inside a tenant between its flows.

Every rule is asked of `admission`. What a tenant can't use of its share is offered to the others, in rounds. What is
held back is noted with its cause.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg

from apps.dispatch import admission, lanes
from apps.dispatch.capacity import Capacity
from apps.dispatch.causes import Causes
from apps.dispatch.fairness import Claim, FairShare
from apps.dispatch.flowshare import FlowShare
from apps.dispatch.gathering import Gathered, gather
from apps.dispatch.lanes import LANES, LIVE, Lanes
from apps.dispatch.noting import Noting
from apps.dispatch.picking import Picking, Turns
from apps.tickets import waiting
from apps.tickets.values import Candidate
from tenants.registry import Registry, Tenancy

Conn = psycopg.Connection[Any]
ROUNDS = 4  # in which a pass offers again what those could not use to whom it was offered first


@dataclass(slots=True)
class Memory:
    """What a pool's release remembers between passes. Without it nothing is wrong, only less even."""

    fair: FairShare = field(default_factory=FairShare)
    flows: FlowShare = field(default_factory=FlowShare)
    lanes: dict[str, Lanes] = field(default_factory=lambda: defaultdict(Lanes))
    turns: Turns = field(default_factory=Turns)
    causes: Causes = field(default_factory=Causes)


class Choosing:
    """One pass. `chosen` are locked and may go."""

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
    ) -> None:
        self._conn, self._pool, self._now, self._batch = conn, pool, now, batch
        self._capacity, self._memory = capacity, memory
        self._waits: dict[int, list[int]] = {lane: [] for lane in LANES}
        self._tenancies: dict[int, Tenancy] = {}
        for lane, tenant_id in waiting.tenants(conn, pool):
            tenancy = registry.get(tenant_id)
            if tenancy is not None:
                self._tenancies[tenant_id] = tenancy
                self._waits[lane].append(tenant_id)
        self._registry = registry
        self._left: dict[int, float] = {}  # of limits of whole tenants
        self._sated: set[tuple[int, int]] = set()  # lane, tenant: offered more than it could use
        self._given: Counter[int] = Counter()
        self._offered: set[int] = set()
        self.gathered = Gathered({}, {})
        self.noting = Noting(memory.causes, now)
        self._source = waiting.PoolTickets(conn, pool)
        queues = {tenant_id: tenancy.queue(pool) for tenant_id, tenancy in self._tenancies.items()}
        self.picking = Picking(conn, self._source, now, capacity, memory.flows, memory.turns, queues)

    @property
    def chosen(self) -> list[Candidate]:
        return list(self.picking.chosen.values())

    def choose(self, *, elapsed_s: float) -> None:
        """Fills `chosen`. `elapsed_s` is the time since the last pass that shared."""
        self.gathered = gather(self._conn, self._pool, self._tenancies, self._capacity, now=self._now)
        for tenant_id, facts in self.gathered.facts.items():
            refusal = admission.refusal(facts)
            if refusal is None:
                self._left[tenant_id] = admission.rooms(facts)["tenant"]
            else:
                self.noting.tenant(tenant_id, refusal)
        self._share(elapsed_s)
        self.noting.flows(self._source, self.picking)
        self.noting.hungry(self._hungry())

    def _share(self, elapsed_s: float) -> None:
        groups, memory = self._capacity.groups, self._memory
        free = {name: max(0, min(group.free, self._batch)) for name, group in groups.items()}
        for name, group in groups.items():
            waits = [any(self._group(one) == name for one in self._open(lane)) for lane in LANES]
            memory.lanes[name].open(total=free[name], slots=group.slots, waits=waits, held=group.held)
        lower = any(self._waits[lane] for lane in lanes.LOWER)
        for lane in (*LANES, LIVE) if lower else (LIVE,):
            again = lane == LIVE and elapsed_s == 0  # what lower lanes left
            total = {name: free[name] if again or not lower else memory.lanes[name].room(lane) for name in groups}
            for name, count in self._rounds(lane, total, elapsed_s).items():
                free[name] -= count
                memory.lanes[name].took(lane, count)
            elapsed_s = 0.0
        for name in groups:
            memory.lanes[name].close()
        # Who still waits when all is given away: what others hold from now on counts as held while somebody waits.
        hungry = {one: self._claim(one) for lane in LANES for one in self._open(lane)}
        memory.fair.grant(hungry, total={}, room={}, elapsed_s=0)

    def _rounds(self, lane: int, total: dict[str, int], elapsed_s: float) -> Counter[str]:
        """Shares `total` of each group among those that wait in a lane; what of it went."""
        fair, went = self._memory.fair, Counter[str]()
        for number in range(ROUNDS):
            claims = {one: self._claim(one) for one in self._open(lane)}
            if number == 0 and elapsed_s > 0:  # who only holds is charged for it too
                claims = {**self._holders(), **claims}
            if not claims:
                break
            left = {name: count - went[name] for name, count in total.items()}
            grants = fair.grant(claims, total=left, room=self._capacity.by_queue, elapsed_s=0 if number else elapsed_s)
            self._offered.update(grants)
            used = self.picking.pick(lane, grants) if grants else Counter[int]()
            fair.charge(used, grants)
            for tenant_id, grant in grants.items():
                if used[tenant_id] < grant:
                    self._sated.add((lane, tenant_id))
                self._left[tenant_id] -= used[tenant_id]
                self._given[tenant_id] += used[tenant_id]
                went[self._group(tenant_id)] += used[tenant_id]
            if not grants:
                break
        return went

    def _open(self, lane: int) -> list[int]:
        return [
            one for one in self._waits[lane] if self._left.get(one, 0) >= 1 and (lane, one) not in self._sated
        ]  # fmt: skip

    def _group(self, tenant_id: int) -> str:
        return self._group_of(self._tenancies[tenant_id])

    def _group_of(self, tenancy: Tenancy) -> str:
        return self._capacity.whose.get(tenancy.queue(self._pool), tenancy.group)

    def _claim(self, tenant_id: int) -> Claim:
        wants = int(min(self._batch, self._left[tenant_id]))
        return self._claim_of(self._tenancies[tenant_id], wants, self._given[tenant_id])

    def _holders(self) -> Mapping[int, Claim]:
        known = {one: self._registry.by_id.get(one) for one in self._capacity.held}
        return {one: self._claim_of(tenancy, 0, 0) for one, tenancy in known.items() if tenancy is not None}

    def _claim_of(self, tenancy: Tenancy, wants: int, given: int) -> Claim:
        return Claim(
            weight=max(1, tenancy.weight), wants=wants, held=self._capacity.held[tenancy.id] + given,
            reserved=tenancy.reserved.get(self._pool, 0), maximum=tenancy.max_slots.get(self._pool),
            queue=tenancy.queue(self._pool), group=self._group_of(tenancy),
        )  # fmt: skip

    def _hungry(self) -> Iterator[tuple[int, int, int, int]]:
        """Who could still use a slot: (tenant, slots there are, held by all, held by itself)."""
        capacity, registry = self._capacity, self._registry.by_id
        by_group: Counter[str] = Counter()
        for tenant_id, held in capacity.held.items():
            if tenant_id in registry:
                by_group[self._group_of(registry[tenant_id])] += held
        for tenant_id, count in self._given.items():
            by_group[self._group(tenant_id)] += count
        for tenant_id in {one for lane in LANES for one in self._open(lane)}:
            group = self._group(tenant_id)
            self.noting.busy = self.noting.busy or tenant_id not in self._offered or self._given[tenant_id] > 0
            slots = capacity.groups[group].slots if group in capacity.groups else 0
            yield tenant_id, slots, by_group[group], capacity.held[tenant_id] + self._given[tenant_id]
