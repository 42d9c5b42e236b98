"""The HTTP executor: one asyncio loop in a thread makes all calls of a worker process.

Calls wait for other machines, so one loop holds a thousand of them. Every tenant's call has its own deadline, from
before the name lookup to the last byte, and every allow-list its own connections: a connection that one tenant may
have is never reused for another who may not.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from ssl import SSLContext, create_default_context

import uvloop

from kernel.clock import utc_now
from workers.executors.address import NOBODY, Lookup, SystemLookup, calling
from workers.executors.base import Held, Result, ended
from workers.executors.http_breaker import Breakers
from workers.executors.http_call import Caller, timed_out_error
from workers.executors.http_sessions import Sessions
from workers.executors.loops import LoopExecutor

DEFAULT_SLOTS = 1_000
STOP_S = 5.0  # for cancelled calls to end; they only have to close a socket


class HttpExecutor(LoopExecutor):
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
        loop = uvloop.new_event_loop()
        super().__init__(loop, name="http executor", slots=slots, stop_s=STOP_S, clock=clock)
        self._breakers = breakers
        self._sessions = Sessions(lookup or SystemLookup(), ssl_context or True, make_tls)
        self._caller = Caller(self._sessions, clock, breakers=breakers)

    # Everything below runs in the loop's thread.

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._sessions.close())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def _begin(self, entry: Held) -> asyncio.Task[Result]:
        return self._loop.create_task(self._attempt(entry))

    def _saw(self, entry: Held, exception: BaseException | None) -> str:
        return "The call"

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
