"""Expiry: a part of each reconcile pass, so that nothing waits longer than its owner said, in any pool.

One look at a partial index of the tickets that have such a limit; a tenant's schema is visited only when a run of it
ends. A tenant whose schema does not answer is tried alone, later each time; the others do not wait for it.
"""

import logging
from datetime import datetime
from typing import Any

import psycopg

from apps.outcomes.expire import expire_batch
from apps.tickets import overdue
from kernel.backoff import delay_s
from kernel.clock import monotonic_s
from tenants.registry import Registry

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
EXPIRE_BATCH = 500
AGAIN_MAX_S = 60.0
BUDGET_S = 1.5  # then the next pass goes on: a lease is only renewed for a loop that completes its passes


class Expiry:
    """Remembers which tenants fail. For one thread."""

    def __init__(self) -> None:
        self.full = False  # whether the last run left some
        self._failing: dict[int, tuple[int, float]] = {}  # tenant -> (failures in a row, not before)

    def run(self, conn: Conn, registry: Registry, *, now: datetime) -> dict[str, int]:
        """One bounded batch; raises only when the connection is lost."""
        if not self._failing and not overdue.any_overdue(conn, now=now):
            self.full = False
            return {}
        avoid = list(self._failing)
        try:
            counts = expire_batch(conn, registry, now=now, limit=EXPIRE_BATCH, not_tenants=avoid)
        except psycopg.Error:
            if conn.closed:
                raise
            log.warning("an expiry batch failed, going on per tenant", exc_info=True)
            counts = self._alone(
                conn, registry, overdue.tenants_of(conn, now=now, limit=EXPIRE_BATCH, not_tenants=avoid), now
            )
        again = [tenant_id for tenant_id, (_, until) in self._failing.items() if until <= monotonic_s()]
        for name, count in self._alone(conn, registry, again, now).items():
            counts[name] = counts.get(name, 0) + count
        self.full = sum(counts.values()) >= EXPIRE_BATCH
        return {name: count for name, count in counts.items() if count}

    def _alone(self, conn: Conn, registry: Registry, tenants: list[int], now: datetime) -> dict[str, int]:
        total: dict[str, int] = {}
        stop_at = monotonic_s() + BUDGET_S
        for tenant_id in tenants:
            if monotonic_s() >= stop_at:
                break
            try:
                counts = expire_batch(conn, registry, now=now, limit=EXPIRE_BATCH, only_tenants=[tenant_id])
            except psycopg.Error as error:
                if conn.closed:
                    raise
                failures = self._failing.get(tenant_id, (0, 0.0))[0] + 1
                wait = delay_s(failures, base_s=0.5, factor=2, max_s=AGAIN_MAX_S)
                self._failing[tenant_id] = (failures, monotonic_s() + wait)
                log.warning("runs of tenant %d can't be ended, again in %.1f s: %s", tenant_id, wait, error)
                continue
            self._failing.pop(tenant_id, None)
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
        return total
