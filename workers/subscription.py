"""Which queues a worker listens to: kept in step with tenants, their groups and what operators say, while it runs."""

import logging
import socket
import threading
from typing import Any

from django.conf import settings

from apps.tickets import subscriptions
from kernel.listening import Told, listened
from kernel.pools import SYSTEM_QUEUE
from kernel.service import Loop, Pass
from tenants.door import Line
from tenants.queues import queues_of
from tenants.registry import Registry
from workers import state

log = logging.getLogger(__name__)
FOLLOW_EVERY_S = 3.0
MANY_QUEUES = (
    1_000  # measured: with so many a worker takes three quarters of the messages a second, with 5,000 a quarter
)


def wanted_queues(registry: Registry | None = None, told: list[Told] | None = None) -> list[str]:
    """Of the queues of this process's group and pools those that configuration and operators leave."""
    if registry is None:
        line = Line("worker queues")
        registry = Registry(line)
        registry.refresh(force=True)
        told = told_here(line)
        line.close()
    rules = {"by_queue": settings.WORKER_QUEUES, "by_tenant": settings.WORKER_TENANTS}
    queues = queues_of(registry.by_id.values(), group=settings.WORKER_GROUP, pools=settings.WORKER_POOLS)
    return listened([SYSTEM_QUEUE, *queues], **rules, told=told or [])


def told_here(line: Line) -> list[Told]:
    """What operators have told the workers of this group and host."""
    return subscriptions.told(line.get(), group=settings.WORKER_GROUP, host=socket.gethostname())


class Subscription:
    """The consumer of this process and a loop that adds and drops its queues."""

    name = "subscription"
    _attached: "Subscription | None" = None
    _lock = threading.Lock()

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._line = Line("worker queues")
        self._registry = Registry(self._line)
        self._warned = ""
        self.loop = Loop(self, idle_s=FOLLOW_EVERY_S)

    @classmethod
    def attach(cls, consumer: Any, *, follow: bool) -> None:
        """A consumer has started (again, after a lost broker connection)."""
        cls.detach()
        with cls._lock:
            cls._attached = cls(consumer)
            if follow:
                cls._attached.loop.start()

    @classmethod
    def detach(cls) -> None:
        with cls._lock:
            if cls._attached is not None:
                cls._attached.loop.stop()
                cls._attached = None

    @classmethod
    def current(cls) -> list[str]:
        """The queues that are consumed now; none while there is no consumer."""
        with cls._lock:
            if cls._attached is None:
                return []
            consumer = cls._attached._consumer.task_consumer
            return sorted(queue.name for queue in list(consumer.queues)) if consumer else []

    def run_once(self) -> Pass:
        self._registry.refresh()
        wanted = set(wanted_queues(self._registry, told_here(self._line)))
        if state.stands_back():
            wanted &= {SYSTEM_QUEUE}
        consumer = self._consumer
        if consumer.task_consumer is None:
            return Pass()
        have = {queue.name for queue in list(consumer.task_consumer.queues)}
        for name in sorted(wanted - have):
            consumer.call_soon(consumer.add_task_queue, name, exchange="", exchange_type="direct", routing_key=name)
        for name in sorted(have - wanted):
            consumer.call_soon(consumer.cancel_task_queue, name)
        self._warn(len(wanted))
        return Pass({"added": len(wanted - have), "dropped": len(have - wanted)})

    def close(self) -> None:
        self._line.close()

    def _warn(self, queues: int) -> None:
        """Says it once when something about the queues is not as it should be, and once when it is again."""
        beyond = self._registry.beyond[settings.WORKER_GROUP]
        said = []
        if not queues:
            said.append("this worker listens to no queue: see WORKER_QUEUES, WORKER_TENANTS and `worker_queues list`")
        if queues > MANY_QUEUES:
            said.append(
                f"this worker listens to {queues:,} queues and is slow with more than {MANY_QUEUES:,}: lower"
                " OWN_QUEUES_MAX, serve fewer WORKER_POOLS or WORKER_TENANTS, or use plans without own queues"
            )
        if beyond:
            said.append(
                f"{beyond:,} tenants share queues though their plan gives them an own one: the first"
                f" {settings.OWN_QUEUES_MAX:,} of a group have it (OWN_QUEUES_MAX). For the long tail use plans without"
                " own queues, or another group"
            )
        text = "; ".join(said)
        if text != self._warned:
            log.warning("%s", text or "the queues of this worker are as they should be again")
            self._warned = text
