"""Fire: turn due entries into executions and tickets, and move the entries on, batch by batch (see `firing`).

A batch that fails is fired per tenant (see `apart`).
"""

import logging
import math
from collections.abc import Collection
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import psycopg
from django.conf import settings

from apps.dispatch.apart import Apart
from apps.dispatch.firing import Ring, fire_batch
from apps.dispatch.keeper import Keeper
from apps.dispatch.pace import Yielding
from apps.dispatch.pressure.backlogs import Backlogs
from apps.dispatch.pressure.deferral import Deferral
from apps.due import entries
from apps.schedules import timing
from apps.schedules.timing_runs import counted
from kernel.clock import monotonic_s
from kernel.service import Pass
from tenants.door import Line
from tenants.registry import Registry

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
KIND = "fire"
LOOK_AHEAD_MAX = 50_000
CALM_S = 0.05  # after what was fired
LEARN_S = 2.0  # where something is due all the time
LOCK_TIMEOUT_MS = 400  # a batch holds the entries of many tenants while it waits for the table of one


class FireService:
    """Fires the shards that this process holds. One thread, one connection."""

    name = "fire"

    def __init__(
        self, line: Line, keeper: Keeper, *, yielding: Yielding | None = None, ring: Ring | None = None
    ) -> None:
        self._line = line
        self._ring = ring
        self._yielding = yielding or Yielding()
        self._keeper = keeper
        self._registry = Registry(line)
        self._looked_ahead_to: datetime | None = None
        self._apart = Apart()
        self._backlogs = Backlogs()
        self._deferral = Deferral(batch=settings.FIRE_BATCH)
        self._has_fired = False  # in its last pass
        self._learnt_at = float("-inf")
        self._ready: Conn | None = None
        self.backend: int | None = None  # the database's process behind the connection: whose notices come from here

    def run_once(self) -> Pass:
        shards = self._keeper.held(KIND)
        if not shards:
            return Pass()
        conn = self._line.fresh()
        if self._ready is not conn:
            conn.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
            self._ready, self.backend = conn, conn.info.backend_pid
        now, earliest = entries.peek(conn, sorted(shards))
        due = [shard for shard, at in earliest.items() if at <= now]
        if not due:
            wait_s = self._until(min(earliest.values(), default=None), now)
            if self._has_fired:  # what it has fired is released now, which goes before preparing what comes
                self._has_fired = False
                return Pass(wait_s=CALM_S if wait_s is None else min(wait_s, CALM_S))
            self._learn(conn)
            self._look_ahead(conn, sorted(shards), now)
            return Pass(wait_s=wait_s)
        if monotonic_s() - self._learnt_at > LEARN_S:
            self._learn(conn)
        terms = {shard: shards[shard] for shard in due}
        counts = self._fire(conn, due, terms, now, owed=min(earliest.values()) <= now - entries.FRESH)
        self._has_fired = True
        # Going on at once only helps when this pass got somewhere: what is locked or failing must not make it spin.
        if counts["entries"] > 0 or not self._deferral.active:
            return Pass(counts, full=counts["entries"] > 0)
        # What is held back is due all the time: what comes next must not wait for the next look at it.
        _, later = entries.peek(conn, sorted(shards), after=now)
        self._look_ahead(conn, sorted(shards), now)
        return Pass(counts, wait_s=self._until(min(later.values(), default=None), now))

    def close(self) -> None:
        self._line.close()

    def _learn(self, conn: Conn) -> None:
        """What it has to know of tenants and pools, while nothing is due."""
        self._registry.refresh()
        self._deferral.ask(conn)
        self._learnt_at = monotonic_s()

    def _rings(self, pools: Collection[str]) -> None:
        self._yielding.due_at = math.inf  # nobody makes way any longer
        if self._ring is not None:
            self._ring(pools)

    def _until(self, nearest: datetime | None, now: datetime) -> float | None:
        wait_s = None if nearest is None else (nearest - now).total_seconds()
        self._yielding.due_at = math.inf if wait_s is None else monotonic_s() + wait_s
        return wait_s

    def _fire(
        self, conn: Conn, shards: list[int], terms: dict[int, int], now: datetime, *, owed: bool
    ) -> dict[str, int]:
        batch = partial(
            fire_batch, conn, self._registry, shards, now=now, limit=settings.FIRE_BATCH,
            fired_by=lambda entry: self._keeper.signature(terms.get(entry.shard)), backlogs=self._backlogs,
            deferral=self._deferral, ring=self._rings,
        )  # fmt: skip
        avoid, deferral = self._apart.avoided(), self._deferral
        debt = deferral.looks() and owed
        not_debt = deferral.keys(now) if debt else []
        try:
            counts = batch(not_tenants=avoid, debt=debt, not_debt=not_debt)
        except psycopg.Error:
            if conn.closed:
                raise
            log.warning("a fire batch failed, firing per tenant", exc_info=True)
            with conn.transaction():
                seen = entries.lock_due(
                    conn, shards, now=now, limit=settings.FIRE_BATCH, not_tenants=avoid, debt=debt, not_debt=not_debt
                )
            counts = self._apart.fire(conn, seen, batch)
        again = self._apart.to_try_again()
        if again:
            with conn.transaction():
                seen = entries.lock_due(conn, shards, now=now, limit=settings.FIRE_BATCH, only_tenants=again)
            for name, count in self._apart.fire(conn, seen, batch).items():
                counts[name] = counts.get(name, 0) + count
        return counts

    def _look_ahead(self, conn: Conn, shards: list[int], now: datetime) -> None:
        """Reads and computes what is due in the coming seconds, so that the aligned instant is only a write."""
        until = now + timedelta(seconds=settings.LOOK_AHEAD_S)
        start = max(now, self._looked_ahead_to or now)
        if (until - start).total_seconds() < 1.0:
            return
        for entry in entries.read_due(conn, shards, after=start, until=until, limit=LOOK_AHEAD_MAX):
            if entry.kind == "schedule":
                try:
                    spec = timing.spec_from_json(entry.spec)
                    if entry.runs_done is not None:
                        spec, _ = counted(spec, nominal_at=entry.nominal_at, done=entry.runs_done)
                    timing.next_after(spec, entry.nominal_at)
                except Exception:
                    continue
        self._looked_ahead_to = until
