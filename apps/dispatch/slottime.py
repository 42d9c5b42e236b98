"""What tenants have held of a pool's slots, as virtual times. Pure; the ledger behind `fairness`.

A tenant's virtual time is slot seconds divided by its weight. Each queue and each group has a clock: the mean virtual
time of those that were served last, which never goes back. Who comes anew starts at the clock of its queue, and what
the past counts for is bounded: a tenant, and a queue within its group, is at most DEBT_S of its share and one run away
from the clock. A queue has a clock of its own because it may be narrower than the share of those behind it: they fall
behind the group then, and still share the queue by weight.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

HORIZON_S = 10.0
DEBT_S = 60.0
MIN_RUN_S = 0.005  # what a run costs beside the time for which it holds a slot: message, start, settlement
ELAPSED_MAX_S = 60.0  # of a longer pause between passes nothing is known
RUN_MAX_S = 900.0  # an attempt's deadline
RUN_S = 5.0  # how long runs last of a tenant of which nothing is known
RUNS_REMEMBERED = 200  # ended runs by which a tenant's run time is known
REMEMBERED = 5_000  # tenants


class Claim(NamedTuple):
    """What a tenant holds of a pool and what more it could use now. `held` and the limits are in slots."""

    weight: int
    wants: int  # 0 for who only holds: its slot time counts too
    held: int = 0  # queued or running, also what earlier rounds of this pass gave
    reserved: int = 0
    maximum: int | None = None
    queue: str = ""
    group: str = ""


@dataclass(slots=True)
class Group:
    """Workers of one group: all that waits for them competes. The sums are of the present pass."""

    name: str
    clock: float = 0.0
    contended: bool = False  # whether somebody was left waiting for slots by the last pass
    horizon_s: float = HORIZON_S
    held: int = 0
    weights: int = 0  # of those that wait
    runs_s: float = 0.0
    debt: float = 0.0  # in virtual time
    served: int = 0
    served_at: float = 0.0


@dataclass(slots=True)
class Queue:
    """One queue of a group."""

    name: str
    group: Group
    clock: float
    competed: bool = False  # in the last pass
    longest: float = 0.0  # run of those behind it, in virtual time
    moved: float = 0.0
    served: int = 0
    served_at: float = 0.0


@dataclass(slots=True)
class Account:
    """One tenant's."""

    queue: Queue
    weight: int
    virtual: float
    tie: int  # who comes first among equals
    holding: int = 0  # after the last pass
    competed: bool = False  # in any round of the last pass
    competes: bool = False
    run_s: float = RUN_S  # the mean of its last runs
    slot_s: float = RUN_S  # of them
    ended: float = 1.0

    def took(self, slot_s: float, ended: int) -> None:
        """It held slots for so long, and so many of its runs ended."""
        self.virtual += slot_s / self.weight
        self.slot_s += slot_s
        self.ended += ended
        if self.ended > RUNS_REMEMBERED:
            self.slot_s /= 2
            self.ended /= 2
        self.run_s = min(RUN_MAX_S, self.slot_s / self.ended)

    def serve(self, slots: int) -> None:
        """It is granted so many slots: its queue and its group go on to where it is."""
        queue = self.queue
        queue.served += slots
        queue.served_at += slots * self.virtual
        queue.group.served += slots
        queue.group.served_at += slots * self.virtual


@dataclass(slots=True)
class SlotTime:
    """All accounts of one pool, between passes."""

    salt: int = 0
    accounts: dict[int, Account] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    queues: dict[tuple[str, str], Queue] = field(default_factory=dict)

    def account(self, claims: Mapping[int, Claim]) -> None:
        """An account for each, with its weight and queue of now."""
        for tenant, claim in claims.items():
            account = self.accounts.get(tenant)
            if account is not None and account.queue.name == claim.queue and account.queue.group.name == claim.group:
                account.weight = claim.weight if claim.weight > 0 else 1
            else:
                queue = self._queue(claim)
                tie = hash((tenant, self.salt)) if self.salt else tenant
                account = self.accounts[tenant] = Account(queue, max(1, claim.weight), queue.clock, tie)
            if claim.wants > 0 and (claim.maximum is None or claim.held < claim.maximum):
                account.competes = True

    def charge(self, claims: Mapping[int, Claim], elapsed_s: float) -> None:
        """Everybody held until now what it had after the last pass: nobody else could have it meanwhile.

        It counts only where somebody waited for it: what was borrowed while it was idle need not be paid for.
        """
        elapsed_s = min(elapsed_s, ELAPSED_MAX_S)
        for tenant, account in self.accounts.items():
            account.competed, account.competes = account.competes, False
            if account.holding:
                if account.queue.group.contended:
                    claim = claims.get(tenant)
                    account.took(account.holding * elapsed_s, max(0, account.holding - (claim.held if claim else 0)))
                account.holding = 0

    def compete(self, claims: Mapping[int, Claim], total: Mapping[str, int]) -> None:
        """Opens a pass in which `total` slots of each group are free: bounds what the past counts for."""
        self._sum(claims)
        for group in self.groups.values():
            group.debt = DEBT_S * (group.held + total.get(group.name, 0)) / max(1, group.weights)
            group.horizon_s = max(HORIZON_S, group.runs_s / max(1, group.held))
        for queue in self.queues.values():
            clock, of_group, most = queue.clock, queue.group.clock, queue.group.debt + queue.longest
            queue.clock = min(max(clock, of_group - most if queue.competed else of_group), of_group + most)
            queue.moved = queue.clock - clock if queue.competed else 0.0
        for account in self.accounts.values():
            queue = account.queue
            group = queue.group
            if not group.contended:  # everybody had what it wanted: nobody is owed or owes anything
                account.virtual = queue.clock = group.clock
            else:
                clock, most = queue.clock, group.debt + account.run_s / account.weight
                least = clock - most if account.competed else clock
                account.virtual = min(max(account.virtual + queue.moved, least), clock + most)

    def close(self) -> None:
        """After a grant: clocks go on to the mean virtual time of those that it served, never back."""
        clocks: list[Queue | Group] = [*self.queues.values(), *self.groups.values()]
        for one in clocks:
            if one.served:
                one.clock = max(one.clock, one.served_at / one.served)
                one.served, one.served_at = 0, 0.0

    def forget(self, claims: Mapping[int, Claim]) -> None:
        """Who holds nothing and is not ahead of its clock needs no memory; of too many, those that are least ahead."""
        if len(self.accounts) <= REMEMBERED:
            return
        ahead = [
            (account.virtual - account.queue.clock, tenant)
            for tenant, account in self.accounts.items()
            if tenant not in claims and account.virtual > account.queue.clock
        ]
        ahead.sort(reverse=True)
        kept = [tenant for _, tenant in ahead[: REMEMBERED // 2]]
        self.accounts = {tenant: self.accounts[tenant] for tenant in (*claims, *kept)}
        used = {(one.queue.group.name, one.queue.name): one.queue for one in self.accounts.values()}
        self.queues = used
        self.groups = {queue.group.name: queue.group for queue in used.values()}

    def _queue(self, claim: Claim) -> Queue:
        key = (claim.group, claim.queue)
        found = self.queues.get(key)
        if found is None:
            group = self.groups.get(claim.group)
            if group is None:
                group = self.groups[claim.group] = Group(claim.group)
            found = self.queues[key] = Queue(claim.queue, group, group.clock)
        return found

    def _sum(self, claims: Mapping[int, Claim]) -> None:
        for group in self.groups.values():
            group.held, group.weights, group.runs_s = 0, 0, 0.0
        for queue in self.queues.values():
            queue.longest, queue.competed = 0.0, False
        for tenant, claim in claims.items():
            if claim.held:
                account = self.accounts[tenant]
                account.queue.group.held += claim.held
                account.queue.group.runs_s += claim.held * account.run_s
        for account in self.accounts.values():
            if account.competed or account.competes:
                queue = account.queue
                queue.competed = queue.competed or account.competed
                queue.group.weights += account.weight
                queue.longest = max(queue.longest, account.run_s / account.weight)
