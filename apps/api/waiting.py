"""Waiting for work of a pull queue: bounded, and without a database connection for each who waits.

A waiting request keeps its thread of the web process, so there may be only so many of them (PULL_WAITERS a process,
PULL_WAITERS_PER_TENANT of one tenant); the next one is told to come again. All of a process share one thread with one
connection, which listens and every LOOK_S looks whether something became ready without a word. It wakes one waiter of a
queue at a time; one that takes all that it may wakes the next.
"""

import logging
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psycopg
from django.conf import settings
from django.db import connection

from apps.tickets import pull_queues
from apps.tickets.store import PULL_CHANNEL
from kernel.clock import monotonic_s
from kernel.errors import ShardbeatError
from tenants import door

log = logging.getLogger(__name__)
LOOK_S = 2.0
LINGER_S = 20.0  # the listener outlives its last waiter by so much
AGAIN_S = 1.0  # after a lost connection
RETRY_AFTER_S = 2
Queue = tuple[int, str]  # tenant and name


class TooManyWaiting(ShardbeatError):
    """No more may wait in this process; work that is there is still given out."""

    code = "too_many_waiting"
    status = 503


@dataclass(slots=True, eq=False)
class Place:
    """One who waits at a queue."""

    queue: Queue
    _woken: threading.Event = field(default_factory=threading.Event)

    def wait(self, timeout_s: float) -> bool:
        """Until something may be there; False when time ran out. Gives this thread's database connection back."""
        if not self._woken.is_set():
            connection.close()
        woken = self._woken.wait(max(0.0, timeout_s))
        self._woken.clear()
        return woken

    def wake(self) -> None:
        self._woken.set()


class WaitingRoom:
    """Who waits in this process, by queue, in the order in which they came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[Queue, OrderedDict[Place, None]] = defaultdict(OrderedDict)
        self._of_tenant: Counter[int] = Counter()
        self._listener: threading.Thread | None = None
        self._listening = threading.Event()
        self._closing = threading.Event()

    @contextmanager
    def place(self, queue: Queue) -> Iterator[Place]:
        """A place until the block ends. TooManyWaiting."""
        place = Place(queue)
        with self._lock:
            here, of_tenant = sum(self._of_tenant.values()), self._of_tenant[queue[0]]
            if here >= settings.PULL_WAITERS or of_tenant >= settings.PULL_WAITERS_PER_TENANT:
                detail = "As many requests as may wait do so already; ask again in a moment, or with wait_s 0."
                raise TooManyWaiting(detail, retry_after_s=RETRY_AFTER_S)
            self._of_tenant[queue[0]] += 1
            self._places[queue][place] = None
            if self._listener is None or not self._listener.is_alive():
                self._listening.clear()
                self._closing.clear()
                self._listener = threading.Thread(target=self._listen, name="pull listener", daemon=True)
                self._listener.start()
        self._listening.wait(AGAIN_S)  # what becomes ready from now on is heard of
        try:
            yield place
        finally:
            with self._lock:
                del self._places[queue][place]
                if not self._places[queue]:
                    del self._places[queue]
                self._of_tenant[queue[0]] -= 1
                if not self._of_tenant[queue[0]]:
                    del self._of_tenant[queue[0]]

    def wake(self, queue: Queue) -> None:
        """Wakes the one who has waited longest at a queue and is not awake."""
        with self._lock:
            for place in self._places.get(queue, ()):
                if not place._woken.is_set():
                    place.wake()
                    return

    def wake_all(self) -> None:
        with self._lock:
            for places in self._places.values():
                for place in places:
                    place.wake()

    def waiting(self) -> list[Queue]:
        """The queues at which somebody waits."""
        with self._lock:
            return list(self._places)

    def close(self, timeout_s: float = 2 * LOOK_S) -> None:
        """Ends the listener; whoever waits next starts another one."""
        with self._lock:
            listener, self._listener = self._listener, None
        self._closing.set()
        if listener is not None:
            with suppress(psycopg.Error), door.connect("pull closing") as conn:
                conn.execute("SELECT pg_notify(%s, '')", [PULL_CHANNEL])  # it listens
            listener.join(timeout_s)

    def _listen(self) -> None:
        last_waiter_at = monotonic_s()
        while True:
            try:
                with door.connect("pull listener") as conn:
                    conn.execute(f"LISTEN {PULL_CHANNEL}")
                    self._listening.set()
                    self.wake_all()  # of what came while nobody listened
                    while True:
                        self._hear(conn)
                        waiting = self.waiting()
                        if waiting and not self._closing.is_set():
                            last_waiter_at = monotonic_s()
                            for queue in pull_queues.with_something(conn, waiting):
                                self.wake(queue)
                        elif self._ends(last_waiter_at):
                            return
            except psycopg.Error:
                log.warning("the listener of pull queues lost its connection", exc_info=True)
                if self._ends(last_waiter_at):
                    return
                threading.Event().wait(AGAIN_S)

    def _ends(self, last_waiter_at: float) -> bool:
        """Whether nobody has waited for long; then whoever comes next starts another listener."""
        with self._lock:
            if self._closing.is_set():
                return True
            if self._places or monotonic_s() - last_waiter_at < LINGER_S:
                return False
            self._listener = None
            return True

    def _hear(self, conn: psycopg.Connection[object]) -> None:
        """Passes on what is said within LOOK_S."""
        until = monotonic_s() + LOOK_S
        while (left := until - monotonic_s()) > 0 and not self._closing.is_set():
            for notice in conn.notifies(timeout=left, stop_after=1):
                tenant_id, _, name = notice.payload.partition(" ")
                if tenant_id.isdecimal():
                    self.wake((int(tenant_id), name))
                else:
                    self.wake_all()


room = WaitingRoom()
