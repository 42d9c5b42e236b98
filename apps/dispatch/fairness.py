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
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from apps.dispatch.slottime import MIN_RUN_S, Account, Claim, SlotTime

SHARED_PART = 16  # reserves leave one in so many slots to the tenants that have none, or those would starve
TURN_S = (
    1.0  # of slot time is what a tenant gets in one turn of short runs: enough for a message, few enough to be fair
)
TURN_MAX = 32  # runs
TURNS = 16  # a pass is split into at least so many turns
AHEAD_LEAST = 2  # turns for each that waits: for less it is not worth while to reckon ahead


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
        if any(left.total.values()):
            before, waits = dict(left.granted), list(self._queued(claims, left))
            by_group: dict[str, list[_Queued]] = defaultdict(list)
            for one in waits:
                by_group[one.claim.group].append(one)
            for name, several in by_group.items():
                self._in_turns(name, several, left)
            for one in waits:
                one.account.serve(left.granted[one.tenant] - before[one.tenant])
        for group in self.time.groups.values():
            group.contended = False
        for tenant, claim in claims.items():
            if claim.wants > left.granted[tenant] and not left.most(claim):
                self.time.accounts[tenant].queue.group.contended = True

    def _queued(self, claims: Mapping[int, Claim], left: "_Left") -> Iterator["_Queued"]:
        turn_most = {group: max(1, min(TURN_MAX, slots // TURNS)) for group, slots in left.total.items()}
        for tenant, claim in claims.items():
            got = left.granted[tenant]
            if claim.wants > got:
                account = self.time.accounts[tenant]
                group = account.queue.group
                at = (claim.held + got) / account.weight + (account.virtual - group.clock) / group.horizon_s
                most = max(1, min(turn_most.get(claim.group, 1), int(TURN_S / account.run_s)))
                yield _Queued(tenant, claim, account, at, most)

    def _in_turns(self, group: str, waits: list["_Queued"], left: "_Left") -> None:
        while _ahead(waits, left):
            pass
        reached = max(one.began for one in waits)
        heap = [(one.at, one.account.tie, one.tenant, one) for one in waits]
        heapq.heapify(heap)
        while heap and left.total[group] > 0:
            at, tie, tenant, one = heapq.heappop(heap)
            part = left.take(tenant, one.claim, one.most)
            if part:
                reached = max(reached, at)
                heapq.heappush(heap, (at + part / one.account.weight, tie, tenant, one))
        if reached > float("-inf"):
            self._reached[group] = reached


@dataclass(slots=True)
class _Queued:
    """One that waits for turns of `most` slots: the next `at`, the last of those that were granted ahead `began`."""

    tenant: int
    claim: Claim
    account: Account
    at: float
    most: int
    began: float = float("-inf")


def _ahead(waits: list[_Queued], left: "_Left") -> int:
    """Grants at once the turns of one group of which it is sure that all of them come; returns how many slots.

    As good as one turn after another, in less time: these are the turns below a level that there is enough for.
    """
    total = left.total[waits[0].claim.group]
    if total <= AHEAD_LEAST * len(waits):
        return 0
    by_queue: dict[str, list[_Queued]] = defaultdict(list)
    for one in waits:
        by_queue[one.claim.queue].append(one)
    level = _level(waits, total)
    for queue, several in by_queue.items():
        if len(several) > 1 and left.room[queue] < total:
            level = min(level, _level(several, left.room[queue]))
    went = 0
    for one in waits:
        turns = math.ceil((level - one.at) * one.account.weight / one.most)
        turns = min(turns, left.room_of(one.tenant, one.claim) // one.most)
        if turns > 0:
            went += left.take(one.tenant, one.claim, turns * one.most)
            for _ in range(turns):  # added up as one turn after another would be, so that equals stay equal
                one.began = one.at
                one.at += one.most / one.account.weight
    return went


def _level(waits: list[_Queued], total: int) -> float:
    """Up to where all turns of all these fit into `total`, whatever else limits them."""
    level, weights, filled = float("-inf"), 0, 0.0
    for one in sorted(waits, key=lambda one: one.at):
        if weights and one.at >= level:
            break
        weights += one.account.weight
        filled += one.account.weight * one.at - one.most
        level = (total + filled) / weights
        if level <= one.at:
            level = one.at
            break
    return level - 1e-9 * max(1.0, abs(level))


class _Left:
    """What of groups, queues and wants is still to be had in one grant."""

    def __init__(self, claims: Mapping[int, Claim], total: Mapping[str, int], room: Mapping[str, int]) -> None:
        self.granted: dict[int, int] = dict.fromkeys(claims, 0)
        self.total = defaultdict(int, {group: max(0, slots) for group, slots in total.items()})
        self.room = defaultdict(int, {queue: max(0, slots) for queue, slots in room.items()})

    def most(self, claim: Claim) -> int:
        """What its group and its queue have left."""
        return min(self.total[claim.group], self.room[claim.queue])

    def room_of(self, tenant: int, claim: Claim) -> int:
        """How many more the tenant could be granted, if it were for it alone."""
        got = self.granted[tenant]
        room = min(claim.wants - got, self.total[claim.group], self.room[claim.queue])
        return room if claim.maximum is None else min(room, claim.maximum - claim.held - got)

    def take(self, tenant: int, claim: Claim, most: int) -> int:
        """Grants up to `most` more to the tenant; returns how many."""
        part = min(most, self.room_of(tenant, claim))
        if part <= 0:
            return 0
        self.granted[tenant] += part
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
