"""How one pass divides a pool's room: lane by lane between tenants, in rounds, over values. Pure.

What a tenant can't use of its share is offered to the others. Who picks the runs of a tenant's grant is the caller's
part: release picks tickets in the database, the simulation runs in memory.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from apps.dispatch import lanes
from apps.dispatch.capacity import Capacity
from apps.dispatch.fairness import Claim, FairShare
from apps.dispatch.lanes import Lanes
from apps.tickets.values import LANES, LIVE

ROUNDS = 4  # in which a pass offers again what those could not use to whom it was offered first


class Sharer(Protocol):
    """What is known of a tenant that has a share."""

    @property
    def id(self) -> int: ...

    @property
    def weight(self) -> int: ...

    @property
    def group(self) -> str: ...

    @property
    def reserved(self) -> Mapping[str, int]: ...

    @property
    def max_slots(self) -> Mapping[str, int]: ...

    def queue(self, pool: str) -> str: ...


class _Part(NamedTuple):
    """What of a tenant's claims is the same in each pass."""

    weight: int
    reserved: int
    maximum: int | None
    queue: str
    group: str


@dataclass(slots=True)
class Shares:
    """What a pool remembers between passes of who had what."""

    fair: FairShare = field(default_factory=FairShare)
    lanes: dict[str, Lanes] = field(default_factory=lambda: defaultdict(Lanes))  # by group
    parts: dict[int, _Part] = field(default_factory=dict)
    _known: Mapping[int, Sharer] = field(default_factory=dict)  # of the parts
    _whose: Mapping[str, str] = field(default_factory=dict)

    def remember(self, known: Mapping[int, Sharer], whose: Mapping[str, str]) -> None:
        """Forgets the parts when tenants or queues are others than in the last pass."""
        if self._known is not known or (self._whose is not whose and self._whose != whose):
            self.parts, self._known, self._whose = {}, known, whose


@dataclass(slots=True)
class Sharing:
    """One pass. `pick(lane, grants)` lets runs go and says how many of each tenant went."""

    pool: str
    capacity: Capacity
    shares: Shares
    batch: int
    waits: Mapping[int, list[int]]  # by lane: tenants with something ready
    known: Mapping[int, Sharer]
    pick: Callable[[int, Mapping[int, int]], Counter[int]]
    newcomers: Set[int] = frozenset()
    refill: bool = True  # else only newcomers are served: the others' turn comes with the next refill
    put_off: bool = False  # a refill that comes at once: what is free is shared then
    left: dict[int, float] = field(default_factory=dict)  # of limits of whole tenants
    given: Counter[int] = field(default_factory=Counter)
    offered: set[int] = field(default_factory=set)
    _sated: set[tuple[int, int]] = field(default_factory=set)  # lane, tenant: offered more than it could use

    def share(self, elapsed_s: float) -> None:
        """Gives away what there is. `elapsed_s` is the time since the last pass that shared."""
        groups, memory = self.capacity.groups, self.shares
        memory.remember(self.known, self.capacity.whose)
        free = {name: max(0, min(group.free, self.batch)) if self.refill else 0 for name, group in groups.items()}
        for name, group in groups.items():
            waits = [any(self._group(one) == name for one in self._open(lane)) for lane in LANES]
            memory.lanes[name].open(total=free[name], slots=group.slots, waits=waits, held=group.held)
        lower = any(self.waits[lane] for lane in lanes.LOWER)
        for lane in (*LANES, LIVE) if lower else (LIVE,):
            again = lane == LIVE and elapsed_s == 0  # what lower lanes left
            total = {name: free[name] if again or not lower else memory.lanes[name].room(lane) for name in groups}
            for name, count in self._rounds(lane, total, elapsed_s).items():
                free[name] -= count
                memory.lanes[name].took(lane, count)
            elapsed_s = 0.0
        for name in groups:
            memory.lanes[name].close()
        self._welcome()
        # Who still waits when all is given away: what others hold from now on counts as held while somebody waits.
        hungry = {one: self._claim(one) for lane in LANES for one in self._open(lane)}
        memory.fair.grant(hungry, total={}, room={}, elapsed_s=0)

    def _welcome(self) -> None:
        """Newcomers that hold nothing and got nothing have places of their own, beyond what others may fill."""
        new = {one for one in self.newcomers if not self.capacity.held[one] and not self.given[one]}
        new &= set(self._open(LIVE))
        if not new:
            return
        total: dict[str, int] = {}
        for name, group in self.capacity.groups.items():
            given = sum(count for one, count in self.given.items() if self._group(one) == name)
            total[name] = group.places_for_newcomers(given, refill=self.refill or self.put_off)
        for queue in {self.known[one].queue(self.pool) for one in new}:
            if queue in self.capacity.by_queue:
                name = self.capacity.whose[queue]
                free = 0 if self.refill or name not in total else max(0, self.capacity.groups[name].free)
                self.capacity.by_queue[queue] += max(0, total.get(name, 0) - free)
        self._rounds(LIVE, total, 0.0, only=new)  # one round, in equal parts: nobody waits for what others can't use

    def hungry(self) -> Iterator[tuple[int, int, int, int]]:
        """Who could still use a slot: (tenant, slots there are, held by all, held by itself)."""
        capacity, known = self.capacity, self.known
        by_group: Counter[str] = Counter()
        for tenant_id, held in capacity.held.items():
            if tenant_id in known:
                by_group[self._group(tenant_id)] += held
        for tenant_id, count in self.given.items():
            by_group[self._group(tenant_id)] += count
        for tenant_id in {one for lane in LANES for one in self._open(lane)}:
            group = self._group(tenant_id)
            slots = capacity.groups[group].slots if group in capacity.groups else 0
            yield tenant_id, slots, by_group[group], capacity.held[tenant_id] + self.given[tenant_id]

    def _rounds(
        self, lane: int, total: dict[str, int], elapsed_s: float, *, only: Set[int] | None = None
    ) -> Counter[str]:
        """Shares `total` of each group among those that wait in a lane; what of it went.

        Among `only` some of them: one round, in which each is offered an equal part.
        """
        fair, went = self.shares.fair, Counter[str]()
        for number in range(ROUNDS if only is None else 1):
            claims = {one: self._claim(one) for one in self._open(lane) if only is None or one in only}
            if only is not None:
                claims = _in_equal_parts(claims, total)
            if number == 0 and elapsed_s > 0:  # who only holds is charged for it too
                claims = self._holders() | claims
            if not claims:
                break
            left = {name: count - went[name] for name, count in total.items()}
            grants = fair.grant(claims, total=left, room=self.capacity.by_queue, elapsed_s=0 if number else elapsed_s)
            self.offered.update(grants)
            used = self.pick(lane, grants) if grants else Counter[int]()
            fair.charge(used, grants)
            for tenant_id, grant in grants.items():
                if used[tenant_id] < grant:
                    self._sated.add((lane, tenant_id))
                self.left[tenant_id] -= used[tenant_id]
                self.given[tenant_id] += used[tenant_id]
                went[self._group(tenant_id)] += used[tenant_id]
            if not grants:
                break
        return went

    def _open(self, lane: int) -> list[int]:
        left, sated = self.left, self._sated
        return [one for one in self.waits[lane] if left.get(one, 0) >= 1 and (lane, one) not in sated]

    def _group(self, tenant_id: int) -> str:
        return self._part(tenant_id).group

    def _part(self, tenant_id: int) -> _Part:
        found = self.shares.parts.get(tenant_id)
        if found is None:
            tenancy = self.known[tenant_id]
            queue = tenancy.queue(self.pool)
            found = self.shares.parts[tenant_id] = _Part(
                max(1, tenancy.weight), tenancy.reserved.get(self.pool, 0), tenancy.max_slots.get(self.pool), queue,
                self.capacity.whose.get(queue, tenancy.group),
            )  # fmt: skip
        return found

    def _claim(self, tenant_id: int) -> Claim:
        wants, held = int(min(self.batch, self.left[tenant_id])), self.capacity.held[tenant_id] + self.given[tenant_id]
        weight, reserved, maximum, queue, group = self._part(tenant_id)
        return Claim(weight, wants, held, reserved, maximum, queue, group)

    def _holders(self) -> dict[int, Claim]:
        """Claims of all that hold something."""
        claims, parts = {}, self.shares.parts
        for tenant_id, held in self.capacity.held.items():
            if tenant_id in self.known:
                weight, reserved, maximum, queue, group = parts.get(tenant_id) or self._part(tenant_id)
                claims[tenant_id] = Claim(weight, 0, held, reserved, maximum, queue, group)
        return claims


def _in_equal_parts(claims: Mapping[int, Claim], total: Mapping[str, int]) -> dict[int, Claim]:
    """The same, but each wants no more than its part of its group's places, and one place at least."""
    several = Counter(claim.group for claim in claims.values())
    parts = {name: max(1, total.get(name, 0) // count) for name, count in several.items()}
    return {one: claim._replace(wants=min(claim.wants, parts[claim.group])) for one, claim in claims.items()}
