"""A dispatcher process: keeper, fire, one release per pool, reconcile, and the ear that wakes them."""

import logging
import sys
import threading
from collections.abc import Callable, Collection
from typing import Any

import psycopg
from django.conf import settings
from django.utils.module_loading import import_string

from apps.dispatch import auditing, fire, reconcile, release, zonedata
from apps.dispatch.auditing import SealService
from apps.dispatch.deletion import LOOK_S, DeletionService
from apps.dispatch.fanout import FanOutService
from apps.dispatch.fire import FireService
from apps.dispatch.forecast import service as forecasting
from apps.dispatch.forecast.service import ForecastService
from apps.dispatch.keeper import Keeper
from apps.dispatch.pace import Yielding
from apps.dispatch.pressure import gauges
from apps.dispatch.pressure.gauges import GaugeService
from apps.dispatch.publish import publisher
from apps.dispatch.reconcile import ReconcileService
from apps.dispatch.release import ReleaseService
from apps.dispatch.workflow_runs import WorkflowService
from apps.due.entries import CHANNEL as DUE_CHANNEL
from apps.due.leases import Slice
from apps.tickets.store import READY_CHANNEL
from kernel.clock import monotonic_s
from kernel.pools import CELERY_POOLS, POOL_NUMBER, WORKFLOW
from kernel.service import IDLE_S, Loop, Pass
from tenants.door import Line
from tenants.work import database_now

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
SWITCH_S = 0.001  # a loop whose answer has come waits no longer than so for the others' threads
LISTEN_S = 1.0  # also how long a stop may wait for this loop
KEEPER_AGAIN_S = 1.0  # after an outage of the database no shard may wait long for its lease


class Dispatcher:
    """Starts and stops the loops. `run()` blocks until `stop()` is called from a signal handler or another thread."""

    def __init__(self, *, pools: tuple[str, ...] = CELERY_POOLS) -> None:
        self.pools = pools
        self._stopping = threading.Event()
        self._loops: dict[str, Loop] = {}
        self.keeper = Keeper(wants=self._serves, progressed=self._progressed, stats=self.stats)

    def start(self) -> None:
        """Starts all loops. A database that can't be reached is waited for, with back-off."""
        sys.setswitchinterval(SWITCH_S)
        line = self.keeper.line
        yielding = Yielding()
        firing = FireService(line("fire"), self.keeper, yielding=yielding, ring=self._ring)
        self._add("fire", firing)
        for pool in self.pools:
            name = f"release {pool}"
            self._add(
                name, ReleaseService(pool, line(name), self.keeper, publisher(settings.BROKER_URL), yielding=yielding)
            )
        self._add(f"release {WORKFLOW}", WorkflowService(line(f"release {WORKFLOW}"), self.keeper))
        self._add("reconcile", ReconcileService(line("reconcile"), self.keeper))
        self._add("fanout", FanOutService(line("fanout"), self.keeper))
        self._add("gauges", GaugeService(line("gauges"), self.keeper), idle_s=gauges.EVERY_MAX_S)
        self._add("forecast", ForecastService(line("forecast"), self.keeper), idle_s=forecasting.REST_MAX_S)
        self._add("seal", SealService(line("seal"), self.keeper), idle_s=auditing.EVERY_S)
        self._add("deletion", DeletionService(line("deletion")), idle_s=LOOK_S)
        for loops in settings.DISPATCHER_LOOPS:
            for name, service, idle_s in import_string(loops)(self.keeper):
                self._add(name, service, idle_s=idle_s)
        self._add("listen", Ear(line("listen"), self._loops, rung=lambda: firing.backend))
        self._loops["keeper"] = Loop(self.keeper, error_max_s=KEEPER_AGAIN_S)
        for loop in self._loops.values():
            loop.start()
        log.info("dispatcher %s started", self.keeper.id)

    def run(self) -> None:
        """Serves until stopped."""
        self.start()
        try:
            self._stopping.wait()
        finally:
            self.close()

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        """Ends the work in hand, then gives up the leases."""
        for name, loop in self._loops.items():
            if name != "keeper":
                loop.stop()
        for name, loop in self._loops.items():
            if name != "keeper" and not loop.join(10.0):
                log.warning("%s did not end in time", name)
        keeper = self._loops.get("keeper")
        if keeper is not None:
            keeper.stop()
            keeper.join(10.0)
        log.info("dispatcher %s stopped", self.keeper.id)

    def stats(self) -> dict[str, Any]:
        """What the loops have done since the start, the CPU time of each, and how far it is behind now."""
        return {
            name: dict(loop.totals)
            | {"errors": loop.errors, "lag_ms": round(loop.lag_s * 1_000), "cpu_ms": round(loop.cpu_s * 1_000)}
            for name, loop in self._loops.items()
        }

    def _add(self, name: str, service: Any, *, idle_s: float = IDLE_S) -> None:
        self._loops[name] = Loop(service, idle_s=idle_s)

    def _ring(self, pools: Collection[str]) -> None:
        """At once, without the way through the database; other dispatchers hear of it from there."""
        for pool in pools:
            loop = self._loops.get(f"release {pool}")
            if loop is not None:
                if isinstance(loop.service, ReleaseService):
                    loop.service.rung = True
                loop.wake()

    def _serves(self, slice_: Slice) -> bool:
        kind, shard = slice_
        if kind == release.KIND:
            return shard in {POOL_NUMBER[pool] for pool in (*self.pools, WORKFLOW)}
        return kind in (fire.KIND, reconcile.KIND, auditing.KIND)

    def _progressed(self, kind: str) -> bool:
        """Whether all loops of a kind have completed a pass within the time between renewals."""
        limit = monotonic_s() - settings.LEASE_TTL_S / 2
        return all(loop.last_pass_at >= limit for name, loop in self._loops.items() if name.split()[0] == kind)


class Ear:
    """Listens for "something is due soon" and "something is ready", in a pool or, without a name, in any."""

    name = "listen"

    def __init__(self, line: Line, loops: dict[str, Loop], *, rung: Callable[[], int | None]) -> None:
        """`rung` is the database's process whose notices of what is ready have reached the loops already."""
        self._line = line
        self._loops = loops
        self._rung = rung
        self._listening_on: Conn | None = None

    def run_once(self) -> Pass:
        conn = self._line.get()
        if self._listening_on is not conn:
            conn.execute(f"LISTEN {DUE_CHANNEL}")
            conn.execute(f"LISTEN {READY_CHANNEL}")
            zonedata.check(conn, now=database_now(conn))
            self._listening_on = conn
        heard = 0
        for notice in conn.notifies(timeout=LISTEN_S, stop_after=1):
            heard += 1
            kind = "fire" if notice.channel == DUE_CHANNEL else "release"
            if kind == "release" and notice.pid == self._rung():
                continue
            wanted = f"release {notice.payload}" if kind == "release" and notice.payload else ""
            for name, loop in self._loops.items():
                if name == wanted or (not wanted and name.split()[0] == kind):
                    loop.wake()
        return Pass({"heard": heard}, full=True)

    def close(self) -> None:
        self._line.close()
