"""The fan-out step of a dispatcher: from events to deliveries of webhooks, and looking for runs that are late.

It runs where the reconcile lease is held; should two run at once, rows decide (`apps.webhooks.fanout`). Bells say which
tenants there are to visit: one whose schema does not answer is visited later each time, and nobody waits for it.
"""

import logging
from typing import Any

import psycopg

from apps.dispatch.keeper import Keeper
from apps.dispatch.lateness import Lateness
from apps.dispatch.nearness import tell_near
from apps.due import bells
from apps.webhooks.fanout import Fanned, fan_out
from kernel.backoff import delay_s
from kernel.clock import monotonic_s
from kernel.service import Pass
from tenants.door import Line
from tenants.registry import Registry

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
LEASE_KIND = "reconcile"
BELLS = 1_000  # looked at in one pass
BUDGET_S = 1.5  # of a pass; then the next one goes on
AGAIN_MAX_S = 60.0
LOCK_TIMEOUT_MS = 400
AGAIN_S = 0.5
NEAR_EVERY_S = 2.0  # limits that come near; events have to be quicker


class FanOutService:
    """One thread, one connection."""

    name = "fanout"

    def __init__(self, line: Line, keeper: Keeper) -> None:
        self._line = line
        self._keeper = keeper
        self._registry = Registry(line)
        self._lateness = Lateness()
        self._failing: dict[int, tuple[int, float]] = {}  # tenant -> (failures in a row, not before)
        self._ready: Conn | None = None
        self._near_at = float("-inf")

    def run_once(self) -> Pass:
        if not self._keeper.held(LEASE_KIND):
            return Pass()
        conn = self._line.fresh()
        if self._ready is not conn:
            conn.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
            self._ready = conn
        self._registry.refresh()
        near = 0
        if monotonic_s() >= self._near_at:
            near = tell_near(conn, self._registry)
            self._near_at = monotonic_s() + NEAR_EVERY_S
        counts, full = self._fan_out(conn)
        if near:
            counts["near"] = near
        late = self._lateness.step(conn, self._registry)
        if late:
            counts["late"] = late
        return Pass(counts, full=full, wait_s=AGAIN_S)

    def close(self) -> None:
        self._line.close()

    def _fan_out(self, conn: Conn) -> tuple[dict[str, int], bool]:
        counts = {"events": 0, "deliveries": 0}
        waiting = tuple(tenant for tenant, (_, until) in self._failing.items() if until > monotonic_s())
        stop_at = monotonic_s() + BUDGET_S
        again = False
        for tenant_id in bells.rung(conn, limit=BELLS, not_tenants=waiting):
            if monotonic_s() >= stop_at:
                return counts, True
            done = self._tenant(conn, tenant_id)
            counts["events"] += done.events
            counts["deliveries"] += done.made + done.reopened
            again = again or done.more
        return counts, again

    def _tenant(self, conn: Conn, tenant_id: int) -> Fanned:
        tenancy = self._registry.get(tenant_id)
        if tenancy is None:  # the tenant is gone and its webhooks with it
            self._registry.refresh(force=True)
            if self._registry.get(tenant_id) is None:
                bells.drop(conn, tenant_id)
            return Fanned()
        try:
            done = fan_out(conn, tenancy)
        except psycopg.Error as error:
            if conn.closed:
                raise
            failures = self._failing.get(tenant_id, (0, 0.0))[0] + 1
            wait = delay_s(failures, base_s=0.5, factor=2, max_s=AGAIN_MAX_S)
            self._failing[tenant_id] = (failures, monotonic_s() + wait)
            log.warning("events of tenant %d can't be carried out, again in %.1f s: %s", tenant_id, wait, error)
            return Fanned()
        self._failing.pop(tenant_id, None)
        return done
