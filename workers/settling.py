"""The settle buffer: ended attempts are collected for a few milliseconds and settled hundreds at a time.

What ended stays in memory until the database has it: an outage delays settlements, it does not lose them.
"""

import logging
import threading
from collections import deque

import psycopg

from apps.outcomes.settle import Pair, Settlement, settle
from kernel.backoff import delay_s
from kernel.service import Loop, Pass
from tenants.door import Line
from tenants.registry import Registry

log = logging.getLogger(__name__)
BATCH = 500
GATHER_S = 0.004
AGAIN_MAX_S = 10.0


class SettleBuffer:
    """`add` from any thread; one thread settles."""

    name = "settle"

    def __init__(self) -> None:
        self._line = Line("worker settle")
        self._registry = Registry(self._line)
        self._lock = threading.Lock()
        self._waiting: deque[Settlement] = deque()
        self._unsettled: set[Pair] = set()
        self._failures = 0
        self._drained = threading.Condition(self._lock)
        self.loop = Loop(self, idle_s=1.0)

    def add(self, item: Settlement) -> None:
        """Takes an ended attempt."""
        with self._lock:
            self._waiting.append(item)
            self._unsettled.add(item.pair)
        self.loop.wake()

    def pending(self) -> set[Pair]:
        """Attempts that ended here and that the database may not know of yet."""
        with self._lock:
            return set(self._unsettled)

    def drain(self, timeout_s: float) -> bool:
        """Waits until everything is settled; False when time ran out."""
        with self._lock:
            return self._drained.wait_for(lambda: not self._unsettled, timeout_s)

    def run_once(self) -> Pass:
        with self._lock:
            first = not self._waiting
            few = len(self._waiting) < BATCH // 4
        if first:
            return Pass()
        if few:
            threading.Event().wait(GATHER_S)  # group commit: a little later, many at once
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
        try:
            self._registry.refresh()
            done = settle(self._line.get(), self._registry, batch)
        except psycopg.Error:
            self._put_back(batch)
            raise
        except Exception:
            log.exception("a batch of %d settlements failed", len(batch))
            self._put_back(batch)
            raise
        settled = {item.pair for item in batch} - {item.pair for item in done.failed}
        with self._lock:
            self._unsettled -= settled
            self._waiting.extend(done.failed)
            self._drained.notify_all()
            more = bool(self._waiting)
        if done.failed:
            self._failures += 1
            return Pass(dict(done.counts), wait_s=delay_s(self._failures, base_s=0.2, factor=2, max_s=AGAIN_MAX_S))
        self._failures = 0
        return Pass(dict(done.counts), full=more)

    def close(self) -> None:
        self._line.close()

    def _put_back(self, batch: list[Settlement]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(batch))
