"""The settle buffer: ended attempts are collected for a few milliseconds and settled hundreds at a time.

What ended stays in memory until the database has it: an outage delays settlements, it does not lose them.
"""

import threading
from collections import Counter, deque
from typing import Any

import psycopg

from apps.outcomes.settle import Pair, Settlement, settle
from kernel.backoff import delay_s
from kernel.clock import monotonic_s
from kernel.service import Loop, Pass
from tenants.door import Line
from tenants.registry import Registry
from workers.batching import worth_s

BATCH = 500
# Bounds of what ended and is not settled: nothing more is started then, of that tenant or here at all. While the
# database is away nothing is started anyway, so these are for a tenant's schema that does not answer.
UNSETTLED_MAX_OF_TENANT = 1_000
UNSETTLED_MAX = 20_000
GATHER_S = 0.004
ENOUGH = BATCH // 4  # nobody waits for more than these
AGAIN_S = 1.0  # between tries while the database is away
AGAIN_MAX_S = 10.0  # between tries of one tenant
LOCK_TIMEOUT_MS = 500  # a batch holds the tickets of many tenants while it waits for the table of one


class SettleBuffer:
    """`add` from any thread; one thread settles.

    A tenant whose schema does not answer is settled apart from the others, later each time: they do not wait for it.
    """

    name = "settle"

    def __init__(self) -> None:
        self._line = Line("worker settle", opened=_set_lock_timeout)
        self._registry = Registry(self._line)
        self._lock = threading.Lock()
        self._waiting: deque[Settlement] = deque()  # lint: allow memory-has-a-bound: UNSETTLED_MAX and the slots
        self._apart: dict[int, _Apart] = {}
        self._unsettled: set[Pair] = set()
        self._drained = threading.Condition(self._lock)
        self._enough = threading.Event()
        self._settled_at = float("-inf")
        self.loop = Loop(self, idle_s=1.0, error_max_s=AGAIN_S)

    def add(self, item: Settlement) -> None:
        """Takes an ended attempt."""
        with self._lock:
            self._waiting.append(item)
            self._unsettled.add(item.pair)
            waiting = len(self._waiting)
        if waiting == 1:
            self.loop.wake()
        elif waiting >= ENOUGH:
            self._enough.set()

    def pending(self) -> set[Pair]:
        """Attempts that ended here and that the database may not know of yet."""
        with self._lock:
            return set(self._unsettled)

    def clogged(self) -> list[int]:
        """Tenants of which as much waits as may: start nothing of theirs."""
        with self._lock:
            return [tenant for tenant, one in self._apart.items() if len(one.items) >= UNSETTLED_MAX_OF_TENANT]

    @property
    def full(self) -> bool:
        """Whether as much waits as may: start nothing."""
        return len(self._unsettled) >= UNSETTLED_MAX

    def drain(self, timeout_s: float) -> bool:
        """Waits until everything is settled; False when time ran out."""
        with self._lock:
            return self._drained.wait_for(lambda: not self._unsettled, timeout_s)

    def run_once(self) -> Pass:
        counts: Counter[str] = Counter()
        self._gather()
        batch = self._take_together()
        if batch:
            self._settle(batch, counts)
        tenant_id = self._due_apart()
        if tenant_id is not None:
            self._settle_apart(tenant_id, counts)
        with self._lock:
            more = bool(self._waiting)
            wait_s = min((one.not_before for one in self._apart.values()), default=float("inf")) - monotonic_s()
        return Pass(dict(counts), full=more or wait_s <= 0, wait_s=max(0.0, wait_s))

    def close(self) -> None:
        self._line.close()

    def _gather(self) -> None:
        """Group commit: a little later, many at once. Where one has just been, as much later as it is worth."""
        with self._lock:
            self._enough.clear()
            first = self._waiting[0] if 0 < len(self._waiting) < ENOUGH else None
        if first is None:
            return
        worth_until_s = self._settled_at + worth_s((first.report.finished_at - first.report.started_at).total_seconds())
        self._enough.wait(max(GATHER_S, worth_until_s - monotonic_s()))

    def _take_together(self) -> list[Settlement]:
        """The next ones of tenants that answer; those of the others join what waits apart."""
        batch: list[Settlement] = []
        with self._lock:
            while self._waiting and len(batch) < BATCH:
                item = self._waiting.popleft()
                apart = self._apart.get(item.started.tenant_id)
                if apart is None:
                    batch.append(item)
                else:
                    apart.items.append(item)
        return batch

    def _due_apart(self) -> int | None:
        now = monotonic_s()
        with self._lock:
            due = {tenant: one.not_before for tenant, one in self._apart.items() if one.not_before <= now}
        return min(due, key=lambda tenant: due[tenant]) if due else None

    def _settle_apart(self, tenant_id: int, counts: "Counter[str]") -> None:
        with self._lock:
            apart = self._apart.pop(tenant_id)
            batch = [apart.items.popleft() for _ in range(min(BATCH, len(apart.items)))]
            if apart.items:
                self._waiting.extend(apart.items)
        self._settle(batch, counts, failures=apart.failures)

    def _settle(self, batch: list[Settlement], counts: "Counter[str]", *, failures: int = 0) -> None:
        try:
            self._registry.refresh()
            done = settle(self._line.fresh(), self._registry, batch)
            self._settled_at = monotonic_s()
        except Exception:
            with self._lock:
                self._waiting.extendleft(reversed(batch))
            raise
        counts.update(done.counts)
        settled = {item.pair for item in batch} - {item.pair for item in done.failed}
        with self._lock:
            self._unsettled -= settled
            for item in done.failed:
                apart = self._apart.setdefault(item.started.tenant_id, _Apart(failures + 1))
                apart.items.append(item)
            self._drained.notify_all()


class _Apart:
    """Attempts of one tenant that could not be settled, and when to try again."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.not_before = monotonic_s() + delay_s(failures, base_s=0.2, factor=2, max_s=AGAIN_MAX_S)
        self.items: deque[Settlement] = deque()  # lint: allow memory-has-a-bound: UNSETTLED_MAX_OF_TENANT and slots


def _set_lock_timeout(conn: "psycopg.Connection[Any]") -> None:
    conn.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
