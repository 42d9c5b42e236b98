"""Looks at a simulation once a second or so: who waits, what holds it back, what share of the slots it has. Pure.

Each second is looked at at another moment of it. What schedules make at the full second and what has gone 20 ms later
would else be seen in each look, or in none.
"""

import math
from collections import defaultdict
from collections.abc import Mapping

from apps.dispatch.simulation.measures import OfTenant, shares_due
from apps.dispatch.simulation.rounds import Rounds
from apps.dispatch.simulation.state import Run, State

SAMPLES_MAX = 3_600
SAMPLE_S = 1.0
GOLDEN = (math.sqrt(5) - 1) / 2  # multiples of it spread over the unit interval evenly, however many there are


class Sampler:
    """Collects figures of tenants. What lies before `counted_from` is left out."""

    def __init__(self, state: State, tenants: Mapping[int, OfTenant], *, counted_from: float, seconds: float) -> None:
        self.every_s = max(SAMPLE_S, (seconds - counted_from) / SAMPLES_MAX)
        self.busy_s: dict[tuple[str, str], float] = defaultdict(float)
        self._state, self._tenants, self._from = state, tenants, counted_from
        self._looks = 0

    def next_at(self) -> float:
        """When to look next: once in each stretch of `every_s`."""
        self._looks += 1
        return self._from + (self._looks - 1 + self._looks * GOLDEN % 1) * self.every_s

    def ran(self, run: Run, key: tuple[str, str], since: float, now: float) -> None:
        """A run held a slot for this long."""
        seconds = now - max(since, self._from)
        if seconds > 0:
            self.busy_s[key] += seconds
            self._tenants[run.tenant].slot_s += seconds

    def look(self, rounds: Rounds, now: float) -> None:
        """One sample of a pool; it stands for `every_s`."""
        if now < self._from or not self._state.pools[rounds.pool].waiting:
            return
        for group, demands in rounds.demands().items():
            due = shares_due(demands, rounds.slots(group))
            for tenant, demand in demands.items():
                if demand.wants > 0:
                    figures = self._tenants[tenant]
                    figures.contended_s += self.every_s
                    figures.got += min(demand.held, due[tenant]) * self.every_s  # what is more nobody owes it
                    figures.due += due[tenant] * self.every_s
        for tenant, reasons in rounds.reasons().items():
            held = self._tenants[tenant].held
            for code, count in reasons.items():
                held[code] += count * self.every_s
