"""What a simulation keeps in place of the tables: runs that wait, what is queued or running, free slots. Pure."""

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from apps.dispatch.simulation.settings import Arrival, JobSetting, Settings, TenantSetting

Flow = tuple[int, str | None]  # a job's id and the value of its concurrency key
MESSAGES_AHEAD = 12  # of a worker process: four threads of Celery, and two messages more for each
AGING_S = 60.0  # a level of priority is worth so many seconds of waiting, as in tickets.store


class Run:
    """One run that is alive."""

    __slots__ = (
        "arrival",
        "available",
        "flow",
        "gone",
        "job",
        "number",
        "rank",
        "released",
        "start_by",
        "started",
        "step",
        "tenant",
    )

    def __init__(self, number: int, arrival: Arrival, job: JobSetting, available: float) -> None:
        self.number = number
        self.arrival = arrival
        self.job = job
        self.tenant = job.tenant
        self.flow: Flow = (job.id, arrival.key if job.key_max is not None else None)
        self.step = 0  # of arrival.tries
        self.available = available
        self.rank = available - arrival.priority * AGING_S
        self.released = self.started = -1.0  # the first times
        self.gone = False
        age = job.max_queue_age_s
        self.start_by = None if age is None else available - arrival.lag + age

    def again(self, available: float) -> None:
        """Waits for its next try."""
        self.step += 2
        self.available = available
        self.rank = available - self.arrival.priority * AGING_S


Waiting = list[tuple[float, int, Run]]  # a heap: the best rank first


@dataclass(slots=True)
class PoolState:
    """One pool: what is ready, by lane, tenant and flow; what is queued or running of each."""

    name: str
    ready: list[dict[int, dict[Flow, Waiting]]] = field(default_factory=lambda: [{}, {}, {}])
    waiting: Counter[int] = field(default_factory=Counter)  # ready runs by tenant
    held: Counter[int] = field(default_factory=Counter)  # queued or running, by tenant
    by_queue: Counter[str] = field(default_factory=Counter)
    running: Counter[str] = field(default_factory=Counter)  # by queue
    by_group: Counter[str] = field(default_factory=Counter)
    by_lane: Counter[tuple[str, int]] = field(default_factory=Counter)  # group and lane
    touched: set[int] = field(default_factory=set)  # tenants whose state changed since the last round

    def add(self, run: Run) -> None:
        """One more that may go."""
        flows = self.ready[run.arrival.lane].setdefault(run.tenant, {})
        heapq.heappush(flows.setdefault(run.flow, []), (run.rank, run.number, run))
        self.waiting[run.tenant] += 1
        self.touched.add(run.tenant)

    def take(self, lane: int, tenant: int, flow: Flow) -> Run:
        """The best of a flow, which must have one."""
        run = heapq.heappop(self.ready[lane][tenant][flow])[2]
        self.count_out(tenant)
        self.drop_if_empty(lane, tenant, flow)
        return run

    def count_out(self, tenant: int) -> None:
        """One less of the tenant waits."""
        self.waiting[tenant] -= 1
        if not self.waiting[tenant]:
            del self.waiting[tenant]
        self.touched.add(tenant)

    def drop_if_empty(self, lane: int, tenant: int, flow: Flow) -> None:
        """A flow without runs is none; nor is a tenant without flows in a lane."""
        flows = self.ready[lane].get(tenant)
        if flows is not None and flow in flows and not flows[flow]:
            del flows[flow]
            if not flows:
                del self.ready[lane][tenant]


@dataclass(slots=True)
class Station:
    """The workers of one pool and group. Of the queues in turn they take `ahead` messages, and start these in order."""

    slots: int
    free: int
    ahead: int
    taken: deque[deque[Run]] = field(default_factory=deque)  # lint: allow memory-has-a-bound: prefetched runs
    queues: dict[str, deque[deque[Run]]] = field(default_factory=dict)
    turn: deque[str] = field(default_factory=deque)  # lint: allow memory-has-a-bound: prefetched runs

    def put(self, queue: str, message: Sequence[Run]) -> None:
        """Runs that were released together."""
        if queue not in self.queues:
            self.queues[queue] = deque()  # lint: allow memory-has-a-bound: prefetched runs
            self.turn.append(queue)
        self.queues[queue].append(deque(message))  # lint: allow memory-has-a-bound: prefetched runs
        self._take_ahead()

    def next(self) -> Run | None:
        """Takes a slot for the next run; None when there is no slot or no run."""
        if self.free <= 0 or not self.taken:
            return None
        self.free -= 1
        run = self.taken[0].popleft()
        if not self.taken[0]:
            self.taken.popleft()
            self._take_ahead()
        return run

    def waiting(self) -> Iterator[Run]:
        for messages in (self.taken, *self.queues.values()):
            for message in messages:
                yield from message

    def _take_ahead(self) -> None:
        while self.turn and len(self.taken) < self.ahead:
            queue = self.turn.popleft()
            self.taken.append(self.queues[queue].popleft())
            if self.queues[queue]:
                self.turn.append(queue)
            else:
                del self.queues[queue]


class State:
    """All pools and stations, and the sums that span pools."""

    def __init__(self, settings: Settings, starts_at: datetime) -> None:
        self.settings = settings
        self._starts_at = starts_at
        self.tenant_buckets: dict[int, Any] = {}
        self.pools: dict[str, PoolState] = {
            pool: PoolState(pool) for pool in sorted({pool for pool, _ in settings.slots})
        }
        self.stations = {
            key: Station(slots, slots, MESSAGES_AHEAD * settings.workers_of(key))
            for key, slots in settings.slots.items()
        }
        self.held_of_tenant: Counter[int] = Counter()
        self.held_of_job: Counter[int] = Counter()
        self.held_of_flow: Counter[Flow] = Counter()
        self.alive: Counter[int] = Counter()  # by tenant
        self.serial: defaultdict[int, list[Run]] = defaultdict(list)  # live runs of schedules that count them
        self.busy_serials: set[int] = set()  # of which one is queued or running
        self.today: Counter[int] = Counter()

    def tenant(self, run: Run) -> TenantSetting:
        return self.settings.tenants[run.tenant]

    def instant(self, seconds: float) -> datetime:
        """The moment so many seconds after the window's start."""
        return self._starts_at + timedelta(seconds=seconds)

    def seconds(self, instant: datetime) -> float:
        return (instant - self._starts_at).total_seconds()

    def queue(self, run: Run) -> str:
        """The queue that it waits in, or would."""
        return self.queue_of_tenant(run.tenant, run.job.pool)

    def queue_of_tenant(self, tenant: int, pool: str) -> str:
        return self.settings.tenants[tenant].queues[pool]

    def station(self, run: Run) -> tuple[str, str]:
        return run.job.pool, self.tenant(run).group

    def hold(self, run: Run, count: int) -> None:
        """Counts a run that is queued from now on (1), or no longer held (-1)."""
        pool = self.pools[run.job.pool]
        group = self.tenant(run).group
        pool.held[run.tenant] += count
        if not pool.held[run.tenant]:
            del pool.held[run.tenant]
        pool.by_queue[self.queue(run)] += count
        pool.by_group[group] += count
        pool.by_lane[group, run.arrival.lane] += count
        self.held_of_tenant[run.tenant] += count
        self.held_of_job[run.job.id] += count
        self.held_of_flow[run.flow] += count
        if count < 0 and not self.held_of_flow[run.flow]:
            del self.held_of_flow[run.flow]  # values of keys come and go
        if run.arrival.serial is not None:
            (self.busy_serials.add if count > 0 else self.busy_serials.discard)(run.arrival.serial)
        for other in self.pools.values():
            other.touched.add(run.tenant)
