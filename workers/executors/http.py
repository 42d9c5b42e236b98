"""The HTTP executor: one asyncio loop in a thread makes all calls of a worker process.

Calls wait for other machines, so one loop holds a thousand of them. Every tenant's call has its own deadline, from
before the name lookup to the last byte, and every allow-list its own connections: a connection that one tenant may
have is never reused for another who may not.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from ssl import SSLContext, create_default_context
from uuid import UUID

import uvloop

from kernel.clock import utc_now
from workers.executors.address import NOBODY, Lookup, SystemLookup, calling
from workers.executors.base import Done, Held, Key, Ledger, Outcome, Result, Work, ended, returned
from workers.executors.bounds import bounded_error
from workers.executors.http_breaker import Breakers
from workers.executors.http_call import Caller, timed_out_error
from workers.executors.http_sessions import Sessions

DEFAULT_SLOTS = 1_000
STOP_S = 5.0  # for cancelled calls to end; they only have to close a socket


class HttpExecutor:
    """Runs works of kind `http`. See `base.Executor` for the contract of its methods."""

    def __init__(
        self,
        *,
        slots: int = DEFAULT_SLOTS,
        lookup: Lookup | None = None,
        ssl_context: SSLContext | None = None,
        make_tls: Callable[[], SSLContext] = create_default_context,  # for calls with a client certificate
        clock: Callable[[], datetime] = utc_now,
        breakers: Breakers | None = None,
    ) -> None:
        self.slots = slots
        self._ledger = Ledger(slots)
        self._clock = clock
        self._breakers = breakers
        self._sessions = Sessions(lookup or SystemLookup(), ssl_context or True, make_tls)
        self._caller = Caller(self._sessions, clock, breakers=breakers)
        self._waiting: deque[Held] = deque()
        self._running: dict[Held, asyncio.Task[Result]] = {}
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="http executor", daemon=True)

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
        return self._ledger.free()

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
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._sessions.close())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def _accept(self, entries: list[Held]) -> None:
        self._waiting.extend(entries)
        self._run_waiting()

    def _run_waiting(self) -> None:
        while self._waiting and len(self._running) < self.slots:
            entry = self._waiting.popleft()
            self._running[entry] = task = self._loop.create_task(self._attempt(entry))
            task.add_done_callback(partial(self._finish, entry))

    async def _attempt(self, entry: Held) -> Result:
        entry.started_at = started_at = self._clock()
        result: Result | None = None
        try:
            async with asyncio.timeout(entry.work.timeout_s):
                result = await self._caller.call(entry.work, started_at)
        except TimeoutError:
            result = ended("timed_out", self._clock(), started_at, error=timed_out_error(entry.work))
        finally:
            current = calling.get(NOBODY)
            if self._breakers is not None and current.passage is not None:
                self._breakers.left(current.passage, None if current.proving else result)
        return result

    def _finish(self, entry: Held, task: asyncio.Task[Result]) -> None:
        del self._running[entry]
        if task.cancelled():
            self._end_as(entry, entry.end_as or "returned")
        elif exception := task.exception():
            error = bounded_error("internal", f"The call failed: {type(exception).__name__}.")
            self._ledger.end(entry, ended("failed", self._clock(), entry.started_at, error=error))
        else:
            self._ledger.end(entry, task.result())
        self._run_waiting()

    def _end_early(self, entry: Held, outcome: Outcome) -> None:
        entry.end_as = entry.end_as or outcome
        if task := self._running.get(entry):
            task.cancel()
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
