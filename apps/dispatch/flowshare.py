"""Fair shares of a tenant's grant between its flows, by priority with aging. Pure; docs/fairness.md explains it.

Self-clocked fair queueing (Golestani, 1994), in runs: the next run is of the flow whose virtual time is the least after
it. A run moves its flow's virtual time on by 1/weight; weights double with each step of priority and with each minute
that the flow's head has waited, up to the highest. So priority 9 goes before 5, and 5 gets its part of what follows.
A flow that appears starts at the present virtual time of its tenant.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

FLOWS_MAX = 256  # of a tenant are looked at in one pass
FLOWS_REMEMBERED = 20_000
PRIORITY_MAX = 9
AGING_S = 60.0  # of waiting is worth one step of priority


class FlowClaim(NamedTuple):
    """A flow of one tenant: how many of its tickets may go now, and the rank of its head."""

    flow: UUID
    wants: int
    rank: datetime


@dataclass(slots=True)
class _Flows:
    virtual: dict[UUID, float] = field(default_factory=dict)
    clock: float = 0.0


@dataclass(slots=True)
class FlowShare:
    """Divides what a tenant is granted among its flows; remembers between passes what they got."""

    tenants: dict[int, _Flows] = field(default_factory=dict)
    _remembered: int = 0

    def split(self, tenant: int, grant: int, flows: Sequence[FlowClaim], now: datetime) -> dict[UUID, int]:
        """Flow -> tickets, `grant` in all where flows want as many."""
        if len(flows) == 1:  # most tenants: nothing to remember
            return {flows[0].flow: min(grant, flows[0].wants)} if min(grant, flows[0].wants) > 0 else {}
        state = self.tenants.pop(tenant, None) or _Flows()
        self.tenants[tenant] = state  # the last one that was used is the last to be forgotten
        before = len(state.virtual)
        given = _split(state, grant, flows, now)
        self._remembered += len(state.virtual) - before
        while self._remembered > FLOWS_REMEMBERED and len(self.tenants) > 1:
            oldest = next(iter(self.tenants))
            self._remembered -= len(self.tenants.pop(oldest).virtual)
        return given


def aged_priority(rank: datetime, now: datetime) -> float:
    """0 to 9: its priority, and a step more for each minute of waiting; `rank` is ahead by a minute a step."""
    return min(float(PRIORITY_MAX), max(0.0, (now - rank).total_seconds() / AGING_S))


def _split(state: _Flows, grant: int, flows: Sequence[FlowClaim], now: datetime) -> dict[UUID, int]:
    given: dict[UUID, int] = {}
    heap = []
    waiting: set[UUID] = set()
    for index, one in enumerate(flows):
        if one.wants > 0:
            cost: float = 2.0 ** -aged_priority(one.rank, now)
            start = state.virtual.setdefault(one.flow, state.clock)
            waiting.add(one.flow)
            heap.append((start + cost, one.rank, index, cost))
    heapq.heapify(heap)
    while grant > 0 and heap:
        finish, rank, index, cost = heapq.heappop(heap)
        one = flows[index]
        given[one.flow] = got = given.get(one.flow, 0) + 1
        grant -= 1
        state.clock = max(state.clock, finish - cost)
        state.virtual[one.flow] = finish
        if got < one.wants:
            heapq.heappush(heap, (finish + cost, rank, index, cost))
    state.virtual = {flow: at for flow, at in state.virtual.items() if flow in waiting or at > state.clock}
    return given


def flows_in_turn(flows: Iterable[UUID], after: UUID | None) -> list[UUID]:
    """At most FLOWS_MAX flows in order, from the first after `after`, round again from the start."""
    ordered = sorted(flows)
    start = 0 if after is None else next((index for index, flow in enumerate(ordered) if flow > after), 0)
    return [*ordered[start:], *ordered[:start]][:FLOWS_MAX]
