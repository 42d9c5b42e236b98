"""Weighted fair shares between tenants. Pure.

Start-time fair queueing (Goyal, Vin and Cheng, 1996): each tenant has a virtual time that advances by what it got
divided by its weight; who is behind comes first. A tenant that was idle starts at the present virtual time, so that
it neither is owed for its silence nor waits behind others' past.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

REMEMBERED = 10_000
QUANTUM_MAX = 32  # tickets a tenant gets in one turn: enough for a message, few enough to stay fair
TURNS = 16  # a pass is split into about so many turns: few large messages instead of many small ones


@dataclass(frozen=True, slots=True)
class Claim:
    """What a tenant may get: its weight, most of its own, and the queue whose room it needs."""

    weight: int
    most: int
    queue: str


@dataclass(slots=True)
class FairShare:
    """Remembers virtual times between passes."""

    virtual: dict[int, float] = field(default_factory=dict)
    clock: float = 0.0  # start of the last turn that was given: whoever waits is at or behind it
    _reached: float = 0.0

    def share(self, claims: Mapping[int, Claim], *, total: int, room: Mapping[str, int]) -> dict[int, int]:
        """Splits `total` slots among tenants with something ready, within each queue's room: tenant -> grant."""
        left = {queue: max(0, slots) for queue, slots in room.items()}
        grants: dict[int, int] = {}
        times = {tenant: max(self.virtual.get(tenant, self.clock), self.clock) for tenant in claims}
        heap = [(at, tenant) for tenant, at in times.items()]
        heapq.heapify(heap)
        quantum = max(1, min(QUANTUM_MAX, total // TURNS))
        while total > 0 and heap:
            at, tenant = heapq.heappop(heap)
            claim = claims[tenant]
            got = grants.get(tenant, 0)
            part = min(quantum, total, claim.most - got, left.get(claim.queue, 0))
            if part <= 0:
                continue
            grants[tenant] = got + part
            self._reached = max(self._reached, at)
            left[claim.queue] -= part
            total -= part
            heapq.heappush(heap, (at + part / claim.weight, tenant))
        return grants

    def charge(self, used: Mapping[int, int], weights: Mapping[int, int]) -> None:
        """Advances the tenants by what they really got of the last `share`."""
        for tenant, count in used.items():
            start = max(self.virtual.get(tenant, self.clock), self.clock)
            self.virtual[tenant] = start + count / max(1, weights.get(tenant, 1))
        self.clock = max(self.clock, self._reached)
        if len(self.virtual) > REMEMBERED:
            self.virtual = {tenant: at for tenant, at in self.virtual.items() if at > self.clock}
