"""What fire knows of tenants' unfinished executions: counted at most every KEPT_S each, and where there is a bound.

Several dispatchers and the API make runs meanwhile: what is held here is a bound of some seconds ago, not a lock. A
tenant may get past its max_live by what its schedules fire in that time.
"""

from collections.abc import Callable, Mapping
from typing import Any

import psycopg

from apps.usage.admitting import live_of_tenants
from kernel.clock import monotonic_s

Conn = psycopg.Connection[Any]
KEPT_S = 2.0
REMEMBERED = 10_000  # tenants; more are counted in each batch


class Backlogs:
    """For one thread."""

    def __init__(self, *, clock: Callable[[], float] = monotonic_s) -> None:
        self._clock = clock
        self._known: dict[int, tuple[int, float]] = {}  # tenant -> (live, counted at)

    def room(self, conn: Conn, most: Mapping[int, int]) -> dict[int, int]:
        """How many more executions each of these tenants may have, which is not below 0."""
        now = self._clock()
        old = {
            tenant: limit
            for tenant, limit in most.items()
            if tenant not in self._known or now - self._known[tenant][1] >= KEPT_S
        }
        if len(self._known) + len(old) > REMEMBERED:
            self._known = {tenant: known for tenant, known in self._known.items() if tenant in most}
        if old:
            # The limit and one: that there are more than the limit says is known then, and that there is room is exact.
            counted = live_of_tenants(conn, {tenant: limit + 1 for tenant, limit in old.items()})
            self._known |= {tenant: (live, now) for tenant, live in counted.items()}
        return {tenant: max(0, limit - self._known[tenant][0]) for tenant, limit in most.items()}

    def add(self, made: Mapping[int, int]) -> None:
        """So many more were made; called when they are committed."""
        for tenant, count in made.items():
            if tenant in self._known:
                live, at = self._known[tenant]
                self._known[tenant] = (live + count, at)
