"""How many slots a pool should have. Pure.

Little's law (Little, 1961): what arrives in a second, times how long one holds a slot, is how many slots are busy on
average. Some more keep what arrives unevenly from waiting (`utilisation`), and some more work off what waits already
(`drain_s`). What is measured is what arrives and not what is served, so that the answer does not depend on the slots
that there are: too few of them make nobody ask for fewer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp

TAU_S = 60.0  # a change in what arrives is seen by two thirds after so long
RUN_S = 1.0  # how long a run holds a slot where nobody knows


@dataclass(frozen=True, slots=True)
class Share:
    """One tenant in a pool: runs that wait for nothing but a slot, runs that hold one, the most it may hold at once."""

    waiting: int
    running: int = 0
    most: int | None = None

    @property
    def usable(self) -> int:
        """Runs that would hold a slot if there were enough of them."""
        alive = self.waiting + self.running
        return alive if self.most is None else max(self.running, min(alive, self.most))


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pool is asked for: runs that become ready in a second, seconds that one holds a slot, and who waits."""

    arrivals_per_s: float
    run_s: float
    shares: Sequence[Share] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """How a pool is sized: the part of its slots that is to be busy, and the seconds in which a backlog is to go."""

    utilisation: float = 0.8
    drain_s: float = 60.0
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """So many slots, for what arrives (`steady`) and for what waits (`backlog`), before the bounds."""

    slots: int
    steady: float
    backlog: float


@dataclass(frozen=True, slots=True)
class Rates:
    """What has been going on in a pool for about a minute, as averages that forget."""

    arrivals_per_s: float = 0.0
    ended_per_s: float = 0.0
    busy: float = 0.0  # seconds in a second that what ended had held its slot

    @property
    def run_s(self) -> float | None:
        """How long a run holds a slot; None when too little has ended to tell."""
        return self.busy / self.ended_per_s if self.ended_per_s > 1e-4 else None


def slots_wanted(demand: Demand, policy: Policy) -> Wanted:
    """How many slots there should be.

    Never fewer than runs hold now, so that nobody takes a slot away from under one, and none for runs that their
    tenant's own limit keeps waiting.
    """
    run_s = max(0.0, demand.run_s)
    running = sum(share.running for share in demand.shares)
    steady = max(float(running), demand.arrivals_per_s * run_s / policy.utilisation)
    backlog = sum(_to_drain(share, run_s, policy.drain_s) for share in demand.shares)
    wanted = max(policy.least, ceil(steady + backlog - 1e-9))
    if any(share.usable for share in demand.shares):
        wanted = max(1, wanted)
    return Wanted(wanted if policy.most is None else min(wanted, policy.most), steady, backlog)


def workers_wanted(slots: int, *, per_worker: int) -> int:
    """How many worker processes have so many slots."""
    return ceil(slots / max(1, per_worker))


def averaged(before: Rates | None, *, ended: int, grown: int, slot_s: float, elapsed_s: float) -> Rates:
    """The rates after `elapsed_s` more seconds, in which so many runs ended and so many more than before are usable.

    Those that ended had held their slots for `slot_s` in all.

    What a tenant's own limit keeps waiting has not arrived yet: slots would not help it.
    """
    elapsed_s = max(elapsed_s, 1e-3)
    now = Rates(max(0.0, (ended + grown) / elapsed_s), ended / elapsed_s, slot_s / elapsed_s)
    if before is None:
        return now
    keep = exp(-elapsed_s / TAU_S)
    return Rates(*(
        old * keep + new * (1 - keep)
        for old, new in (
            (before.arrivals_per_s, now.arrivals_per_s), (before.ended_per_s, now.ended_per_s), (before.busy, now.busy),
        )
    ))  # fmt: skip


def presses(before: bool, *, oldest_wait_s: float, after_s: float) -> bool:
    """Whether what was missed yields to live work that waits.

    From `after_s` of waiting on until it waits for less than half of that: a pool at its edge does not flap. Never with
    0.
    """
    if after_s <= 0:
        return False
    return oldest_wait_s >= (after_s / 2 if before else after_s)


def _to_drain(share: Share, run_s: float, drain_s: float) -> float:
    """Slots that work off what one tenant has waiting within `drain_s`: at most one for each run, and what it may."""
    return (share.usable - share.running) * min(1.0, run_s / drain_s)
