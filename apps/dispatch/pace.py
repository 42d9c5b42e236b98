"""How often a pool's release looks, and when it waits to have more to release at once. Pure; simulation keeps to it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# While workers are busy a pass waits until a good part of their room is free: few large messages, not many small ones.
REFILL_SHARE = 0.25
REFILL_WAIT_S = 0.1
KEPT_PART = 3  # for so many places before the workers there is one more for newcomers
LOOK_REST = 5  # looks for newcomers take one part of the time, and the rest these
LOOKS_AHEAD_S = 0.5  # of rests that may be owed: looks are close to each other where something comes, and then rare
BUSY_WAIT_S = 0.02  # at least, between looks at workers, jobs or tenants that have no room
NEW_AGAIN_S = 1.0  # who waits and has held nothing for so long counts as new once more
YIELD_BEFORE_S = 0.03  # a refill begins no later than so long before an instant at which something is due
YIELD_AFTER_S = 0.06  # for fire to have made what is due, at most
LOOK_BEFORE_S = 0.005  # so long before it, until fire has made it, a busy pool is not even looked at
YIELD_REST_S = 0.5  # where something is due all the time, one refill in so long yields


def waits_for_more(*, free: int, capacity: int, since_release_s: float) -> bool:
    """Whether a pass that could release `free` runs of a pool's `capacity` rather waits."""
    return free <= 0 or (since_release_s < REFILL_WAIT_S and free < capacity * REFILL_SHARE)


def look_again_s(*, free: int, free_before: int, capacity: int, since_release_s: float) -> float:
    """When to look again after a look that rather waited, in seconds: when enough places are free, at the present rate.

    `free_before` is what the last release left free. Where no place becomes free, runs are long: looks become rarer.
    """
    rate = (free - free_before) / since_release_s if since_release_s > 0 else 0.0
    if rate > 0:
        until_s = min((capacity * REFILL_SHARE - free) / rate, REFILL_WAIT_S - since_release_s)
    else:
        until_s = since_release_s / 4
    return max(BUSY_WAIT_S, min(REFILL_WAIT_S, until_s))


def kept_for_newcomers(*, capacity: int, slots: int) -> int:
    """Places beyond a group's capacity for those who have nothing there yet: a flood holds all the others."""
    return -(-max(0, capacity - slots) // KEPT_PART)


@dataclass(slots=True)
class Newcomers:
    """Who has something ready that had nothing at the last pass: they do not wait until others leave room.

    Nor do they starve who waits all the time and gets nothing: such a one counts as new again. Times are of one
    monotonic clock, in seconds; what is held is by tenant.
    """

    new: set[int] = field(default_factory=set)  # of this pass
    _again: set[int] = field(default_factory=set)  # those of them that waited before
    _waited: dict[int, float] = field(default_factory=dict)  # since when with nothing held, or since it last was new
    put_off: bool = False  # this pass was theirs alone, though all could have been served
    _rested_at: float = float("-inf")  # when all looks so far have had their rests

    def passed(self, waits: Iterable[int], *, held: Mapping[int, int], at: float) -> None:
        """A pass is about to serve these."""
        now = set(waits)
        self.new = {one for one in now if self._is_new(one, held, at)}
        self._again = self.new & self._waited.keys()
        self._waited = {one: at if one in self.new or held.get(one, 0) else self._waited[one] for one in now}

    def may_go(self, left: Mapping[int, float]) -> None:
        """So much of each tenant may go by its own limits. Who is held back by these is no newcomer."""
        self.new = {one for one in self.new if left.get(one, 0) >= 1}

    def go_alone(self, *, early: bool, held: Mapping[int, int], others: bool) -> bool:
        """Whether this pass serves only those of them that hold nothing (`held`, by tenant).

        One that comes early does. So does another one in a busy pool where `others` wait: choosing for those takes
        longer, and their turn comes at once, in the next pass. Who waited before needs no pass that puts off a refill.
        """
        empty = {one for one in self.new if not held.get(one, 0)}
        puts_off = others and not self.put_off and any(held.values()) and not empty <= self._again
        alone = bool(empty) and (early or puts_off)
        self.put_off = alone and not early
        return alone

    def rests_s(self, at: float) -> float:
        """Seconds until the next look, or 0: looks take a small part of the time, however many tenants there are."""
        return max(0.0, self._rested_at - LOOKS_AHEAD_S - at)

    def looked(self, waits: Iterable[int], *, held: Mapping[int, int], begun: float, ended: float) -> bool:
        """Whether one of those that wait is new."""
        now = set(waits)
        new = any(self._is_new(one, held, begun) for one in now)
        self._waited = {one: begun if held.get(one, 0) else since for one, since in self._waited.items() if one in now}
        self._rested_at = max(self._rested_at, ended) + LOOK_REST * (ended - begun)
        return new

    def _is_new(self, one: int, held: Mapping[int, int], at: float) -> bool:
        since = self._waited.get(one)
        return since is None or (at - since >= NEW_AGAIN_S and not held.get(one, 0))


@dataclass(slots=True)
class Yielding:
    """Refills make way for what is due in a moment: workers have enough in hand, and what comes would wait for them.

    Fire says when something is due next; the pools of its process ask. Times are of one monotonic clock, in seconds.
    """

    due_at: float = math.inf
    _since: float = -math.inf  # when a refill last began to yield

    def wait_s(self, at: float) -> float:
        """How long a refill that would begin now makes way; 0 for not at all."""
        until = self.due_at + YIELD_AFTER_S
        if not self.due_at - YIELD_BEFORE_S <= at < until:
            return 0.0
        if at - self._since >= YIELD_REST_S:
            self._since = at
        return until - at if at - self._since < YIELD_BEFORE_S + YIELD_AFTER_S else 0.0

    def is_near(self, at: float) -> bool:
        """Whether fire is at work or about to be, so that a look would only be in its way."""
        return self.due_at - LOOK_BEFORE_S <= at and self.wait_s(at) > 0
