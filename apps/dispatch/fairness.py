"""Fair shares of a pool's free slots between tenants. Pure; docs/fairness.md explains it with an example.

In slot time, as start-time fair queueing has it (Goyal, Vin and Cheng, 1996) where many requests are in service at once
(Jin, Chase and Kaur, 2004). A free slot goes to the tenant that is least in

    slots that it holds / weight + (its virtual time - the clock) / horizon

The first part makes slots fair now; the second makes slot time fair in the long run, however long runs last: what a
tenant was given too much or too little of is made up within the horizon. The clock is the mean of those that are served
(as in earliest eligible virtual deadline first: Stoica and Abdel-Wahab, 1995); who was idle starts there, so that it is
neither owed for its silence nor waits behind others' past. `slottime` keeps the virtual times.

Reserves come before all that: who holds less than its reserve gets every slot that becomes free, whoever borrowed it.
"""

import heapq
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from apps.dispatch.slottime import MIN_RUN_S, Claim, SlotTime

SHARED_PART = 16  # reserves leave one in so many slots to the tenants that have none, or those would starve
TURN_S = (
    1.0  # of slot time is what a tenant gets in one turn of short runs: enough for a message, few enough to be fair
)
TURN_MAX = 32  # runs
TURNS = 16  # a pass is split into at least so many turns


@dataclass(slots=True)
class FairShare:
    """Divides a pool's free slots among tenants; remembers between passes what they held.

    Fresh state does no harm: what is held is in the claims. `salt` orders those that are equal, another way after each
    takeover, so that it is not always the same who come first.
    """

    salt: int = 0
    time: SlotTime = field(init=False)
    _claims: Mapping[int, Claim] = field(default_factory=dict)
    _reached: dict[str, float] = field(default_factory=dict)  # by group: where the last turn of the last grant began

    def __post_init__(self) -> None:
        self.time = SlotTime(self.salt)

    def grant(
        self, claims: Mapping[int, Claim], *, total: Mapping[str, int], room: Mapping[str, int], elapsed_s: float
    ) -> dict[int, int]:
        """Tenant -> slots, at most `total` of each group and `room` of each queue. Call `charge` after it.

        `elapsed_s` is the time since the last pass; 0 for further rounds of one pass, which may leave tenants out.
        Claims are of all that wait or hold, those of one queue in one group.
        """
        self._claims = claims
        left = _Left(claims, total, room)
        if elapsed_s > 0:
            self.time.charge(claims, elapsed_s)
        self.time.account(claims)
        if elapsed_s > 0:
            self.time.compete(claims, left.total)
        _reserves(claims, left)
        self._shares(claims, left)
        self.time.close()
        return {tenant: count for tenant, count in left.granted.items() if count > 0}

    def charge(self, used: Mapping[int, int], offered: Mapping[int, int]) -> None:
        """What was really used of the last grant, which is `offered`.

        Who could use nothing of it goes behind those that wait: else it would be offered the same again.
        """
        for tenant, claim in self._claims.items():
            count = used.get(tenant, 0)
            account = self.time.accounts[tenant]
            account.holding = claim.held + count
            if count:
                account.virtual += count * MIN_RUN_S / account.weight
            elif offered.get(tenant, 0):
                group = account.queue.group
                slots = self._reached.get(group.name, 0.0) + 1 / account.weight
                account.virtual = max(account.virtual, group.clock + slots * group.horizon_s)
        self.time.forget(self._claims)

    def _shares(self, claims: Mapping[int, Claim], left: "_Left") -> None:
        """What reserves leave, in turns."""
        self._reached = {}
        turn_most = {group: max(1, min(TURN_MAX, slots // TURNS)) for group, slots in left.total.items()}
        accounts = self.time.accounts
        heap = []
        for tenant, claim in claims.items():
            got = left.granted[tenant]
            if claim.wants > got:
                account = accounts[tenant]
                group = account.queue.group
                at = (claim.held + got) / account.weight + (account.virtual - group.clock) / group.horizon_s
                heap.append((at, account.tie, tenant))
        heapq.heapify(heap)
        while heap:
            at, tie, tenant = heapq.heappop(heap)
            claim = claims[tenant]
            if left.total[claim.group] <= 0:
                continue
            account = accounts[tenant]
            part = left.take(tenant, claim, max(1, min(turn_most[claim.group], int(TURN_S / account.run_s))))
            if part:
                account.serve(part)
                self._reached[claim.group] = at
                heapq.heappush(heap, (at + part / account.weight, tie, tenant))
        for group in self.time.groups.values():
            group.contended = False
        for tenant, claim in claims.items():
            if claim.wants > left.granted[tenant] and not left.most(claim):
                accounts[tenant].queue.group.contended = True


class _Left:
    """What of groups, queues and wants is still to be had in one grant."""

    def __init__(self, claims: Mapping[int, Claim], total: Mapping[str, int], room: Mapping[str, int]) -> None:
        self.granted: dict[int, int] = dict.fromkeys(claims, 0)
        self.total = defaultdict(int, {group: max(0, slots) for group, slots in total.items()})
        self.room = defaultdict(int, {queue: max(0, slots) for queue, slots in room.items()})

    def most(self, claim: Claim) -> int:
        """What its group and its queue have left."""
        return min(self.total[claim.group], self.room[claim.queue])

    def take(self, tenant: int, claim: Claim, most: int) -> int:
        """Grants up to `most` more to the tenant; returns how many."""
        got = self.granted[tenant]
        part = min(most, claim.wants - got, self.total[claim.group], self.room[claim.queue])
        if claim.maximum is not None:
            part = min(part, claim.maximum - claim.held - got)
        if part <= 0:
            return 0
        self.granted[tenant] = got + part
        self.total[claim.group] -= part
        self.room[claim.queue] -= part
        return part


def _reserves(claims: Mapping[int, Claim], left: _Left) -> None:
    """Owners below their reserve, the emptiest first: all get the same part of it when there is not enough."""
    heap = [
        (claim.held / claim.reserved, tenant)
        for tenant, claim in claims.items()
        if claim.held < claim.reserved and claim.wants > 0
    ]
    if not heap:
        return
    reservable = _reservable(claims, left.total)
    heapq.heapify(heap)
    while heap:
        _, tenant = heapq.heappop(heap)
        claim = claims[tenant]
        if reservable[claim.group] <= 0 or not left.take(tenant, claim, 1):
            continue
        reservable[claim.group] -= 1
        holds = claim.held + left.granted[tenant]
        if holds < claim.reserved:
            heapq.heappush(heap, (holds / claim.reserved, tenant))


def _reservable(claims: Mapping[int, Claim], total: Mapping[str, int]) -> dict[str, int]:
    """By group, how many more slots may be handed out as reserves: some are left to who has none and waits."""
    held: dict[str, int] = defaultdict(int)
    as_reserve: dict[str, int] = defaultdict(int)
    others_wait: set[str] = set()
    for claim in claims.values():
        held[claim.group] += claim.held
        as_reserve[claim.group] += min(claim.held, claim.reserved)
        if claim.wants > 0 and not claim.reserved:
            others_wait.add(claim.group)
    found: dict[str, int] = {}
    for group, count in held.items():
        capacity = count + total[group]
        shared = max(1, capacity // SHARED_PART) if group in others_wait else 0
        found[group] = capacity - shared - as_reserve[group]
    return found
