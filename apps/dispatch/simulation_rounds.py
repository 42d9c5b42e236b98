"""One pool's release in a simulation: passes as of `release`, by the same lanes, shares and predicates. Pure."""

import heapq
from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

from apps.dispatch.capacity import Capacity, leave_to_others
from apps.dispatch.fairness import Claim, FairShare
from apps.dispatch.flowshare import FLOWS_MAX, FlowClaim, FlowShare
from apps.dispatch.lanes import LANES, Lanes
from apps.dispatch.pace import BUSY_WAIT_S, REFILL_WAIT_S, ROUNDS, waits_for_more
from apps.dispatch.simulation_admitting import Admitted, Admitting, OfFlow
from apps.dispatch.simulation_measures import Demand
from apps.dispatch.simulation_state import Flow, Run, State


@dataclass(slots=True)
class Done:
    """What a pass did. `waits` says that runs are ready which could not go; `again_at` when some may by themselves."""

    released: list[Run] = field(default_factory=list)
    expired: list[Run] = field(default_factory=list)
    waits: bool = False
    again_at: float | None = None


class Rounds:
    """The passes of one pool."""

    look_s = BUSY_WAIT_S

    def __init__(self, state: State, pool: str) -> None:
        self.pool = pool
        self._state, self._mine = state, state.pools[pool]
        self._groups = sorted(group for name, group in state.settings.slots if name == pool)
        self._fair, self._flows = FairShare(), FlowShare()
        self._lanes = {group: Lanes() for group in self._groups}
        self._admitting = Admitting(state, self._mine, state.instant)
        self._ids: dict[Flow, UUID] = {}
        self._admitted: dict[int, Admitted] = {}
        self._shared_at = self._released_at = float("-inf")

    def release(self, now: float) -> Done:
        """One pass."""
        done = Done()
        if not self._mine.waiting:
            return done
        rooms = {group: self._room(group) for group in self._groups}
        free = sum(max(0, room.total) for room in rooms.values())
        capacity = sum(room.capacity for room in rooms.values())
        since = now - self._released_at
        if waits_for_more(free=min(free, self._state.settings.release_batch), capacity=capacity, since_release_s=since):
            done.waits = True
            done.again_at = None if free <= 0 else self._released_at + REFILL_WAIT_S + 1e-6  # and not just before
            return done
        self._admitted = {tenant: self._admitting.of(tenant, now) for tenant in sorted(self._mine.waiting)}
        for admitted in self._admitted.values():
            done.expired += admitted.expired
            admitted.expired = []
        self._share(rooms, now, done)
        if done.released:
            self._released_at = now
        done.waits = bool(self._mine.waiting)
        until = min((one.until for one in self._admitted.values()), default=float("inf"))
        done.again_at = max(now + BUSY_WAIT_S, until) if until < float("inf") else None
        return done

    def capacity(self, group: str) -> int:
        """What may be queued or running of a group at once."""
        return int(self._state.settings.slots[self.pool, group] * self._state.settings.prefetch)

    def spans_pools(self, tenant: int) -> bool:
        """Whether what it holds elsewhere counts here too."""
        return self._state.settings.tenants[tenant].max_running is not None

    def demands(self) -> dict[str, dict[int, Demand]]:
        """By group, what each tenant holds and could use besides, as of the last pass."""
        found: dict[str, dict[int, Demand]] = {group: {} for group in self._groups}
        for tenant in sorted({*self._mine.waiting, *self._mine.held}):
            setting = self._state.settings.tenants[tenant]
            admitted = self._admitted.get(tenant)
            wants = sum(admitted.wants(lane) for lane in LANES) if admitted and tenant in self._mine.waiting else 0
            if setting.group in found:
                found[setting.group][tenant] = Demand(
                    setting.weight, self._mine.held[tenant], wants, setting.reserved.get(self.pool, 0),
                    setting.maximum.get(self.pool),
                )  # fmt: skip
        return found

    def reasons(self) -> dict[int, Counter[str]]:
        """How many runs of each tenant wait, by the code of what holds them back, as of the last pass."""
        found: dict[int, Counter[str]] = {}
        for tenant, waiting in self._mine.waiting.items():
            admitted = self._admitted.get(tenant)
            reasons = Counter() if admitted is None else Counter(admitted.refused)
            rest = waiting - reasons.total()
            if rest > 0:
                group = self._state.settings.tenants[tenant].group
                full = self._mine.by_group[group] >= self.capacity(group) if group in self._lanes else True
                reasons["pool_full" if full else "fair_share"] += rest
            found[tenant] = reasons
        return found

    def _room(self, group: str) -> Capacity:
        """What a group's workers can take now; every queue is served by all of them."""
        slots, capacity, mine = self._state.settings.slots[self.pool, group], self.capacity(group), self._mine
        queues = {
            self._state.queue_of_tenant(tenant, self.pool) for tenant in mine.waiting if self._group(tenant) == group
        }
        room = Capacity(
            slots=slots, capacity=capacity, total=capacity - mine.by_group[group],
            by_queue={queue: capacity - mine.by_queue[queue] for queue in queues},
            by_tenant=Counter(), by_job=Counter(), by_flow=Counter(), message_max={}, running=mine.running,
        )  # fmt: skip
        leave_to_others(room, self.pool)
        return room

    def _group(self, tenant: int) -> str:
        return self._state.settings.tenants[tenant].group

    def _share(self, rooms: dict[str, Capacity], now: float, done: Done) -> None:
        """Lane after lane: claims, grants, flows, runs; what could not be used is offered again."""
        elapsed = now - self._shared_at if self._shared_at > float("-inf") else 0.0
        self._shared_at = now
        batch = self._state.settings.release_batch
        for group in self._groups:
            waits = [any(self._group(tenant) == group for tenant in lane) for lane in self._mine.ready]
            held = [self._mine.by_lane[group, lane] for lane in LANES]
            self._lanes[group].open(
                total=max(0, min(batch, rooms[group].total)), slots=rooms[group].capacity, waits=waits, held=held
            )
        for lane in LANES:
            if not self._mine.ready[lane]:
                continue
            out: set[int] = set()
            for _ in range(ROUNDS):
                claims = self._claims(lane, out)
                if not any(claim.wants for claim in claims.values()):
                    break
                total = {group: self._lanes[group].room(lane) for group in self._groups}
                room = {queue: left for one in rooms.values() for queue, left in one.by_queue.items()}
                grants = self._fair.grant(claims, total=total, room=room, elapsed_s=elapsed)
                elapsed = 0.0
                if not grants:
                    break
                used = {tenant: self._take(tenant, lane, grant, rooms, now, done) for tenant, grant in grants.items()}
                self._fair.charge(used, grants)
                out |= {tenant for tenant, count in used.items() if count < grants[tenant]}
                if not out:
                    break
        for group in self._groups:
            self._lanes[group].close()

    def _claims(self, lane: int, out: set[int]) -> dict[int, Claim]:
        claims: dict[int, Claim] = {}
        settings, mine = self._state.settings, self._mine
        for tenant in sorted({*self._admitted, *mine.held}):
            setting = settings.tenants[tenant]
            admitted = self._admitted.get(tenant)
            wants = admitted.wants(lane) if admitted is not None and tenant not in out else 0
            claims[tenant] = Claim(
                weight=setting.weight, wants=wants, held=mine.held[tenant], reserved=setting.reserved.get(self.pool, 0),
                maximum=setting.maximum.get(self.pool), queue=self._state.queue_of_tenant(tenant, self.pool),
                group=setting.group,
            )  # fmt: skip
        return claims

    def _take(self, tenant: int, lane: int, grant: int, rooms: dict[str, Capacity], now: float, done: Done) -> int:
        """Releases up to so many of the tenant's best runs of a lane; returns how many went."""
        admitted = self._admitted[tenant]
        flows = [one for one in admitted.flows if one.lane == lane]
        by_id = {self._id(one.flow): one for one in flows[:FLOWS_MAX]}
        wanted = [
            FlowClaim(
                flow,
                int(min(one.most, one.waiting, admitted.of_job[one.flow[0]], grant)),
                self._state.instant(one.head.rank),
            )
            for flow, one in by_id.items()
        ]
        went = 0
        for flow, count in self._flows.split(tenant, grant, wanted, self._state.instant(now)).items():
            went += self._take_of(by_id[flow], admitted, count, now, done)
        self._lanes[self._group(tenant)].took(lane, went)
        room = rooms[self._group(tenant)]
        room.by_queue[self._state.queue_of_tenant(tenant, self.pool)] -= went
        admitted.most -= went
        return went

    def _take_of(self, one: OfFlow, admitted: Admitted, count: int, now: float, done: Done) -> int:
        """Of one flow the best runs; those whose schedule is busy stay."""
        waiting = self._mine.ready[one.lane].get(one.head.tenant, {}).get(one.flow, [])
        job = one.flow[0]
        left = min(count, one.most, admitted.of_job[job])
        aside, went = [], 0
        while waiting and left >= 1:
            run = heapq.heappop(waiting)[2]
            if run.gone:
                self._mine.count_out(run.tenant)
            elif run.arrival.serial is not None and run.arrival.serial in self._state.busy_serials:
                aside.append(run)
            else:
                self._mine.count_out(run.tenant)
                self._state.hold(run, 1)
                self._admitting.spend(run, now)
                run.released = now if run.released < 0 else run.released
                done.released.append(run)
                went += 1
                left -= 1
        for run in aside:
            heapq.heappush(waiting, (run.rank, run.number, run))
        one.most -= went
        one.waiting -= went
        if aside:
            one.waiting = 0  # for this pass
            admitted.refused["overlap"] += len(aside)
        elif waiting:
            one.head = waiting[0][2]
        admitted.of_job[job] -= went
        self._mine.drop_if_empty(one.lane, one.head.tenant, one.flow)
        return went

    def _id(self, flow: Flow) -> UUID:
        found = self._ids.get(flow)
        if found is None:
            found = self._ids[flow] = UUID(int=len(self._ids) + 1)
        return found
