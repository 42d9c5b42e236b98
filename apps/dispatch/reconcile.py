"""Reconcile: every wait has somebody who looks after it.

Each pass ends running tickets whose worker died or whose deadline passed (attempt `lost`, then the retry policy), and
takes one bounded step of the rotation over everything else that could have come apart (see `repairs`).
"""

import logging
from typing import Any

import psycopg
from django.conf import settings

from apps.dispatch.keeper import Keeper
from apps.dispatch.repairs import Rotation
from apps.outcomes.settle import Settlement, settle
from apps.outcomes.verdict import Report
from apps.schedules.definitions import Definitions
from apps.tickets import store, workers
from kernel.clock import monotonic_s
from kernel.service import Pass
from tenants.door import Line
from tenants.registry import Registry

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
KIND = "reconcile"
LOST_BATCH = 500
ROTATE_EVERY_S = 1.0
FORGET_WORKERS_S = 3_600


class ReconcileService:
    """Runs while this process holds the reconcile lease. One thread, one connection."""

    name = "reconcile"

    def __init__(self, line: Line, keeper: Keeper) -> None:
        self._line = line
        self._keeper = keeper
        self._registry = Registry(line)
        self._definitions = Definitions()
        self._rotation = Rotation()
        self._rotate_at = float("-inf")

    def run_once(self) -> Pass:
        if not self._keeper.held(KIND):
            return Pass()
        conn = self._line.get()
        self._registry.refresh()
        counts = end_lost(conn, self._registry, self._definitions)
        if monotonic_s() >= self._rotate_at:
            for name, count in self._rotation.step(conn, self._registry).items():
                counts[name] = counts.get(name, 0) + count
            workers.prune(conn, older_than_s=FORGET_WORKERS_S)
            self._rotate_at = monotonic_s() + ROTATE_EVERY_S
        return Pass(counts, full=counts.get("lost", 0) >= LOST_BATCH, wait_s=settings.LEASE_LOOK_S)

    def close(self) -> None:
        self._line.close()


def end_lost(conn: Conn, registry: Registry, definitions: Definitions) -> dict[str, int]:
    """Ends attempts that nobody runs any more. Each names the fence that was seen: a later start is not touched."""
    found = store.lost(conn, limit=LOST_BATCH)
    if not found:
        return {}
    row = conn.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    items = []
    for started, worker_id, overdue in found:
        tenancy = registry.get(started.tenant_id)
        definition = None
        if tenancy is not None:
            key = (started.job_id, started.job_version)
            try:
                definition = definitions.jobs(conn, tenancy.schema, [key]).get(key)
            except psycopg.errors.UndefinedTable:
                log.warning("tenant %s has no schema", tenancy.slug)
        message = "The attempt's deadline passed." if overdue else "The worker that ran it is gone."
        error = {"class": "deadline_passed" if overdue else "worker_lost", "message": message}
        report = Report("lost", started.started_at, row[0], error=error)
        items.append(Settlement(started, worker_id, report, definition))
    settled = settle(conn, registry, items)
    log.warning("ended %d lost attempts: %s", len(items), dict(settled.counts))
    return {"lost": len(items), **{f"lost_{name}": count for name, count in settled.counts.items()}}
