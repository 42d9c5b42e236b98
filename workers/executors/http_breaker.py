"""Circuit breakers as the HTTP executor sees them: whom not to call now, and what calls say about whom they called.

A breaker is for one tenant and one destination (host:port). It opens when many calls in a short time fail in a way that
says the destination is in trouble: no connection, no answer, a time-out, a status from 500 on. While it is open, runs
are handed back without using up an attempt. After a while one call in all processes may try (half open): its end closes
the breaker or keeps it open for longer. What is known here comes from the desk, which shares it with other processes.
"""

import asyncio
import random
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from kernel.breaking import FailureWindows
from kernel.clock import monotonic_s
from workers.executors.base import Result

Key = tuple[int, str]  # tenant, destination

DESK_ANSWERS_S = 2.0  # for the question whether this call may try
TRIED_BY_OTHERS_S = 5.0  # until a run that finds another call trying is looked at again
WAIT_MIN_S = 1.0
SPREAD = 0.25  # runs come back over a quarter more of the time, not all at once
TROUBLE = frozenset(
    {"connect_failed", "connect_timeout", "connection_lost", "dns_failed", "tls_failed", "bad_response", "timeout"}
)


@dataclass(frozen=True, slots=True)
class Shut:
    """A breaker that is not closed. `until_s` is monotonic: before that nobody may try."""

    until_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A call that may be made; with a token it is the one that tries."""

    key: Key
    token: UUID | None = None


class Deferred(Exception):
    """The call is not to be made now."""

    def __init__(self, destination: str, wait_s: float, reason: str) -> None:
        super().__init__(reason)
        self.destination, self.wait_s, self.reason = destination, wait_s, reason


class Desk(Protocol):
    """Shares breakers between processes. No method waits; failures to reach the others are the desk's to retry."""

    def open(self, key: Key, *, failures: int, reason: str) -> None: ...

    def claim(self, key: Key, *, lease_s: float) -> "Future[UUID | None]":
        """The token of the one call that may try, or None."""

    def tried(self, key: Key, token: UUID, *, worked: bool | None, reason: str) -> None:
        """How that call ended; None when it says nothing about the destination."""


class Breakers:
    """Used in the executor's loop; `shut` is replaced by the desk, from any thread."""

    def __init__(self, desk: Desk, *, failures: int, window_s: float, open_s: float) -> None:
        self.shut: Mapping[Key, Shut] = {}
        self._desk = desk
        self._windows: FailureWindows[Key] = FailureWindows(failures=failures, window_s=window_s)
        self._open_s = open_s

    async def enter(self, key: Key, *, timeout_s: float) -> Passage:
        """Before a call. Raises Deferred."""
        shut = self.shut.get(key)
        if shut is None:
            return Passage(key)
        left_s = shut.until_s - monotonic_s()
        if left_s > 0:
            raise Deferred(key[1], _spread(left_s), shut.reason)
        try:
            async with asyncio.timeout(DESK_ANSWERS_S):
                token = await asyncio.wrap_future(self._desk.claim(key, lease_s=timeout_s + DESK_ANSWERS_S))
        except TimeoutError:
            token = None
        if token is None:
            raise Deferred(key[1], _spread(TRIED_BY_OTHERS_S), shut.reason)
        return Passage(key, token)

    def left(self, passage: Passage, result: Result | None) -> None:
        """After a call; without a result it was stopped."""
        failed, reason = _verdict(result)
        key = passage.key
        if passage.token is not None:
            self._desk.tried(key, passage.token, worked=None if failed is None else not failed, reason=reason)
        elif failed is not None and (not self.shut or key not in self.shut):
            failures = self._windows.saw(key, failed=failed, now_s=monotonic_s())
            if failures:
                # Here at once; for the others, and as it really is, through the desk.
                self.shut = {**self.shut, key: Shut(monotonic_s() + self._open_s, reason)}
                self._desk.open(key, failures=failures, reason=reason)


def deferred_result(deferred: Deferred, now: datetime) -> Result:
    """The run goes back to wait, without using up an attempt."""
    message = f"Calls to {deferred.destination} are put off: {deferred.reason}"
    error = {"class": "breaker_open", "message": message, "destination": deferred.destination}
    return Result("returned", None, error, True, deferred.wait_s, False, now, now)


def _verdict(result: Result | None) -> tuple[bool | None, str]:
    """Whether the destination is in trouble (None: the call does not say) and in which."""
    if result is None or result.outcome in ("cancelled", "returned", "lost"):
        return None, ""
    if result.outcome in ("succeeded", "accepted"):
        return False, ""
    error: Mapping[str, Any] = result.error or {}
    status = error.get("status")
    if isinstance(status, int):
        return status >= 500, str(error.get("message", ""))
    if error.get("class") in TROUBLE:
        return True, str(error.get("message", ""))
    return None, ""


def _spread(wait_s: float) -> float:
    return max(WAIT_MIN_S, wait_s) * (1 + SPREAD * random.random())
