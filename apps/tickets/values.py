"""What is read from and written to the tables of what is alive, as values. Pure."""

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID, uuid5

WHOLE_TENANT = UUID(int=0)  # owner of the bucket of a tenant's own rate
LANES = LIVE, CATCH_UP, BACKFILL = 0, 1, 2  # what is in one yields to what is in those before it
LANE_OF = {"catch_up": CATCH_UP, "backfill": BACKFILL}


class Ticket(NamedTuple):
    """A new ticket, in the order of COPY. `rank` is null when it must wait for `available_at`."""

    execution_id: UUID
    tenant_id: int
    job_id: UUID
    job_version: int
    schedule_id: UUID | None
    schedule_version: int | None
    run_key: str
    trigger: str
    nominal_at: datetime | None
    actual_at: datetime
    pool: str
    queue: str
    priority: int
    timeout_s: int
    flow: UUID
    flow_limit: int | None
    key: str | None
    job_limit: int | None
    lane: int
    guarded: bool
    payload_from: str
    state: str
    available_at: datetime
    rank: datetime | None
    attempt: int
    failures: int
    start_by: datetime | None
    total_timeout_s: int | None
    followed: bool = False  # something waits for its end


class Started(NamedTuple):
    """What a worker needs of a ticket that it has just started."""

    execution_id: UUID
    tenant_id: int
    job_id: UUID
    job_version: int
    schedule_id: UUID | None
    schedule_version: int | None
    run_key: str
    trigger: str
    nominal_at: datetime | None
    payload_from: str
    attempt: int
    failures: int
    releases: int
    fence: int
    started_at: datetime
    deadline: datetime
    first_queued_at: datetime | None
    first_started_at: datetime
    cancel_requested: bool
    total_timeout_s: int | None
    actual_at: datetime
    delays: str | None = None  # JSON: what held its first release back
    followed: bool = False  # something waits for its end

    @property
    def give_up_at(self) -> datetime | None:
        """When its total time-out ends it; None without one."""
        if self.total_timeout_s is None:
            return None
        return self.first_started_at + timedelta(seconds=self.total_timeout_s)


class Lost(NamedTuple):
    """A running ticket that nobody works on any more, and what is known of why."""

    started: Started
    worker_id: UUID | None
    overdue: bool  # its deadline has passed
    remote: bool  # it was held outside
    timed_out: bool  # held outside, and its time-out is what has passed


class Current(NamedTuple):
    """What is known of a ticket that still is what runs: somebody wants it to stop; something waits for its end."""

    cancel_requested: bool
    followed: bool


class Rate(NamedTuple):
    """A token bucket as it is now: what comes back in a second, the most that there is, and what there is."""

    per_s: float
    burst: int
    tokens: float

    def after(self, seconds: float) -> "Rate":
        """As it is so many seconds later, when nobody took any."""
        return self._replace(tokens=min(float(self.burst), self.tokens + self.per_s * seconds))


def tenant_rate(per_min: int, burst: int | None) -> tuple[float, int]:
    """Refill in a second and burst of a plan's runs in a minute; without a burst of its own a sixth of them."""
    return per_min / 60, burst or max(1, per_min // 6)


class Flow(NamedTuple):
    """Ready tickets of one tenant in one lane that queue behind each other, by their head: its limits and rank."""

    tenant_id: int
    flow: UUID
    job_id: UUID
    flow_limit: int | None
    job_limit: int | None
    lane: int
    rank: datetime
    rated: bool = False  # its job has a rate


class Wanted(NamedTuple):
    """So many of a flow's best tickets that may go, of those whose rank is in this window."""

    flow: Flow
    most: int
    after: datetime
    until: datetime


class Candidate(NamedTuple):
    """A ready ticket that may be released."""

    execution_id: UUID
    tenant_id: int
    flow: UUID
    job_id: UUID
    queue: str
    rank: datetime
    actual_at: datetime
    available_at: datetime
    serial: UUID | None  # its schedule, when that runs one at a time
    first: bool = True  # whether it was never released before


class InFlight(NamedTuple):
    """So many tickets of a flow are queued or running in a pool, some of these running. Outside is no queue, ""."""

    tenant_id: int
    queue: str
    lane: int
    flow: UUID
    job_id: UUID
    tickets: int
    running: int


class HoldRow(NamedTuple):
    """What holds a tenant back in a pool, or one flow of it, and from when to when that was seen."""

    tenant_id: int
    flow: UUID | None
    code: str
    since: datetime
    seen_at: datetime
    limit: int | None
    use: int | None


class Replaced(NamedTuple):
    """A ticket that was taken away because a newer run of its schedule takes its place."""

    tenant_id: int
    execution_id: UUID
    attempt: int
    first_queued_at: datetime | None
    first_started_at: datetime | None
    followed: bool


class Overdue(NamedTuple):
    """A ticket that was taken away because it waited past its `start_by`; it has a first start when it was tried."""

    tenant_id: int
    execution_id: UUID
    job_id: UUID
    schedule_id: UUID | None
    run_key: str
    trigger: str
    state: str
    attempt: int
    nominal_at: datetime | None
    actual_at: datetime
    start_by: datetime
    total_timeout_s: int | None
    first_queued_at: datetime | None
    first_started_at: datetime | None
    pool: str
    flow: UUID
    available_at: datetime
    delays: str | None
    followed: bool


class LiveWorker(NamedTuple):
    """A worker whose lease is valid: the slots it has in a pool and the queues it listens to."""

    id: UUID
    slots: int
    queues: list[str]
    group: str = ""


def flow_of(job_id: UUID, key: str) -> UUID:
    """What runs of a job queue in that have this value of its concurrency key."""
    return uuid5(job_id, key)


def lane_of(trigger: str) -> int:
    """Runs that make up for what was missed yield to live ones."""
    return LANE_OF.get(trigger, LIVE)


def start_by(actual_at: datetime, max_queue_age_s: int | None, *, tried: bool = False) -> datetime | None:
    """Until when a run may start for the first time: its queue age counts from its actual instant.

    None without a limit, and for what was `tried` before: it has had its first start.
    """
    if max_queue_age_s is None or tried:
        return None
    return actual_at + timedelta(seconds=max_queue_age_s)
