"""The desk of circuit breakers: one thread that tells other processes what was seen here, and reads what they saw."""

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from uuid import UUID, uuid4

import psycopg
from django.conf import settings

from apps.tickets import breakers
from kernel.clock import monotonic_s
from kernel.service import Loop, Pass
from tenants.door import Line
from workers.executors.http_breaker import Breakers, Key, Shut

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
READ_EVERY_S = 1.0
KEPT_REQUESTS = 10_000  # while the database is away


class BreakerDesk:
    """Reads the table once a second; writes when a breaker changes. Only a call that may try waits for it."""

    name = "breakers"

    def __init__(self) -> None:
        self.breakers = Breakers(
            self, failures=settings.HTTP_BREAKER_FAILURES, window_s=settings.HTTP_BREAKER_WINDOW_S,
            open_s=settings.HTTP_BREAKER_OPEN_S,
        )  # fmt: skip
        self._bounds = {"open_s": settings.HTTP_BREAKER_OPEN_S, "max_s": settings.HTTP_BREAKER_OPEN_MAX_S}
        self._line = Line("worker breakers")
        self._requests: deque[Callable[[Conn], None]] = deque(maxlen=KEPT_REQUESTS)
        self.loop = Loop(self, idle_s=READ_EVERY_S)

    def open(self, key: Key, *, failures: int, reason: str) -> None:
        def write(conn: Conn) -> None:
            tenant_id, destination = key
            if breakers.open_(
                conn, tenant_id=tenant_id, destination=destination, failures=failures, reason=reason, **self._bounds
            ):
                log.warning("tenant %d: calls to %s are put off: %s", tenant_id, destination, reason)

        self._ask(write)

    def claim(self, key: Key, *, lease_s: float) -> "Future[UUID | None]":
        answer: Future[UUID | None] = Future()
        asked_s = monotonic_s()

        def write(conn: Conn) -> None:
            token = uuid4()
            # Asked long ago, by a call that has not waited for it: the lease would be nobody's.
            fresh = monotonic_s() - asked_s < 1.0
            tenant_id, destination = key
            won = fresh and breakers.claim(
                conn, tenant_id=tenant_id, destination=destination, probe=token, lease_s=lease_s
            )
            if answer.set_running_or_notify_cancel():
                answer.set_result(token if won else None)
            elif won:
                breakers.reopen(
                    conn, tenant_id=tenant_id, destination=destination, probe=token, reason=None, **self._bounds
                )

        self._ask(write)
        return answer

    def tried(self, key: Key, token: UUID, *, worked: bool | None, reason: str) -> None:
        def write(conn: Conn) -> None:
            tenant_id, destination = key
            if worked:
                if breakers.close(conn, tenant_id=tenant_id, destination=destination, probe=token):
                    log.warning("tenant %d: calls to %s are made again", tenant_id, destination)
            else:
                breakers.reopen(
                    conn, tenant_id=tenant_id, destination=destination, probe=token,
                    reason=None if worked is None else reason, **self._bounds,
                )  # fmt: skip

        self._ask(write)

    def run_once(self) -> Pass:
        conn = self._line.get()
        done = 0
        while self._requests:
            try:
                self._requests[0](conn)
            except psycopg.OperationalError:
                raise  # it is asked again
            except psycopg.Error:
                log.exception("a change of a breaker was refused")
            self._requests.popleft()
            done += 1
        now_s = monotonic_s()
        self.breakers.shut = {
            (one.tenant_id, one.destination): Shut(now_s + one.left_s, one.reason) for one in breakers.read_shut(conn)
        }
        return Pass({"asked": done}, full=bool(self._requests))

    def close(self) -> None:
        while self._requests:
            self._requests.popleft()(self._line.get())
        self._line.close()

    def _ask(self, request: Callable[[Conn], None]) -> None:
        self._requests.append(request)
        self.loop.wake()
