"""What the rules read, and what they say. Times in seconds; counts stop at CAP. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from kernel.durations import span

CAP = 10_000
SHUT_MOST = 8  # destinations that are told; there may be more


class Process(NamedTuple):
    """A dispatcher or a worker. `silent_s` is since its lease ran out, negative while it holds."""

    id: str
    name: str
    silent_s: float
    skew_ms: int = 0
    draining: bool = False
    stale: int = 0  # late writes of it that were refused, since its start


class Slice(NamedTuple):
    """A lease: a shard to fire, or a pool to release. `unheld_s` is negative while a live dispatcher has it."""

    kind: str
    shard: int
    holder: str
    term: int
    unheld_s: float
    taken_s: float | None = None  # ago
    taken_from: str = ""
    ran_out: bool = False  # it was taken because the former holder did not renew it


class Pool(NamedTuple):
    """What waits and runs in a pool and group of workers, as the dispatchers measured it last."""

    pool: str
    group: str
    slots: int
    running: int
    queued: int
    ready: int
    held: int  # of what is ready: waits for something else than a slot
    later: int
    oldest_wait_s: float
    in_per_s: float
    out_per_s: float

    @property
    def name(self) -> str:
        return f"{self.pool} of {self.group}" if self.group else self.pool

    @property
    def waiting(self) -> int:
        """What waits for nothing but a slot: of what is ready all but what is held, and what is queued."""
        return max(0, self.ready - self.held) + self.queued


class Share(NamedTuple):
    """How much of what is due is one tenant's; without a slug, that of all tenants that are not told one by one."""

    slug: str
    due: int
    running: int


class Pause(NamedTuple):
    """What operators hold back of all tenants: a pool, or with "" all of them."""

    pool: str
    by: str
    at: datetime
    reason: str


class TenantPause(NamedTuple):
    """What operators hold back of one tenant: a pool, or with "" all its runs."""

    slug: str
    pool: str = ""


class Resumed(NamedTuple):
    """An operator's newest resume of dispatch: what had waited until then was late when it was released."""

    action: str
    by: str
    at: datetime
    tenant: str = ""  # slug, where it was one tenant's


class Failing(NamedTuple):
    """A destination whose calls fail now."""

    host: str
    failures: int
    tenants: int
    sample: str = ""


class Shut(NamedTuple):
    """A destination whose breakers are not closed."""

    host: str
    tenants: int
    since: datetime
    reason: str
    breaker: str  # id of one of them


class Spell(NamedTuple):
    """What all tenants' runs did in a stretch of time."""

    seconds: float = 300.0
    ended: int = 0
    failed: int = 0  # for good
    attempts: int = 0
    attempts_failed: int = 0
    times: int = 0  # first releases
    p50_s: float | None = None
    p99_s: float | None = None

    @property
    def failing(self) -> float | None:
        """The share of attempts that failed; None of nothing."""
        return self.attempts_failed / self.attempts if self.attempts else None


class Late(NamedTuple):
    """First releases that were later than the target, and how many of these are of tenants that limits of their own
    held back meanwhile. What held each of them is with its execution only."""

    runs: int = 0
    limited: int = 0


NO_LATE = Late()
NO_MINUTE, NO_RUNS, NO_HOUR = Spell(60.0), Spell(), Spell(3_600.0)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the platform now."""

    now: datetime
    fault: str = ""  # why nothing of this could be read, in the database's words
    took_ms: float = 0.0  # to read all this
    replica_lag_s: float | None = None
    dispatchers: tuple[Process, ...] = ()
    workers: tuple[Process, ...] = ()
    workers_live: int = 0
    slices: tuple[Slice, ...] = ()
    due: int = 0
    oldest_due_s: float = 0.0
    measured_s: float | None = None  # since the figures of pools; None: never
    stale_after_s: float = 20.0  # older figures are worth nothing
    pools: tuple[Pool, ...] = ()
    capacity: float = 0.0  # runs a minute that the slots there are get done; 0: not known
    unserved: tuple[tuple[str, int], ...] = ()  # queues that nothing consumes, with what waits in each
    shares: tuple[Share, ...] = ()
    minute: Spell = NO_MINUTE
    lately: Spell = NO_RUNS
    hour: Spell = NO_HOUR
    week_ago: Spell = NO_HOUR  # the same hour last week
    late: Late = NO_LATE  # of `lately`
    failing: tuple[Failing, ...] = ()
    shut: tuple[Shut, ...] = ()
    stale_writes: int = 0  # refused in the last five minutes
    stale_at: datetime | None = None
    pauses: tuple[Pause, ...] = ()
    tenant_pauses: int = 0  # of single tenants
    tenants_paused: tuple[TenantPause, ...] = ()  # the first of them
    resumed: Resumed | None = None  # in the time of `lately`
    next_due_at: datetime | None = None
    parked: int = 0
    parked_one: str = ""  # key of one of them
    alarms: int = 0  # of the audit trail
    unsealed: int = 0
    other_schemas: int = 0
    slots_given_up: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)  # tickets by state
    counts_most: int | None = None  # each was counted to one more than this; None: as they were measured

    @property
    def alive(self) -> list[Process]:
        """Dispatchers whose heartbeat holds."""
        return [one for one in self.dispatchers if one.silent_s < 0]

    @property
    def measured(self) -> bool:
        """Whether the figures of pools mean something."""
        return self.measured_s is not None and self.measured_s <= self.stale_after_s

    def tickets(self, *states: str, besides: int = 0) -> str:
        """How many tickets are in these states, and how much else there is: "1,204", "2,500+"."""
        found = [self.counts.get(one, 0) for one in states]
        most = self.counts_most
        if most is None or max(found) <= most:
            return counted(sum(found) + besides)
        return f"{sum(min(one, most) for one in found) + besides:,}+"


class Evidence(NamedTuple):
    """A number with its scope, its time and the page with the rows behind it."""

    what: str
    value: str
    scope: str = "all tenants"
    url: str = ""
    at: datetime | None = None  # when not now


class Remedy(NamedTuple):
    """A verb that is offered, and what it is done to."""

    verb: str
    target: str
    tenant: str = ""  # slug, for a verb in a tenant


class Verdict(NamedTuple):
    """What one rule says."""

    code: str
    tone: str
    icon: str
    sentence: str
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()


def number(count: int, one: str, many: str = "") -> str:
    """ "1 run", "2 runs", "10,000+ runs"."""
    return f"{counted(count)} {one if count == 1 else many or f'{one}s'}"


def counted(count: int) -> str:
    """ "1,204"; what was counted to CAP only is "10,000+"."""
    return f"{count:,}" if count <= CAP else f"{CAP:,}+"


def dispatchers_alive(facts: Facts) -> Evidence:
    """As several rules tell it."""
    return Evidence("Dispatchers alive", str(len(facts.alive)), "heartbeats that hold", "due/dispatcher/?live=yes")


def due_now(facts: Facts) -> Evidence:
    """As several rules tell it."""
    oldest = f"all tenants, the oldest for {span(facts.oldest_due_s)}"
    return Evidence("Due now", counted(facts.due), oldest, "due/dueentry/?due=now")
