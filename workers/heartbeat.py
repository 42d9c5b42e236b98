"""The worker's heartbeat: its lease, cancel requests, and what the database says against what is really held."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from django.conf import settings

from apps.outcomes.settle import Pair
from apps.tickets import holding, workers
from kernel.clock import monotonic_s, utc_now
from kernel.service import Loop, Pass
from tenants.door import Line

if TYPE_CHECKING:
    from workers.runtime import Runtime

log = logging.getLogger(__name__)
LOOK_S = 0.5
COMPARE_EVERY_S = 5.0
NEAR_DEADLINE_S = 10.0
AGAIN_S = 1.0  # after an outage of the database the lease must be there before others look for it


class Heartbeat:
    """One statement renews the lease whatever runs. The last thing to stop: work outlives everything but it."""

    name = "heartbeat"

    def __init__(self, runtime: "Runtime", *, queues: Callable[[], list[str]]) -> None:
        self._runtime = runtime
        self._queues = queues
        self._line = Line("worker heartbeat")
        self._renewed_at = float("-inf")
        self._compared_at = monotonic_s()
        self._missing: set[Pair] = set()
        self._told_draining = False
        self._told_slots: dict[str, int] = {}
        self._told_queues: list[str] = []
        self._skew_ms = 0
        self.loop = Loop(self, idle_s=LOOK_S, error_max_s=AGAIN_S)

    def run_once(self) -> Pass:
        conn = self._line.get()
        counts: dict[str, int] = {}
        runtime = self._runtime
        slots = {pool: executor.slots for pool, executor in runtime.executors.items()}
        queues = self._queues()
        due = monotonic_s() - self._renewed_at >= settings.WORKER_RENEW_S or self._differs(slots, queues)
        if due or (runtime.draining and not self._told_draining):
            before = utc_now()
            started = monotonic_s()
            beat = workers.renew(
                conn, worker=runtime.id, host=runtime.host, pid=runtime.pid, version=settings.VERSION,
                slots=slots, queues=queues, group=settings.WORKER_GROUP,
                ttl_s=settings.WORKER_TTL_S, draining=runtime.draining, skew_ms=self._skew_ms,
                stats={
                    "held": len(runtime.holds()), "settled": runtime.settling.loop.totals, "ended": dict(runtime.ended),
                    "slot_s": {pool: round(seconds, 3) for pool, seconds in list(runtime.slot_s.items())},
                    "queue_per_s": runtime.queue_rates(),
                    "chosen": {"queues": settings.WORKER_QUEUES.text, "tenants": settings.WORKER_TENANTS.text},
                },
            )  # fmt: skip
            self._skew_ms = round((before - beat.now).total_seconds() * 1_000)
            runtime.drain_wanted = beat.drain_wanted
            self._renewed_at = started
            self._told_slots, self._told_queues = slots, queues
            self._told_draining = runtime.draining
            runtime.vault.prune()
        for execution_id, fence in workers.cancelled_of(conn, runtime.id):
            for executor in runtime.executors.values():
                if executor.cancel(execution_id, fence):
                    counts["cancelled"] = counts.get("cancelled", 0) + 1
        if told := runtime.progress.write(conn):
            counts["progress"] = told
        if monotonic_s() - self._compared_at >= COMPARE_EVERY_S:
            self._compare()
            self._compared_at = monotonic_s()
        return Pass(counts)

    def _differs(self, slots: dict[str, int], queues: list[str]) -> bool:
        """Whether the queues are others, or the slots a quarter off, than was told last: release should know soon."""
        told = self._told_slots
        return queues != self._told_queues or any(
            abs(count - told.get(pool, 0)) * 4 > told.get(pool, 0) for pool, count in slots.items()
        )

    def close(self) -> None:
        conn = self._line.get()
        workers.remove(conn, self._runtime.id)
        conn.close()

    def _compare(self) -> None:
        """Held only there: returned as lost (a thread that died, a child that was killed). Held only here: stopped."""
        conn = self._line.get()
        here_before = self._runtime.holds()
        there = workers.held_by(conn, self._runtime.id)
        here = self._runtime.holds() | here_before  # what came or went while we looked is not missing
        missing = set(there) - here
        lost = missing & self._missing  # twice in a row: not just on its way
        self._missing = missing - lost
        if lost:
            log.warning("%d attempts are not held here any more", len(lost))
            holding.disown(conn, sorted(lost))
            self._runtime.forget(lost)
        near = [pair for pair, left_s in there.items() if pair in here and left_s < NEAR_DEADLINE_S]
        if near:
            holding.extend(conn, sorted(near))
        for execution_id, fence in here_before - set(there) - self._runtime.settling.pending():
            for executor in self._runtime.executors.values():
                if executor.cancel(execution_id, fence):
                    log.warning("attempt %s/%d is not this worker's any more: stopped", execution_id, fence)
