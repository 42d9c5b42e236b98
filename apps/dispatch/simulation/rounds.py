"""One pool's release in a simulation: passes as of `release`, by the same lanes, shares and predicates. Pure."""

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from apps.dispatch.capacity import Capacity, Group, leave_to_others
from apps.dispatch.flowshare import FLOWS_MAX, FlowClaim, FlowShare
from apps.dispatch.pace import BUSY_WAIT_S, REFILL_WAIT_S, Newcomers, look_again_s, waits_for_more
from apps.dispatch.sharing import Shares, Sharing
from apps.dispatch.simulation.admitting import Admitted, Admitting, OfFlow
from apps.dispatch.simulation.measures import Demand
from apps.dispatch.simulation.state import Flow, Run, State
from apps.tickets.values import LANES, LIVE

LASTING_S = 4 * REFILL_WAIT_S  # after so long without a release a full pool is looked at as rarely as it ever is


@dataclass(slots=True)
class Done:
    """What a pass did.

    `look_s` is when to look again, in seconds after it, if runs are ready that could not go; `lasting` says that all
    further looks find the same until something ends or comes. `again_at` is when some may go by themselves.
    """

    released: list[Run] = field(default_factory=list)
    expired: list[Run] = field(default_factory=list)
    took_s: float = 0.0
    look_s: float | None = None
    lasting: bool = False
    again_at: float | None = None


class Rounds:
    """The passes of one pool."""

    def __init__(self, state: State, pool: str) -> None:
        self.pool = pool
        self._state, self._mine = state, state.pools[pool]
        self._groups = sorted(group for name, group in state.settings.slots if name == pool)
        self._shares, self._flows, self._newcomers = Shares(), FlowShare(), Newcomers()
        self._whose = {
            one.queue(pool): one.group for one in state.settings.tenants.values() if one.group in self._groups
        }
        self._admitting = Admitting(state, self._mine, state.instant)
        self._ids: dict[Flow, UUID] = {}
        self._admitted: dict[int, Admitted] = {}
        self._shared_at = self._released_at = float("-inf")
        self._free_after = 0  # places that the last release left

    def release(self, now: float) -> Done:
        """One pass."""
        done = Done()
        if not self._mine.waiting:
            return done
        settings = self._state.settings
        capacity = self._capacity()
        free, since_s = min(capacity.free, settings.release_batch), now - self._released_at
        early = waits_for_more(free=free, capacity=capacity.most, since_release_s=since_s)
        places = any(group.free + group.kept > 0 for group in capacity.groups.values())
        rests_s = self._newcomers.rests_s(now)
        new = not rests_s and self._newcomers.looked(
            self._mine.ready[LIVE], held=capacity.held, begun=now, ended=now + settings.costs.look_s
        )
        if early and not (places and new):
            done.took_s = settings.costs.look_s
            done.look_s = look_again_s(
                free=free, free_before=self._free_after, capacity=capacity.most, since_release_s=since_s
            )
            if places and rests_s:
                done.look_s = min(done.look_s, rests_s)
            done.lasting = free <= 0 and since_s >= LASTING_S and done.look_s == REFILL_WAIT_S
            return done
        self._of_queues(capacity)
        self._newcomers.passed(self._mine.ready[LIVE], held=capacity.held, at=now)
        self._admitted = {tenant: self._admitting.of(tenant, now) for tenant in sorted(self._mine.waiting)}
        for admitted in self._admitted.values():
            done.expired += admitted.expired
            admitted.expired = []
        waits = {lane: sorted(self._mine.ready[lane]) for lane in LANES}
        left = {tenant: admitted.most for tenant, admitted in self._admitted.items()}
        self._newcomers.may_go(left)
        others = any(one not in self._newcomers.new for lane in LANES for one in waits[lane])

        def pick(lane: int, grants: Mapping[int, int]) -> Counter[int]:
            return Counter({one: self._take(one, lane, grant, capacity, now, done) for one, grant in grants.items()})

        refill = not self._newcomers.go_alone(early=early, held=capacity.held, others=others)
        sharing = Sharing(
            self.pool, capacity, self._shares, settings.release_batch, waits, settings.tenants, pick,
            newcomers=self._newcomers.new, refill=refill, put_off=self._newcomers.put_off,
        )  # fmt: skip
        sharing.left = left
        elapsed_s, self._shared_at = now - self._shared_at, now
        sharing.share(max(1e-6, elapsed_s))
        done.took_s = settings.costs.round_s + settings.costs.release_s * len(done.released)
        if done.released:
            if sharing.refill:
                self._released_at = now + settings.costs.round_s
                self._free_after = max(0, free - len(done.released))
            return done
        done.look_s = (0.0 if sharing.put_off else BUSY_WAIT_S) if self._mine.waiting else None
        done.lasting = not sharing.put_off
        until = min((one.until for one in self._admitted.values()), default=float("inf"))
        done.again_at = max(now + BUSY_WAIT_S, until) if until < float("inf") else None
        return done

    def most(self, group: str) -> int:
        """What may be queued or running of a group at once."""
        return int(self.slots(group) * self._state.settings.prefetch)

    def slots(self, group: str) -> int:
        return self._state.settings.slots[self.pool, group]

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
                    setting.max_slots.get(self.pool),
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
                full = self._mine.by_group[group] >= self.most(group) if group in self._groups else True
                reasons["pool_full" if full else "fair_share"] += rest
            found[tenant] = reasons
        return found

    def _capacity(self) -> Capacity:
        """What workers can take now, group by group."""
        settings, mine = self._state.settings, self._mine
        groups = {}
        for name in self._groups:
            most = self.most(name)
            held = [mine.by_lane[name, lane] for lane in LANES]
            groups[name] = Group(settings.slots[self.pool, name], most, most - mine.by_group[name], held)
        return Capacity(groups, {}, self._whose, {}, Counter(), mine.held, Counter(), Counter(), mine.running, {})

    def _of_queues(self, capacity: Capacity) -> None:
        """The queues of those that wait; every queue of a group is served by all of its workers."""
        for tenant in self._mine.waiting:
            queue = self._state.queue_of_tenant(tenant, self.pool)
            if queue in self._whose:
                found = capacity.groups[self._whose[queue]]
                capacity.by_queue[queue] = found.capacity - self._mine.by_queue[queue]
        leave_to_others(capacity, self.pool)

    def _take(self, tenant: int, lane: int, grant: int, capacity: Capacity, now: float, done: Done) -> int:
        """Releases up to so many of the tenant's best runs of a lane; returns how many went."""
        admitted = self._admitted[tenant]
        queue = self._state.queue_of_tenant(tenant, self.pool)
        left = min(grant, capacity.by_queue.get(queue, 0))
        flows = {self._id(one.flow): one for one in [one for one in admitted.flows if one.lane == lane][:FLOWS_MAX]}
        wanted = [
            FlowClaim(
                flow, int(min(one.most, one.waiting, admitted.of_job[one.flow[0]], left)),
                self._state.instant(one.head.rank),
            )
            for flow, one in flows.items()
        ]  # fmt: skip
        wanted = [claim for claim in wanted if claim.wants > 0]
        if left <= 0 or not wanted:
            return 0
        went = 0
        for flow, count in self._flows.split(tenant, left, wanted, self._state.instant(now)).items():
            went += self._take_of(flows[flow], admitted, count, now, done)
        capacity.by_queue[queue] -= went
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
