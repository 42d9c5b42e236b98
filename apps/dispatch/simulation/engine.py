"""A discrete-event simulation of the platform: runs arrive, are released, run and end, in simulated time. Pure.

Who is released is decided by the code that the dispatcher uses (`admission`, `fairness`, `capacity`); this module only
moves time on. Arrivals, run times and retries come from a `Load`; workers are slots that serve queues in turn. The same
settings and load always give the same result. docs/simulate.md says what is not modelled.
"""

import heapq
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from apps.dispatch.capacity import MESSAGE_MAX
from apps.dispatch.simulation.measures import OfTenant
from apps.dispatch.simulation.rounds import Rounds
from apps.dispatch.simulation.sampling import Sampler
from apps.dispatch.simulation.settings import Arrival, Load, Settings
from apps.dispatch.simulation.state import Run, State
from apps.schedules.policy import overlap
from kernel.service import IDLE_S

DAY_S = 86_400
WAKE_S = 0.002  # from a commit until the release loop that it wakes has begun
CHECK_EVERY = 2_000  # events between two looks at the clock of the machine
BUFFER = 10  # runs that may wait under buffer_all


@dataclass(slots=True)
class Result:
    """What came of a simulation. `cut_short` is the second at which the time limit ended it; None when none did."""

    tenants: dict[int, OfTenant]
    busy_s: dict[tuple[str, str], float]  # slot seconds by pool and group, within the counted part
    slots: dict[tuple[str, str], int]
    seconds: float  # of the counted part
    runs: int
    events: int
    rounds: int
    took_s: float
    cut_short: float | None = None


def simulate(settings: Settings, load: Load, *, limit_s: float | None = None) -> Result:
    """Runs the load under the settings; `limit_s` bounds the machine's time that it may take."""
    return _Simulation(settings, load).run(limit_s)


Event = tuple[float, int, Callable[[Any], None], Any]


@dataclass(slots=True)
class _Loop:
    """The release loop of one pool. `at` is when its next round begins; None while nothing has changed.

    Meanwhile it looks in vain, every `every_s` seconds since its last round.
    """

    rounds: Rounds
    at: float | None = None
    since: float = 0.0
    busy_until: float = 0.0
    every_s: float = IDLE_S
    waits: bool = False  # runs are ready, and none of them could go


class _Simulation:
    def __init__(self, settings: Settings, load: Load) -> None:
        self.settings, self.load, self.costs = settings, load, settings.costs
        self.now = 0.0
        self.state = State(settings, load.starts_at)
        self.loops = {pool: _Loop(Rounds(self.state, pool)) for pool in self.state.pools}
        self.tenants = {tenant: OfTenant() for tenant in settings.tenants}
        self.sampler = Sampler(self.state, self.tenants, counted_from=load.counted_from, seconds=load.seconds)
        self.events: list[Event] = []
        self.count = self.numbers = self.runs = self.rounds = 0
        self.fire_free = 0.0
        self.fire_step = 1 / (self.costs.fire_per_s * self.costs.dispatchers)
        self.day = 0

    def run(self, limit_s: float | None) -> Result:
        """Takes event after event until the window ends."""
        begun, cut_short = time.monotonic(), None
        self._later(self.sampler.next_at(), self._sample, None)
        arrivals, position, end = self.load.arrivals, 0, self.load.seconds
        events = self.events
        while True:
            due = arrivals[position].at if position < len(arrivals) else end
            if events and events[0][0] <= due:
                at, _, act, what = heapq.heappop(events)
                if at > end:
                    break
                self.now = at
                act(what)
            elif position < len(arrivals):
                self.now = due
                self._arrive(arrivals[position])
                position += 1
            else:
                break
            self.count += 1
            if self.count % CHECK_EVERY == 0 and limit_s is not None and time.monotonic() - begun > limit_s:
                cut_short = self.now
                break
        self.now = min(end, self.now) if cut_short is not None else end
        return self._result(begun, cut_short)

    # --- arrivals ---

    def _arrive(self, arrival: Arrival) -> None:
        if not arrival.fired:
            self._make(arrival)
            return
        self.fire_free = max(self.fire_free, self.now) + self.fire_step
        self._later(self.fire_free, self._make, arrival)

    def _make(self, arrival: Arrival) -> None:
        state, job = self.state, self.settings.jobs[arrival.job]
        tenant = self.settings.tenants[job.tenant]
        figures = self.tenants[job.tenant]
        counted = arrival.at >= self.load.counted_from
        figures.arrived += counted
        if counted and arrival.was_s is not None:
            figures.real.append(arrival.was_s)
        reason = self._refused(arrival, tenant.max_live, tenant.max_runs_per_day, job.tenant)
        if reason is not None:
            figures.dropped[reason] += counted
            return
        self.numbers += 1
        run = Run(self.numbers, arrival, job, self.now)
        if arrival.serial is not None:
            state.serial[arrival.serial].append(run)
        state.alive[job.tenant] += 1
        state.today[job.tenant] += 1
        self._ready(run)

    def _refused(self, arrival: Arrival, max_live: int | None, per_day: int | None, tenant: int) -> str | None:
        day = int(self.now // DAY_S)
        if day != self.day:
            self.day = day
            self.state.today.clear()
        if self.state.pools.get(self.settings.jobs[arrival.job].pool) is None:
            return "no_workers"
        if per_day is not None and self.state.today[tenant] >= per_day:
            return "daily_quota"
        if max_live is not None and self.state.alive[tenant] >= max_live:
            return "backlog_full"
        if arrival.serial is None:
            return None
        live = self.state.serial[arrival.serial]
        chosen = overlap(arrival.overlap, new=1, live=len(live), buffer=BUFFER)
        if not chosen.starts:
            return "overlap_skipped"
        if chosen.replaces:
            for run in [one for one in live if one.released < 0]:
                run.gone = True
                live.remove(run)
                self.state.alive[tenant] -= 1
                self.tenants[tenant].dropped["replaced"] += 1
        return None

    def _ready(self, run: Run) -> None:
        self.state.pools[run.job.pool].add(run)
        if run.step or run.arrival.delayed:
            self._look(self.loops[run.job.pool])
        else:
            self._wake(self.loops[run.job.pool], self.now + WAKE_S)

    # --- release ---

    def _wake(self, loop: _Loop, at: float) -> None:
        """The loop begins a round at this time, or when the one that it is in has ended."""
        at = max(at, loop.busy_until)
        if loop.at is None or at < loop.at:
            loop.at = at
            self._later(at, self._round, (loop, at))

    def _look(self, loop: _Loop) -> None:
        """Something is another: the loop finds it when it looks next, since nobody tells it."""
        if loop.at is None:
            looks = max(1, math.ceil((self.now - loop.since) / loop.every_s))
            self._wake(loop, loop.since + looks * loop.every_s)

    def _round(self, what: tuple[_Loop, float]) -> None:
        loop, at = what
        if loop.at != at:
            return
        loop.at = None
        self.rounds += 1
        done = loop.rounds.release(self.now)
        loop.since, loop.busy_until = self.now, self.now + done.took_s
        loop.waits = done.look_s is not None
        for run in done.expired:
            self._end(run, "expired")
        if done.released:
            self._later(loop.busy_until + self.costs.handover_s, self._hand_over, done.released)
            self._wake(loop, loop.busy_until)
            return
        loop.every_s = IDLE_S if done.look_s is None else done.look_s + done.took_s
        if done.again_at is not None:
            self._wake(loop, done.again_at)
        if done.look_s is not None and not done.lasting:
            self._wake(loop, loop.busy_until + done.look_s)

    def _changed(self, run: Run) -> None:
        """Something is free again: loops that wait for it look again, as often as they do in reality."""
        for pool, loop in self.loops.items():
            if loop.waits and (pool == run.job.pool or loop.rounds.spans_pools(run.tenant)):
                self._look(loop)

    # --- workers ---

    def _hand_over(self, released: list[Run]) -> None:
        by_queue: dict[tuple[tuple[str, str], str], list[Run]] = {}
        for run in released:
            by_queue.setdefault((self.state.station(run), self.state.queue(run)), []).append(run)
        for (key, queue), runs in by_queue.items():
            size = max(1, min(MESSAGE_MAX, self.settings.slots[key] // self.settings.workers_of(key) // 2))
            for start in range(0, len(runs), size):
                self.state.stations[key].put(queue, runs[start : start + size])
        for key in sorted({key for key, _ in by_queue}):
            self._serve(key)

    def _serve(self, key: tuple[str, str]) -> None:
        station = self.state.stations[key]
        while (run := station.next()) is not None:
            self._start(run)

    def _start(self, run: Run) -> None:
        if run.started < 0:
            run.started = self.now
            self.runs += 1
            arrival = run.arrival
            if arrival.at >= self.load.counted_from:
                figures = self.tenants[run.tenant]
                figures.waits.append(self.now - arrival.at + arrival.lag)
                figures.started += 1
        self.state.pools[run.job.pool].running[self.state.queue(run)] += 1
        self._later(self.now + run.arrival.tries[run.step] + self.costs.overhead_s, self._stop, (run, self.now))

    def _stop(self, what: tuple[Run, float]) -> None:
        run, since = what
        key = self.state.station(run)
        self.state.stations[key].free += 1
        self.sampler.ran(run, key, since, self.now)
        self._later(self.now + self.costs.settle_s, self._settle, run)
        self._serve(key)

    def _settle(self, run: Run) -> None:
        self.state.pools[run.job.pool].running[self.state.queue(run)] -= 1
        self.state.hold(run, -1)
        tries = run.arrival.tries
        if run.step + 2 < len(tries):
            wait = tries[run.step + 1]
            run.again(self.now + wait)
            self._later(run.available, self._ready, run)
        else:
            self.tenants[run.tenant].finished += 1
            self._end(run, None)
        self._changed(run)

    def _end(self, run: Run, reason: str | None) -> None:
        self.state.alive[run.tenant] -= 1
        if run.arrival.serial is not None:
            self.state.serial[run.arrival.serial].remove(run)
        if reason is not None:
            self.tenants[run.tenant].dropped[reason] += run.arrival.at >= self.load.counted_from

    # --- the end ---

    def _later(self, at: float, act: Callable[[Any], None], what: Any) -> None:
        self.numbers += 1
        heapq.heappush(self.events, (at, self.numbers, act, what))

    def _sample(self, _: None) -> None:
        for loop in self.loops.values():
            self.sampler.look(loop.rounds, self.now)
        self._later(self.sampler.next_at(), self._sample, None)

    def _result(self, begun: float, cut_short: float | None) -> Result:
        for _, _, act, what in self.events:
            if act == self._stop:
                self.sampler.ran(what[0], self.state.station(what[0]), what[1], self.now)
        for run in self._unstarted():
            if run.arrival.at >= self.load.counted_from:
                figures = self.tenants[run.tenant]
                figures.waiting += 1
                figures.waits.append(self.now - run.arrival.at + run.arrival.lag)  # at least
        return Result(
            tenants=self.tenants, busy_s=dict(self.sampler.busy_s), slots=dict(self.settings.slots),
            seconds=self.now - self.load.counted_from, runs=self.runs, events=self.count, rounds=self.rounds,
            took_s=time.monotonic() - begun, cut_short=cut_short,
        )  # fmt: skip

    def _unstarted(self) -> list[Run]:
        """Runs that have not started yet: ready, on their way to a worker, or queued there."""
        ready = [
            run
            for pool in self.state.pools.values()
            for lane in pool.ready
            for flows in lane.values()
            for waiting in flows.values()
            for _, _, run in waiting
        ]
        under_way = [run for _, _, act, what in self.events if act == self._hand_over for run in what]
        queued = [run for one in self.state.stations.values() for run in one.waiting()]
        return [run for run in (*ready, *under_way, *queued) if run.started < 0 and not run.gone]
