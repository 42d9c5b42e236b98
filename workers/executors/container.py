"""The container executor: one asyncio loop in a thread looks after all containers of a worker process.

What runs a container is behind `container_runtime.Runtime`. One attempt is `container_run.Run`; here is who waits, who
runs, and who looks for containers that nobody holds (`container_sweep`).
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from uuid import UUID

from kernel.clock import utc_now
from kernel.containerrules import ContainerRules
from workers.executors.base import Done, Held, Key, Ledger, Outcome, Result, Work, ended, returned
from workers.executors.bounds import bounded_error
from workers.executors.container_run import Run
from workers.executors.container_runtime import STOP_GRACE_S, Runtime, RuntimeFailed
from workers.executors.container_sweep import Alive, Sweep

log = logging.getLogger(__name__)

DEFAULT_SLOTS = 4
SWEEP_EVERY_S = 10.0
UNAVAILABLE_S = 5.0  # a runtime that could not be asked is offered no work for so long
STOP_S = 8.0  # for containers to be stopped and removed, after the grace period


class ContainerExecutor:
    """Runs works of kind `container`. See `base.Executor` for the contract of its methods.

    `alive` says which (execution, fence) of these the database still knows, running or waiting for another attempt.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        rules: ContainerRules,
        installation: str,
        alive: Alive | None = None,
        slots: int = DEFAULT_SLOTS,
        stop_grace_s: float = STOP_GRACE_S,
        sweep_every_s: float = SWEEP_EVERY_S,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._serves = True
        self._runtime, self._rules, self._installation = runtime, rules, installation
        self._stop_grace_s, self._clock = stop_grace_s, clock
        self._ledger = Ledger(slots)
        self._sweep = Sweep(runtime, installation, alive, self._ledger.keys, every_s=sweep_every_s)
        self._waiting: deque[Held] = deque()
        self._running: dict[Held, asyncio.Task[Result]] = {}
        self._unavailable_until = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="container executor", daemon=True)

    @property
    def slots(self) -> int:
        """None when there is no runtime: then no work is to come here."""
        return self._ledger.slots if self._serves else 0

    def start(self) -> None:
        self._thread.start()

    def submit(self, works: Sequence[Work], done: Done) -> None:
        entries = self._ledger.take(works, done)
        if entries is None:
            for work in works:
                done(work, returned(self._clock()))
        elif entries:
            with suppress(RuntimeError):  # the loop ended in between, and `stop` returns what is left
                self._loop.call_soon_threadsafe(self._accept, entries)

    def cancel(self, execution_id: UUID, fence: int) -> bool:
        entry = self._ledger.find(execution_id, fence)
        if entry is None:
            return False
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end_early, entry, "cancelled")
        return True

    def held(self) -> set[Key]:
        return self._ledger.keys()

    def free(self) -> int:
        away = not self._serves or time.monotonic() < self._unavailable_until
        return 0 if away else self._ledger.free()

    def stop(self, grace_s: float) -> None:
        self._ledger.close()
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._return_waiting)
            if not self._ledger.wait_empty(grace_s):
                self._loop.call_soon_threadsafe(self._return_running)
                self._ledger.wait_empty(STOP_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_S)
        for entry in self._ledger.entries():
            self._ledger.end(entry, returned(self._clock(), entry.started_at))

    # Everything below runs in the loop's thread.

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        opened = False
        try:
            self._loop.run_until_complete(self._runtime.open())
            opened = True
            sweeping = self._loop.create_task(self._sweep.run())
            self._loop.run_forever()
            sweeping.cancel()
            rest = [*self._running.values(), sweeping]
            for task in rest:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        except Exception:
            log.exception("the container runtime %s does not serve", self._runtime.name)
            self._serves = False
        finally:
            self._ledger.close()
            if opened:
                self._loop.run_until_complete(self._runtime.close())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            for entry in self._ledger.entries():  # none, unless this thread failed
                self._ledger.end(entry, returned(self._clock(), entry.started_at))

    def _accept(self, entries: list[Held]) -> None:
        self._waiting.extend(entries)
        self._run_waiting()

    def _run_waiting(self) -> None:
        while self._waiting and len(self._running) < self.slots:
            entry = self._waiting.popleft()
            entry.started_at = self._clock()
            entry.extra = run = Run(
                self._runtime, entry.work, entry.started_at, rules=self._rules, installation=self._installation,
                stop_grace_s=self._stop_grace_s, clock=self._clock,
            )  # fmt: skip
            self._running[entry] = task = self._loop.create_task(run.result())
            task.add_done_callback(partial(self._finish, entry))

    def _finish(self, entry: Held, task: asyncio.Task[Result]) -> None:
        del self._running[entry]
        if task.cancelled():
            self._end_as(entry, entry.end_as or "returned")
        elif exception := task.exception():
            if not isinstance(exception, RuntimeFailed):
                log.error("a container run failed", exc_info=exception)
            error = bounded_error("internal", f"The run failed: {type(exception).__name__}.")
            self._ledger.end(entry, ended("failed", self._clock(), entry.started_at, error=error))
        else:
            result = task.result()
            if entry.extra.unavailable:
                self._unavailable_until = time.monotonic() + UNAVAILABLE_S
            self._ledger.end(entry, result)
        self._run_waiting()

    def _end_early(self, entry: Held, outcome: Outcome) -> None:
        entry.end_as = entry.end_as or outcome
        if entry in self._running:
            entry.extra.stop(entry.end_as)
        elif entry in self._waiting:
            self._waiting.remove(entry)
            self._end_as(entry, outcome)

    def _end_as(self, entry: Held, outcome: Outcome) -> None:
        now = self._clock()
        if outcome == "cancelled":
            error = bounded_error("cancelled", "The run was cancelled.")
            self._ledger.end(entry, ended("cancelled", now, entry.started_at, error=error))
        else:
            self._ledger.end(entry, returned(now, entry.started_at))

    def _return_waiting(self) -> None:
        while self._waiting:
            self._end_as(self._waiting.popleft(), "returned")

    def _return_running(self) -> None:
        for entry in list(self._running):
            self._end_early(entry, "returned")
