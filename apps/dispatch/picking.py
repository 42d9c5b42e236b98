"""From what tenants are granted to tickets: which of their flows may go, how much of each, and its best tickets."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import psycopg

from apps.dispatch import admission
from apps.dispatch.admission import Facts, Refusal
from apps.dispatch.capacity import Capacity
from apps.dispatch.flowshare import FLOWS_MAX, FlowClaim, FlowShare
from apps.dispatch.windows import WHOLE, Windows, part_of
from apps.tickets import buckets, releasing, waiting
from apps.tickets.values import Candidate, Flow, InFlight, Rate, Wanted

Conn = psycopg.Connection[Any]
FLOWS_OF_ALL = 1_200  # are looked at of all tenants of one round
TRIES = 3  # in which a tenant's flows share what others of its flows could not use
Place = tuple[int, int]  # lane, tenant


class Source(Protocol):
    """Where tickets are picked from: a pool, or a pull queue."""

    def flows(self, lane: int, after: Mapping[int, UUID], *, most: int) -> list[Flow]: ...

    def candidates(self, wanted: Sequence[Wanted], *, now: datetime) -> list[Candidate]: ...

    def ends(self, some: Sequence[tuple[Flow, datetime]], *, part: int) -> list[datetime | None]: ...

    def taken(self, some: Sequence[Flow]) -> list[InFlight]: ...

    def busy_elsewhere(self, schedules: Collection[UUID]) -> set[UUID]: ...


@dataclass(slots=True)
class Turns:
    """Where the look at each tenant's flows goes on, when it has more than a pass looks at."""

    after: dict[Place, UUID] = field(default_factory=dict)

    def start(self, place: Place) -> UUID:
        return self.after.get(place, waiting.BEGINNING)

    def seen(self, place: Place, found: Sequence[Flow], most: int) -> None:
        if len(found) < most:
            self.after.pop(place, None)
        else:
            self.after[place] = found[-1].flow


@dataclass(slots=True)
class Picking:
    """One pass over the flows of a pool."""

    conn: Conn
    source: Source
    now: datetime
    capacity: Capacity
    share: FlowShare
    turns: Turns
    windows: Windows
    queues: Mapping[int, str]  # each tenant's queue of today
    chosen: dict[UUID, Candidate] = field(default_factory=dict)
    refused: dict[Flow, Refusal] = field(default_factory=dict)
    rates: dict[tuple[int, UUID], Rate] = field(default_factory=dict)  # of jobs that have one
    opened: bool = False  # whether any flow that was looked at may go
    flows_max: int = FLOWS_MAX  # of a tenant
    _flows: dict[Place, list[Flow]] = field(default_factory=dict)
    _left: dict[tuple[str, UUID], float] = field(default_factory=dict)  # of jobs and keys
    _got: Counter[tuple[int, int, UUID]] = field(default_factory=Counter)  # lane, tenant, flow
    _taken: set[tuple[int, UUID]] = field(default_factory=set)  # lane, flow
    _empty: set[Flow] = field(default_factory=set)
    _serial: set[UUID] = field(default_factory=set)

    def pick(self, lane: int, grants: Mapping[int, int]) -> Counter[int]:
        """Chooses tickets for these grants; how many of each tenant."""
        self._look(lane, grants)
        used: Counter[int] = Counter()
        for _ in range(TRIES):
            wanted = list(self._split(lane, grants, used))
            if not wanted:
                break
            found = self._find(wanted)
            self._admit(lane, found, grants, used)
        return used

    def further(self, lane: int, tenant_id: int) -> bool:
        """Goes on with the tenant's next flows; False when it has none that were not looked at."""
        self._flows.pop((lane, tenant_id), None)
        return (lane, tenant_id) in self.turns.after

    def idle(self) -> list[Flow]:
        """Flows that were to go and had no ticket that may."""
        return [one for one in self._empty if not self._got[one.lane, one.tenant_id, one.flow]]

    def _look(self, lane: int, tenants: Iterable[int]) -> None:
        """Reads the flows of tenants that nobody looked at in this pass, and what each may have."""
        places = [(lane, tenant_id) for tenant_id in tenants if (lane, tenant_id) not in self._flows]
        if not places:
            return
        most = max(4, min(self.flows_max, FLOWS_OF_ALL // len(places)))
        after = {tenant_id: self.turns.start((lane, tenant_id)) for _, tenant_id in places}
        by_tenant: dict[int, list[Flow]] = defaultdict(list)
        for one in self.source.flows(lane, after, most=most):
            by_tenant[one.tenant_id].append(one)
        self._count([one for found in by_tenant.values() for one in found])
        jobs = {one.job_id: one.tenant_id for found in by_tenant.values() for one in found if one.rated}
        new = {job: tenant_id for job, tenant_id in jobs.items() if ("job", job) not in self._left}
        rates = buckets.of_jobs(self.conn, new, now=self.now)
        self.rates |= {(jobs[job], job): rate for job, rate in rates.items()}
        for place in places:
            found = by_tenant[place[1]]
            self.turns.seen(place, found, most)
            self._flows[place] = [one for one in found if self._may_go(one)]

    def _count(self, found: Sequence[Flow]) -> None:
        """What is taken of limits that the capacity does not count: of pull queues and of pools that share jobs."""
        new = [one for one in found if _limited(one, None) and ("key", one.flow) not in self._left]
        for one in self.source.taken(new):
            if (one.lane, one.flow) in self._taken:
                continue
            self._taken.add((one.lane, one.flow))
            self.capacity.by_job[one.job_id] += one.tickets
            self.capacity.by_flow[one.flow] += one.tickets

    def _may_go(self, one: Flow) -> bool:
        rate = self.rates.get((one.tenant_id, one.job_id))
        facts = Facts(
            now=self.now, job_limit=one.job_limit, job_use=self.capacity.by_job[one.job_id], job_rate=rate,
            flow_limit=one.flow_limit, key_use=self.capacity.by_flow[one.flow],
        )  # fmt: skip
        refusal = admission.refusal(facts) if _limited(one, rate) else None
        if refusal is not None:
            self.refused[one] = refusal
            return False
        rooms = admission.rooms(facts) if _limited(one, rate) else {"job": math.inf, "key": math.inf}
        self._left.setdefault(("job", one.job_id), rooms["job"])
        self._left.setdefault(("key", one.flow), rooms["key"])
        self.opened = True
        return True

    def _split(self, lane: int, grants: Mapping[int, int], used: Counter[int]) -> Iterator[tuple[Flow, int]]:
        """Each flow's part of what its tenant has left, and as many of it as were chosen already: they come again."""
        for tenant_id, grant in grants.items():
            left = min(grant - used[tenant_id], self.capacity.by_queue.get(self.queues[tenant_id], 0))
            if left <= 0:
                continue
            flows = {one.flow: one for one in self._flows[lane, tenant_id] if one not in self._empty}
            claims = [FlowClaim(one.flow, int(min(left, self._room(one))), one.rank) for one in flows.values()]
            claims = [claim for claim in claims if claim.wants > 0]
            if not claims:
                continue
            for flow, count in self.share.split(tenant_id, left, claims, self.now).items():
                yield flows[flow], count + self._got[lane, tenant_id, flow]

    def _find(self, wanted: Sequence[tuple[Flow, int]]) -> list[Candidate]:
        """The best tickets of these flows; they follow their tenant to its queue of today."""
        found, seen, best = [], Counter[tuple[int, UUID]](), dict[tuple[int, UUID], datetime]()
        moved: dict[str, list[UUID]] = defaultdict(list)
        asked = [Wanted(flow, most, *self.windows.of(flow)) for flow, most in wanted]
        for one in self.source.candidates(asked, now=self.now):
            seen[one.tenant_id, one.flow] += 1
            best.setdefault((one.tenant_id, one.flow), one.rank)
            if one.execution_id in self.chosen:
                continue
            queue = self.queues[one.tenant_id]
            if one.queue != queue:
                moved[queue].append(one.execution_id)
            found.append(one._replace(queue=queue))
        for queue, ids in moved.items():
            releasing.move_to_queue(self.conn, ids, queue)
        self._empty.update(flow for flow, most in wanted if seen[flow.tenant_id, flow.flow] < most)
        self._go_on([flow for flow, _ in wanted], best)
        self._serial |= self.source.busy_elsewhere({one.serial for one in found if one.serial} - self._serial)
        return sorted(found, key=lambda one: (one.rank, one.execution_id))

    def _go_on(self, read: Sequence[Flow], best: Mapping[tuple[int, UUID], datetime]) -> None:
        """Where the next pass reads on in flows that gave nothing from their head, or whose part gave less than asked.

        Most flows are short and give all that they have: those cost no further question.
        """
        whole = {one for one in read if self.windows.of(one) == WHOLE}
        behind = {
            one for one in read
            if (best.get((one.tenant_id, one.flow)) != one.rank if one in whole else one in self._empty)
        }  # fmt: skip
        parts = self.windows.after(behind)
        ends = self.source.ends(parts, part=part_of(len(behind))) if parts else []
        self.windows.go_on(parts, ends, full=[one for one in read if one not in behind])

    def _admit(self, lane: int, found: Sequence[Candidate], grants: Mapping[int, int], used: Counter[int]) -> None:
        for one in found:
            if used[one.tenant_id] >= grants[one.tenant_id] or self._room(one) < 1:
                continue
            if self.capacity.by_queue.get(one.queue, 0) <= 0 or one.serial in self._serial:
                continue
            if one.serial is not None:
                self._serial.add(one.serial)
            self.capacity.by_queue[one.queue] -= 1
            self._left["job", one.job_id] -= 1
            self._left["key", one.flow] -= 1
            self._got[lane, one.tenant_id, one.flow] += 1
            used[one.tenant_id] += 1
            self.chosen[one.execution_id] = one

    def _room(self, one: Flow | Candidate) -> float:
        return min(self._left["job", one.job_id], self._left["key", one.flow])


def _limited(one: Flow, rate: Rate | None) -> bool:
    """Most flows have no limit: nothing can refuse those."""
    return one.job_limit is not None or one.flow_limit is not None or rate is not None
