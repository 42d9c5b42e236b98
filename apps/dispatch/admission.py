"""Who may go now, and what holds the others back: one ordered list of predicates over values. Pure.

Release asks it for the head of each flow, leases from pull queues ask it, `explain` asks it for one execution, and the
simulation for its made-up ones: a rule exists here once. Each predicate says how many more may go as far as it is
concerned. The first that says none is what holds back; the least of all is how many may go.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from apps.tickets.values import Rate

Level = Literal["tenant", "job", "key", "run", "pool"]


class Room(NamedTuple):
    """How many more may go; with its limit and use where it has some, and when it is expected to have room."""

    most: float = math.inf
    limit: float | None = None
    use: float | None = None
    clears_at: datetime | None = None


OPEN = Room()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a run that waits, or of the head of a flow. What is left out holds nothing back."""

    now: datetime
    tenant_active: bool = True
    platform_paused: bool = False
    dispatch_paused: bool = False
    pool_paused: bool = False  # by operators, for all tenants or for this one
    schedule_paused: bool = False
    job_limit: int | None = None  # 0: the job is paused
    queue_paused: bool = False
    available_at: datetime | None = None
    start_by: datetime | None = None
    blocked_by: int = 0  # runs of its workflow that have to end first
    overlap_busy: bool = False  # another run of its schedule is queued or running, and its policy is not "allow"
    job_use: int = 0  # queued or running
    tenant_use: int = 0
    max_running: int | None = None
    pool_use: int = 0  # of this tenant in this pool
    max_slots: int | None = None
    key_use: int = 0
    flow_limit: int | None = None
    tenant_rate: Rate | None = None
    job_rate: Rate | None = None
    runs_today: int = 0
    max_runs_per_day: int | None = None
    breaker_until: datetime | None = None  # open until then
    breaker_open: bool = False
    pool_slots: int | None = None  # of live workers that serve its queue; None: it needs none of ours
    queue_room: int | None = None  # what these can still take, ahead of their slots
    fair: int | None = None  # what its share of this pass leaves; None: nobody shares
    run_s: float | None = None  # how long such runs usually take


@dataclass(frozen=True, slots=True)
class Predicate:
    """One rule. `level` says whose limit it is."""

    code: str
    level: Level
    room: Callable[[Facts], Room]


class Refusal(NamedTuple):
    """What holds a run back."""

    code: str
    level: Level
    limit: float | None
    use: float | None
    clears_at: datetime | None


def refusal(facts: Facts) -> Refusal | None:
    """The first predicate that lets nothing go; None when one may go."""
    for predicate, room in checks(facts):
        if room.most < 1:
            return Refusal(predicate.code, predicate.level, room.limit, room.use, room.clears_at)
    return None


def most(facts: Facts) -> float:
    """How many may go: a whole number, or infinity."""
    return max(0, min(room.most for _, room in checks(facts)))


def rooms(facts: Facts) -> dict[Level, float]:
    """How many may go as far as each level is concerned: what several share of a level they share of its room."""
    least: dict[Level, float] = dict.fromkeys(("tenant", "job", "key", "run", "pool"), math.inf)
    for predicate, room in checks(facts):
        least[predicate.level] = max(0, min(least[predicate.level], room.most))
    return least


def checks(facts: Facts) -> Iterator[tuple[Predicate, Room]]:
    """All predicates with what they say, in order."""
    return ((predicate, predicate.room(facts)) for predicate in ADMISSION)


def _open_if(is_open: bool, clears_at: datetime | None = None) -> Room:
    return OPEN if is_open else Room(0, clears_at=clears_at)


def _within(limit: int | None, use: int, facts: Facts) -> Room:
    if limit is None:
        return OPEN
    left = max(0, limit - use)
    return Room(left, limit, use, None if left else _one_ends_at(facts, use))


def _one_ends_at(facts: Facts, use: int) -> datetime | None:
    """Runs that began at any time end evenly: one of so many after that part of a run."""
    return None if facts.run_s is None or use <= 0 else facts.now + timedelta(seconds=facts.run_s / use)


def _tokens(rate: Rate | None, facts: Facts) -> Room:
    if rate is None:
        return OPEN
    whole = max(0, math.floor(rate.tokens))
    clears_at = None if whole else facts.now + timedelta(seconds=(1 - rate.tokens) / rate.per_s)
    return Room(whole, rate.burst, rate.burst - whole, clears_at)


def _day_ends_at(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def _not_yet_due(facts: Facts) -> Room:
    return _open_if(facts.available_at is None or facts.available_at <= facts.now, facts.available_at)


def _daily_quota(facts: Facts) -> Room:
    room = _within(facts.max_runs_per_day, facts.runs_today, facts)
    return room if room.most else room._replace(clears_at=_day_ends_at(facts.now))


def _pool_full(facts: Facts) -> Room:
    if facts.queue_room is None:
        return OPEN
    left, slots = max(0, facts.queue_room), facts.pool_slots
    use = None if slots is None else slots - facts.queue_room
    return Room(left, slots, use, None if left or not slots else _one_ends_at(facts, slots))


ADMISSION: tuple[Predicate, ...] = (
    Predicate("tenant_inactive", "tenant", lambda facts: _open_if(facts.tenant_active)),
    Predicate("platform_paused", "tenant", lambda facts: _open_if(not facts.platform_paused)),
    Predicate("dispatch_paused", "tenant", lambda facts: _open_if(not facts.dispatch_paused)),
    Predicate("pool_paused", "tenant", lambda facts: _open_if(not facts.pool_paused)),
    Predicate("schedule_paused", "run", lambda facts: _open_if(not facts.schedule_paused)),
    Predicate("job_paused", "job", lambda facts: _open_if(facts.job_limit != 0)),
    Predicate("queue_paused", "pool", lambda facts: _open_if(not facts.queue_paused)),
    Predicate("not_yet_due", "run", _not_yet_due),
    Predicate("expired", "run", lambda facts: _open_if(facts.start_by is None or facts.start_by >= facts.now)),
    Predicate("workflow_blocked", "run", lambda facts: _open_if(not facts.blocked_by)),
    Predicate("overlap", "run", lambda facts: _open_if(not facts.overlap_busy)),
    Predicate("job_concurrency", "job", lambda facts: _within(facts.job_limit, facts.job_use, facts)),
    Predicate("tenant_concurrency", "tenant", lambda facts: _within(facts.max_running, facts.tenant_use, facts)),
    Predicate("pool_maximum", "tenant", lambda facts: _within(facts.max_slots, facts.pool_use, facts)),
    Predicate("concurrency_key", "key", lambda facts: _within(facts.flow_limit, facts.key_use, facts)),
    Predicate("tenant_rate", "tenant", lambda facts: _tokens(facts.tenant_rate, facts)),
    Predicate("job_rate", "job", lambda facts: _tokens(facts.job_rate, facts)),
    Predicate("daily_quota", "tenant", _daily_quota),
    Predicate("breaker_open", "job", lambda facts: _open_if(not facts.breaker_open, facts.breaker_until)),
    Predicate("no_workers", "pool", lambda facts: _open_if(facts.pool_slots != 0)),
    Predicate("pool_full", "pool", _pool_full),
    Predicate("fair_share", "pool", lambda facts: OPEN if facts.fair is None else Room(max(0, facts.fair))),
)
CODES = tuple(predicate.code for predicate in ADMISSION)
