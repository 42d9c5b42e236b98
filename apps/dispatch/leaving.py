"""Queues that workers have left: a tenant moved, its group was given up, it is gone.

What was queued there goes back to ready as soon as no live worker listens, and is released to the queue of today; the
queue itself is taken from the broker once nothing is queued on it. Its messages are doorbells of old release numbers.
"""

import logging
from typing import Any

import psycopg

from apps.dispatch.publish import Publisher
from apps.tickets import served
from apps.tickets.values import LiveWorker
from kernel.clock import monotonic_s

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
CLEAN_EVERY_S = 30.0
CLEAN_BATCH = 500


class Leaving:
    """For whoever releases a pool, while it holds the pool's lease. One thread."""

    def __init__(self, pool: str, publisher: Publisher) -> None:
        self._pool = pool
        self._publisher = publisher
        self._clean_at = float("-inf")

    def step(self, conn: Conn, live: list[LiveWorker], *, limit: int) -> dict[str, int]:
        """Puts back what waits where nobody listens, and `clean`."""
        listened = {queue for worker in live for queue in worker.queues}
        back = served.put_back(conn, self._pool, served=listened, limit=limit)
        if back:
            log.info(
                "%d queued tickets of pool %s were put back: no worker listens to their queues", len(back), self._pool
            )
        return {"unserved": len(back), **self.clean(conn)}

    def clean(self, conn: Conn) -> dict[str, int]:
        """Now and then takes queues that were left from the broker."""
        if monotonic_s() < self._clean_at:
            return {}
        self._clean_at = monotonic_s() + CLEAN_EVERY_S  # first: a broker that is away must not stop every pass
        return {"queues_left": self._clean(conn)}

    def _clean(self, conn: Conn) -> int:
        served.remember(conn, self._pool)
        names = served.left(conn, self._pool, limit=CLEAN_BATCH)
        if names:
            self._publisher.drop(names)
            served.forget(conn, names)
        return len(names)
