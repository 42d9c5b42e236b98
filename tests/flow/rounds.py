"""A pool that only counts: rounds of release over tenants with backlogs, under the real `FairShare`. Deterministic."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from apps.dispatch.fairness import Claim, FairShare

ALWAYS = 10**9  # a backlog that never ends


@dataclass(slots=True)
class Tenant:
    """Its part of the pool, how long its runs last, and what waits."""

    weight: int = 1
    run_s: float = 1.0
    waiting: int = ALWAYS
    reserved: int = 0
    maximum: int | None = None
    queue: str = "q"
    group: str = ""
    per_s: float = 0.0  # runs that arrive, at random instants
    held: int = 0


@dataclass(slots=True)
class Rounds:
    """Time goes on in rounds; what is granted runs at once and holds its slot until it has ended."""

    tenants: dict[int, Tenant]
    slots: Mapping[str, int]  # of each group
    room: Mapping[str, int] = field(default_factory=lambda: {"q": ALWAYS})  # of each queue
    every_s: float = 0.5
    fair: FairShare = field(default_factory=FairShare)
    random: Random = field(default_factory=lambda: Random(6))
    later: bool = False  # all that waits is of a lower lane: it is shared in a further round of each pass
    exact: bool = False  # runs last exactly run_s; else their lengths are random about it
    number: int = 0
    slot_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    started: Counter[int] = field(default_factory=Counter)
    granted: dict[int, int] = field(default_factory=dict)
    _ends: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def go(self, seconds: float, *, look: Callable[[Rounds], None] | None = None) -> Rounds:
        """So much time; `look` sees the state after each round."""
        for _ in range(round(seconds / self.every_s)):
            self.round()
            if look is not None:
                look(self)
        return self

    def held(self) -> int:
        """Slots in use, of all groups."""
        return sum(one.held for one in self.tenants.values())

    def round(self) -> None:
        """Runs end, others arrive, free slots are shared."""
        for number, count in self._ends.pop(self.number, {}).items():
            self.tenants[number].held -= count
        claims, total, room = {}, dict(self.slots), dict(self.room)
        for number, tenant in self.tenants.items():
            if tenant.per_s:
                tenant.waiting += self._arrivals(tenant.per_s * self.every_s)
            if tenant.held:
                total[tenant.group] -= tenant.held
                room[tenant.queue] -= tenant.held
            if tenant.held or tenant.waiting:
                claims[number] = Claim(
                    tenant.weight, tenant.waiting, tenant.held, tenant.reserved, tenant.maximum, tenant.queue,
                    tenant.group,
                )  # fmt: skip
        # What a tenant holds while it moves counts where it is now; that may be more than there is.
        elapsed_s = self.every_s
        if self.later:
            none = {number: claim._replace(wants=0) for number, claim in claims.items() if claim.held}
            self.fair.charge({}, self.fair.grant(none, total=total, room=room, elapsed_s=elapsed_s))
            elapsed_s = 0.0
        self.granted = self.fair.grant(claims, total=total, room=room, elapsed_s=elapsed_s)
        self.fair.charge(self.granted, self.granted)
        for number, count in self.granted.items():
            tenant = self.tenants[number]
            tenant.waiting -= count
            tenant.held += count
            self.started[number] += count
            for _ in range(count):
                self._ends[self.number + self._rounds_of(tenant.run_s)][number] += 1
        for number, tenant in self.tenants.items():
            if tenant.held:
                self.slot_s[number] += tenant.held * self.every_s
        self.number += 1

    def _rounds_of(self, run_s: float) -> int:
        length = run_s if self.exact else run_s * self.random.choice((0.5, 0.75, 1.0, 1.25, 1.5))
        return max(1, round(length / self.every_s))

    def _arrivals(self, mean: float) -> int:
        whole, part = divmod(mean, 1)
        return int(whole) + (self.random.random() < part)
