"""Weighted fair shares between tenants. Pure.

Start-time fair queueing (Goyal, Vin and Cheng, 1996): each tenant has a virtual time that advances by what it got
divided by its weight; who is behind comes first. A tenant that was idle starts at the present virtual time, so that
it neither is owed for its silence nor waits behind others' past. Who is offered a turn and can use nothing of it (all
that it has waits for runs of its own) goes behind those that wait: else it would be offered the same turn again.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

REMEMBERED = 10_000
QUANTUM_MAX = 32  # tickets a tenant gets in one turn: enough for a message, few enough to stay fair
TURNS = 16  # a pass is split into about so many turns: few large messages instead of many small ones


class Claim(NamedTuple):
    """What a tenant may get: its weight, most of its own, and the queue whose room it needs."""

    weight: int
    most: int
    queue: str


@dataclass(slots=True)
class FairShare:
    """Remembers virtual times between passes."""

    virtual: dict[int, float] = field(default_factory=dict)
    clock: float = 0.0  # start of the last turn that was used: whoever waits is at or behind it
    _quantum: int = 1
    _last: float = 0.0  # the latest of the virtual times that waited in the last share

    def share(self, claims: Mapping[int, Claim], *, total: int, room: Mapping[str, int]) -> dict[int, int]:
        """Splits `total` slots among tenants with something ready, within each queue's room: tenant -> grant."""
        left = {queue: max(0, slots) for queue, slots in room.items()}
        grants: dict[int, int] = {}
        times = {tenant: max(self.virtual.get(tenant, self.clock), self.clock) for tenant in claims}
        heap = [(at, tenant) for tenant, at in times.items()]
        heapq.heapify(heap)
        self._last = max(times.values(), default=self.clock)
        self._quantum = quantum = max(1, min(QUANTUM_MAX, total // TURNS))
        while total > 0 and heap:
            at, tenant = heapq.heappop(heap)
            claim = claims[tenant]
            got = grants.get(tenant, 0)
            part = min(quantum, total, claim.most - got, left.get(claim.queue, 0))
            if part <= 0:
                continue
            grants[tenant] = got + part
            left[claim.queue] -= part
            total -= part
            heapq.heappush(heap, (at + part / claim.weight, tenant))
        return grants

    def charge(
        self, used: Mapping[int, int], weights: Mapping[int, int], *, offered: Mapping[int, int] | None = None
    ) -> None:
        """Advances the tenants by what they really got of the last `share`; `offered` is what that gave them."""
        reached = self.clock
        for tenant, count in used.items():
            weight = max(1, weights.get(tenant, 1))
            start = max(self.virtual.get(tenant, self.clock), self.clock)
            self.virtual[tenant] = end = start + count / weight
            reached = max(reached, start, end - self._quantum / weight)
        for tenant in offered or ():
            if not used.get(tenant):
                self.virtual[tenant] = self._last + 1 / max(1, weights.get(tenant, 1))
        self.clock = reached
        if len(self.virtual) > REMEMBERED:
            self._forget()

    def _forget(self) -> None:
        """What is not ahead of the clock needs no memory; of more than twice as many, those that are least ahead."""
        self.virtual = {tenant: at for tenant, at in self.virtual.items() if at > self.clock}
        if len(self.virtual) > 2 * REMEMBERED:
            self.virtual = dict(heapq.nlargest(REMEMBERED, self.virtual.items(), key=lambda item: item[1]))
