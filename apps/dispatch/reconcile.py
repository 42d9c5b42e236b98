"""Reconcile: every wait has somebody who looks after it.

Each pass ends running tickets whose worker died or whose deadline passed (attempt `lost`, then the retry policy), ends
those that waited for too long (see `outcomes.expire`), and takes one bounded step of the rotation over everything else
that could have come apart (see `repairs`). It also sees when the database's clock goes back (see `clockwatch`), and
sums up the figures of usage (see `usage.rolling`).
"""

import logging
from collections import defaultdict
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from django.conf import settings

from apps.dispatch.clockwatch import ClockWatch
from apps.dispatch.expiry import Expiry
from apps.dispatch.keeper import Keeper
from apps.dispatch.repairs import Rotation
from apps.due import outlines
from apps.outcomes.remote import TIMED_OUT
from apps.outcomes.settle import Settlement, settle
from apps.outcomes.verdict import Report
from apps.schedules.definitions import Definition, Definitions
from apps.tickets import holding, pull_queues, workers
from apps.tickets.store import NOTHING
from apps.tickets.values import Lost as LostTicket
from apps.usage.rolling import Rolling
from kernel.clock import monotonic_s
from kernel.service import Pass
from tenants.door import Line
from tenants.registry import Registry
from tenants.work import database_now

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
KIND = "reconcile"
LOST_BATCH = 500
FORGET_EVERY_S = 30.0  # what is kept for an hour or longer
FORGET_WORKERS_S = 3_600


class Lost(NamedTuple):
    """What a look for lost attempts did, and where the next one goes on."""

    counts: dict[str, int]
    last: UUID


class ReconcileService:
    """Runs while this process holds the reconcile lease. One thread, one connection."""

    name = "reconcile"

    def __init__(self, line: Line, keeper: Keeper) -> None:
        self._line = line
        self._keeper = keeper
        self._registry = Registry(line)
        self._definitions = Definitions()
        self._expiry = Expiry()
        self._rotation = Rotation()
        self._usage = Rolling()
        self._clock = ClockWatch()
        self._forget_at = float("-inf")
        self._lost_after = NOTHING

    def run_once(self) -> Pass:
        if not self._keeper.held(KIND):
            return Pass()
        conn = self._line.fresh(visits=1)
        self._registry.refresh()
        counts, self._lost_after = end_lost(conn, self._registry, self._definitions, after=self._lost_after)
        counts |= self._clock.step(conn, self._registry)
        counts |= self._expiry.run(conn, self._registry, now=self._clock.now)
        counts |= self._usage.step(conn, now=self._clock.now)
        if not self._rotation.rests:
            for name, count in self._rotation.step(conn, self._registry).items():
                counts[name] = counts.get(name, 0) + count
        if monotonic_s() >= self._forget_at:
            workers.prune(conn, older_than_s=FORGET_WORKERS_S)
            pull_queues.forget_consumers(conn)
            outlines.prune(conn)
            self._forget_at = monotonic_s() + FORGET_EVERY_S
        full = self._lost_after != NOTHING or self._expiry.full or self._clock.busy or self._usage.full
        return Pass(counts, full=full, wait_s=settings.LEASE_LOOK_S)

    def close(self) -> None:
        self._line.close()


def end_lost(
    conn: Conn, registry: Registry, definitions: Definitions, *, after: UUID = NOTHING, tenant_id: int | None = None
) -> Lost:  # fmt: skip
    """Ends attempts, of one tenant or of all, that nobody runs any more.

    Each names the fence that was seen: a later start is not touched. Those of a tenant whose schema does not answer
    are left for the next look.
    """
    found = holding.lost(conn, limit=LOST_BATCH, grace_s=settings.WORKER_TTL_S, after=after, tenant_id=tenant_id)
    last = found[-1].started.execution_id if len(found) == LOST_BATCH else NOTHING
    if not found:
        return Lost({}, last)
    now = database_now(conn)
    items = []
    by_tenant: dict[int, list[LostTicket]] = defaultdict(list)
    for one in found:
        by_tenant[one.started.tenant_id].append(one)
    for tenant_id, of_tenant in by_tenant.items():
        tenancy = registry.get(tenant_id)
        known: dict[UUID, Definition] = {}
        if tenancy is not None:
            try:
                known = definitions.of_runs(conn, tenancy.schema, [one.started for one in of_tenant])
            except psycopg.Error as error:
                if conn.closed:
                    raise
                log.warning("%d lost attempts of tenant %s wait for it: %s", len(of_tenant), tenancy.slug, error)
                continue
        items += [_settlement(one, known.get(one.started.execution_id), now) for one in of_tenant]
    settled = settle(conn, registry, items)
    ended = len(items) - len(settled.failed)
    log.warning("ended %d lost attempts: %s", ended, dict(settled.counts))
    return Lost({"lost": ended, **{f"lost_{name}": count for name, count in settled.counts.items()}}, last)


def _settlement(one: LostTicket, definition: Definition | None, now: datetime) -> Settlement:
    outcome, name, message = _why(one)
    report = Report(outcome, one.started.started_at, now, error={"class": name, "message": message})
    return Settlement(one.started, one.worker_id, report, definition)


def _why(one: LostTicket) -> tuple[str, str, str]:
    """Outcome, class and message of the attempt that is over."""
    if one.remote and one.started.cancel_requested:
        return "lost", "cancelled", "The run was cancelled; its holder did not end it in time."
    if one.timed_out:
        return "timed_out", TIMED_OUT["class"], TIMED_OUT["message"]
    if one.remote:
        return "lost", "lease_expired", "Its holder let the lease run out without a result or a heartbeat."
    if one.overdue:
        return "lost", "deadline_passed", "The attempt's deadline passed."
    return "lost", "worker_lost", "The worker that ran it is gone."
