"""What a simulation runs with, as values: tenants with their shares and limits, jobs, slots, costs and arrivals. Pure.

Times are seconds from the beginning of the simulated window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from apps.tickets.values import LIVE
from kernel.pools import CELERY_POOLS, group_queue, own_queue, shared_queue

SHARED_QUEUES = 8
SLOTS_A_WORKER = 100


@dataclass(frozen=True, slots=True)
class TenantSetting:
    """A tenant's share and limits, with the meaning of the columns of Plan. None: no limit."""

    id: int
    slug: str
    weight: int = 1
    plan: str = ""
    own_queue: bool = True
    group: str = ""
    active: bool = True
    max_running: int | None = None
    max_live: int | None = None
    runs_per_min: int | None = None
    runs_burst: int | None = None
    max_runs_per_day: int | None = None
    reserved: Mapping[str, int] = field(default_factory=dict)  # by pool
    max_slots: Mapping[str, int] = field(default_factory=dict)  # by pool
    shared_queues: int = SHARED_QUEUES
    queues: Mapping[str, str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "queues", {pool: self._queue(pool) for pool in CELERY_POOLS})

    def queue(self, pool: str) -> str:
        """The queue that its runs of a pool wait in."""
        return self.queues[pool]

    def _queue(self, pool: str) -> str:
        if self.own_queue:
            return own_queue(pool, self.slug, self.group)
        return group_queue(pool, self.group) if self.group else shared_queue(pool, self.id % self.shared_queues)


@dataclass(frozen=True, slots=True)
class JobSetting:
    """What the release of a job's runs depends on.

    `rate` is (runs, seconds, burst); `key_max` is most at once of each value of its concurrency key.
    """

    id: int
    tenant: int
    name: str
    pool: str
    max_concurrency: int | None = None  # 0: paused
    rate: tuple[int, float, int] | None = None
    key_max: int | None = None
    max_queue_age_s: float | None = None


class Arrival(NamedTuple):
    """One run: made `at`, with what its attempts take: (run, wait, run, wait, ..., run) seconds.

    It was due `lag` seconds before. `fired` says that a dispatcher's fire step makes it, which takes its turn, and
    `delayed` that it was made long before and only waited for its time: nobody is told when that has come.
    `serial` is the schedule that counts its runs under `overlap`. `was_s` is how long it waited in reality, since due.
    """

    at: float
    job: int
    tries: tuple[float, ...]
    priority: int = 5
    lane: int = LIVE
    key: str | None = None
    fired: bool = False
    serial: int | None = None
    overlap: str = "allow"
    lag: float = 0.0
    was_s: float | None = None
    delayed: bool = False


@dataclass(frozen=True, slots=True)
class Costs:
    """What the steps of the platform take, in seconds; docs/simulate.md says where the defaults come from."""

    dispatchers: int = 1
    fire_per_s: float = 5_000.0  # one dispatcher's
    round_s: float = 0.01  # a release round that finds something
    release_s: float = 0.000_05  # and for each run in it
    look_s: float = 0.004  # a look that finds too little room for a round
    handover_s: float = 0.01  # from the commit to the start at an idle worker
    settle_s: float = 0.01  # from the end of a run until its ticket is gone
    overhead_s: float = 0.002  # of a slot for each attempt, besides the run itself

    def __post_init__(self) -> None:
        assert self.fire_per_s > 0 and self.dispatchers > 0


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a what-if may change. `slots` are by (pool, group); the shared workers' group is ""."""

    tenants: Mapping[int, TenantSetting]
    jobs: Mapping[int, JobSetting]
    slots: Mapping[tuple[str, str], int]
    costs: Costs = field(default_factory=Costs)
    prefetch: float = 2.0
    release_batch: int = 1_000
    workers: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def workers_of(self, key: tuple[str, str]) -> int:
        """Worker processes of a pool's group; guessed from its slots where it is not said."""
        return self.workers.get(key) or max(1, -(-self.slots.get(key, 0) // SLOTS_A_WORKER))


@dataclass(frozen=True, slots=True)
class Load:
    """The runs of a window, in the order of their times. What comes before `counted_from` only warms up."""

    arrivals: Sequence[Arrival]
    seconds: float
    counted_from: float = 0.0
    starts_at: datetime = datetime(2026, 1, 5, tzinfo=UTC)
    notes: tuple[str, ...] = ()  # why an answer about it may be worth little
