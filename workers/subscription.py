"""Which queues a worker listens to: kept in step with the tenants while it runs."""

import logging
import threading
from typing import Any

from django.conf import settings

from kernel.pools import SYSTEM_QUEUE, shared_queue
from kernel.service import Loop, Pass
from tenants.door import Line
from tenants.registry import Registry

log = logging.getLogger(__name__)
FOLLOW_EVERY_S = 3.0


def wanted_queues(registry: Registry | None = None) -> list[str]:
    """The platform's queue, the shared queues of this process's pools, and the own queues of active tenants."""
    if registry is None:
        line = Line("worker queues")
        registry = Registry(line)
        registry.refresh(force=True)
        line.close()
    names = [SYSTEM_QUEUE]
    for pool in settings.WORKER_POOLS:
        names += [shared_queue(pool, number) for number in range(settings.SHARED_QUEUES)]
        names += [one.queue(pool) for one in registry.by_id.values() if one.own_queue and one.active]
    return names


class Subscription:
    """The consumer of this process and a loop that adds and drops its queues."""

    name = "subscription"
    _attached: "Subscription | None" = None
    _lock = threading.Lock()

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._line = Line("worker queues")
        self._registry = Registry(self._line)
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
        wanted = set(wanted_queues(self._registry))
        consumer = self._consumer
        if consumer.task_consumer is None:
            return Pass()
        have = {queue.name for queue in list(consumer.task_consumer.queues)}
        for name in sorted(wanted - have):
            consumer.call_soon(consumer.add_task_queue, name, exchange="", exchange_type="direct", routing_key=name)
        for name in sorted(have - wanted):
            consumer.call_soon(consumer.cancel_task_queue, name)
        return Pass({"added": len(wanted - have), "dropped": len(have - wanted)})

    def close(self) -> None:
        self._line.close()
