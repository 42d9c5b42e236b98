"""What executors with one asyncio loop in a thread share: who waits, who runs, and how works end early.

A subclass says how its thread serves, how a work is begun, how a running one is asked to stop, and what a task that
failed means. All of that happens in the loop's thread; the methods of `base.Executor` may be called from any.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from uuid import UUID

from workers.executors.base import Done, Held, Key, Ledger, Outcome, Result, Work, cancelled, ended, returned
from workers.executors.bounds import bounded_error


class LoopExecutor:
    """See `base.Executor` for the contract of its methods. `stop_s`: for works to end, after the grace period."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, name: str, slots: int, stop_s: float, clock: Callable[[], datetime]
    ) -> None:
        self._ledger = Ledger(slots)
        self._clock = clock
        self._stop_s = stop_s
        self._waiting: deque[Held] = deque()  # lint: allow memory-has-a-bound: at most one for each slot
        self._running: dict[Held, asyncio.Task[Result]] = {}
        self._loop = loop
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    @property
    def slots(self) -> int:
        return self._ledger.slots

    def start(self) -> None:
        self._thread.start()

    def submit(self, works: Sequence[Work], done: Done) -> None:
        if entries := self._ledger.take(works, done, self._clock):
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
        return self._ledger.free()

    def stop(self, grace_s: float) -> None:
        self._ledger.close()
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._return_waiting)
            if not self._ledger.wait_empty(grace_s):
                self._loop.call_soon_threadsafe(self._return_running)
                self._ledger.wait_empty(self._stop_s)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(self._stop_s)
        for entry in self._ledger.entries():
            self._ledger.end(entry, returned(self._clock(), entry.started_at))

    # Everything below runs in the loop's thread.

    def _serve(self) -> None:
        raise NotImplementedError

    def _begin(self, entry: Held) -> "asyncio.Task[Result]":
        """Starts a work that has a slot."""
        raise NotImplementedError

    def _ask_to_stop(self, entry: Held, task: "asyncio.Task[Result]") -> None:
        """A running work is to end as `entry.end_as`."""
        task.cancel()

    def _saw(self, entry: Held, exception: BaseException | None) -> str:
        """A task ended, maybe with an exception; the sentence that its error begins with."""
        raise NotImplementedError

    def _accept(self, entries: list[Held]) -> None:
        self._waiting.extend(entries)
        self._run_waiting()

    def _run_waiting(self) -> None:
        while self._waiting and len(self._running) < self.slots:
            entry = self._waiting.popleft()
            self._running[entry] = task = self._begin(entry)
            task.add_done_callback(partial(self._finish, entry))

    def _finish(self, entry: Held, task: "asyncio.Task[Result]") -> None:
        del self._running[entry]
        if task.cancelled():
            self._end_as(entry, entry.end_as or "returned")
        else:
            exception = task.exception()
            what = self._saw(entry, exception)
            if exception is None:
                self._ledger.end(entry, task.result())
            else:
                error = bounded_error("internal", f"{what} failed: {type(exception).__name__}.")
                self._ledger.end(entry, ended("failed", self._clock(), entry.started_at, error=error))
        self._run_waiting()

    def _end_early(self, entry: Held, outcome: Outcome) -> None:
        entry.end_as = entry.end_as or outcome
        if task := self._running.get(entry):
            self._ask_to_stop(entry, task)
        elif entry in self._waiting:
            self._waiting.remove(entry)
            self._end_as(entry, outcome)

    def _end_as(self, entry: Held, outcome: Outcome) -> None:
        make = cancelled if outcome == "cancelled" else returned
        self._ledger.end(entry, make(self._clock(), entry.started_at))

    def _return_waiting(self) -> None:
        while self._waiting:
            self._end_as(self._waiting.popleft(), "returned")

    def _return_running(self) -> None:
        for entry in list(self._running):
            self._end_early(entry, "returned")
