"""Fair shares of a pool's slots between tenants. Pure; docs/fairness.md explains it with an example.

Between tenants, in slot time. A tenant's virtual time is what it has held (slots times seconds) divided by its weight,
as in start-time fair queueing (Goyal, Vin and Cheng, 1996) when many requests are in service at once (Jin, Chase and
Kaur, 2004). A free slot goes to who is least in `virtual time + HORIZON_S * what it holds / weight`: the second part
makes slots fair now, the first makes slot time fair in the long run, whatever runs last; differences that are left
over from the past fade with HORIZON_S. Who was idle starts at the clock, the least virtual time of those that wait: it
is neither owed for its silence nor waits behind others' past. What anybody pays for its past is bounded by DEBT_S.

Reserves come before that: who holds less than its reserve gets every slot that becomes free, whoever borrowed it.
"""

import heapq
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

HORIZON_S = 10.0
DEBT_S = 60.0  # of its fair share is the most that a tenant is behind for what it held before
MIN_RUN_S = 0.005  # what a run costs beside the time for which it holds a slot: message, start, settlement
ELAPSED_MAX_S = 5.0  # of a longer pause between passes nothing is known, but that there was nothing to share
SHARED_PART = 16  # reserves leave one in so many slots to the tenants that have none, or those would starve
TURN_S = (
    1.0  # of slot time is what a tenant gets in one turn of short runs: enough for a message, few enough to be fair
)
TURN_MAX = 32  # runs
TURNS = 16  # a pass is split into at least so many turns
RUN_MAX_S = 900.0  # an attempt's deadline
RUN_S = 0.5  # how long runs last of a tenant of which nothing is known
RUNS_REMEMBERED = 200  # ended runs by which a tenant's run time is known
REMEMBERED = 10_000  # tenants


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
class _Account:
    group: str
    weight: int
    virtual: float  # slot seconds for each unit of weight
    slot_s: float = RUN_S  # with `ended` the mean run time, of the last runs
    ended: float = 1.0

    @property
    def run_s(self) -> float:
        return min(RUN_MAX_S, self.slot_s / self.ended)


@dataclass(slots=True)
class FairShare:
    """Divides a pool's free slots among tenants; remembers between passes what they held. Fresh state does no harm."""

    accounts: dict[int, _Account] = field(default_factory=dict)
    clocks: dict[str, float] = field(default_factory=dict)  # by group: the least virtual time of those that wait
    _holding: dict[int, int] = field(default_factory=dict)  # after the last pass
    _contended: set[str] = field(default_factory=set)  # groups of which somebody waited for slots after the last pass
    _claims: Mapping[int, Claim] = field(default_factory=dict)
    _reached: dict[str, float] = field(default_factory=dict)  # by group: where the last turn of the last grant began

    def grant(
        self, claims: Mapping[int, Claim], *, total: Mapping[str, int], room: Mapping[str, int], elapsed_s: float
    ) -> dict[int, int]:
        """Tenant -> slots, at most `total` of each group and `room` of each queue. Call `charge` after it.

        `elapsed_s` is the time since the last pass; 0 for further rounds of one pass, which may leave tenants out.
        """
        left = _Left(claims, total, room)
        if elapsed_s > 0:
            self._charge_time(claims, min(elapsed_s, ELAPSED_MAX_S))
        self._open(claims)
        if elapsed_s > 0:
            self._move_clocks(claims, left)
        self._claims = claims
        self._reserves(claims, left)
        self._shares(claims, left)
        self._contended = {
            claim.group
            for tenant, claim in claims.items()
            if claim.wants > left.granted[tenant] and not left.most(claim)
        }
        return {tenant: count for tenant, count in left.granted.items() if count > 0}

    def charge(self, used: Mapping[int, int], offered: Mapping[int, int]) -> None:
        """What was really used of the last grant, which is `offered`.

        Who could use nothing of it goes behind those that wait: else it would be offered the same again.
        """
        for tenant, claim in self._claims.items():
            count = used.get(tenant, 0)
            account = self.accounts[tenant]
            self._holding[tenant] = claim.held + count
            if count:
                account.virtual += count * MIN_RUN_S / account.weight
            elif offered.get(tenant, 0):
                behind = self._reached.get(claim.group, account.virtual) + HORIZON_S / account.weight
                account.virtual = max(account.virtual, behind)
        if len(self.accounts) > REMEMBERED:
            self._forget()

    def _charge_time(self, claims: Mapping[int, Claim], elapsed_s: float) -> None:
        """Everybody held until now what it had after the last pass: nobody else could have it meanwhile.

        It counts only where somebody waited for it: what was borrowed while it was idle need not be paid for.
        """
        for tenant, held in self._holding.items():
            account = self.accounts.get(tenant)
            if account is None or not held:
                continue
            slot_s = held * elapsed_s
            if account.group in self._contended:
                account.virtual += slot_s / account.weight
            claim = claims.get(tenant)
            account.slot_s += slot_s
            account.ended += max(0, held - (claim.held if claim else 0))
            if account.ended > RUNS_REMEMBERED:
                account.slot_s /= 2
                account.ended /= 2
        self._holding = {}

    def _open(self, claims: Mapping[int, Claim]) -> None:
        """An account for each; who was behind the clock, because it wanted or could use nothing, starts at it."""
        for tenant, claim in claims.items():
            account, clock = self.accounts.get(tenant), self.clocks.get(claim.group, 0.0)
            if account is None:
                self.accounts[tenant] = _Account(claim.group, max(1, claim.weight), clock)
                continue
            account.weight = max(1, claim.weight)
            if account.group != claim.group:
                account.group, account.virtual = claim.group, clock
            elif account.virtual < clock:
                account.virtual = clock

    def _move_clocks(self, claims: Mapping[int, Claim], left: "_Left") -> None:
        """To the least virtual time of those that could use a slot; nobody stays too far ahead of it."""
        weights: dict[str, int] = defaultdict(int)
        held: dict[str, int] = defaultdict(int)
        least: dict[str, float] = {}
        for tenant, claim in claims.items():
            group = claim.group
            held[group] += claim.held
            if claim.wants > 0 and (claim.maximum is None or claim.held < claim.maximum) and left.room[claim.queue] > 0:
                account = self.accounts[tenant]
                weights[group] += account.weight
                least[group] = min(least.get(group, account.virtual), account.virtual)
        self.clocks = {group: least.get(group, self.clocks.get(group, 0.0)) for group in held}
        for tenant, claim in claims.items():
            account, group = self.accounts[tenant], claim.group
            fair = (held[group] + left.total[group]) / max(account.weight, weights[group])  # slots a unit of weight
            most = self.clocks[group] + DEBT_S * fair + account.run_s / account.weight
            if account.virtual > most:
                account.virtual = most

    def _reserves(self, claims: Mapping[int, Claim], left: "_Left") -> None:
        """Owners below their reserve, the emptiest first: all get the same part of it when there is not enough."""
        heap = [
            (claim.held / claim.reserved, tenant)
            for tenant, claim in claims.items()
            if claim.held < claim.reserved and claim.wants > 0
        ]
        if not heap:
            return
        reservable = left.reservable(claims)
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

    def _shares(self, claims: Mapping[int, Claim], left: "_Left") -> None:
        """The rest by slot time, in turns."""
        self._reached = {}
        turn_most = {group: max(1, min(TURN_MAX, slots // TURNS)) for group, slots in left.total.items()}
        heap = []
        for tenant, claim in claims.items():
            got = left.granted[tenant]
            if claim.wants > got and left.total[claim.group] > 0:
                account = self.accounts[tenant]
                heap.append((account.virtual + HORIZON_S * (claim.held + got) / account.weight, tenant))
        heapq.heapify(heap)
        while heap:
            at, tenant = heapq.heappop(heap)
            claim = claims[tenant]
            if left.total[claim.group] <= 0:
                continue
            account = self.accounts[tenant]
            part = left.take(tenant, claim, max(1, min(turn_most[claim.group], int(TURN_S / account.run_s))))
            if part:
                self._reached[claim.group] = at
                heapq.heappush(heap, (at + HORIZON_S * part / account.weight, tenant))

    def _forget(self) -> None:
        """Who holds nothing and is not ahead of its clock needs no memory; of too many, those that are least ahead."""
        ahead = []
        for tenant, account in self.accounts.items():
            lead = account.virtual - self.clocks.get(account.group, account.virtual)
            if tenant not in self._claims and lead > 0:
                ahead.append((lead, tenant))
        ahead.sort(reverse=True)
        kept = [tenant for _, tenant in ahead[: REMEMBERED // 2]]
        self.accounts = {tenant: self.accounts[tenant] for tenant in (*self._claims, *kept)}


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

    def reservable(self, claims: Mapping[int, Claim]) -> dict[str, int]:
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
            capacity = count + self.total[group]
            shared = max(1, capacity // SHARED_PART) if group in others_wait else 0
            found[group] = capacity - shared - as_reserve[group]
        return found
