"""The Celery app.

    celery -A workers.app worker --without-gossip --without-mingle --without-heartbeat
    celery -A workers.app beat -S workers.beat:LeaseScheduler

A worker process serves the pools of WORKER_POOLS. It listens to the shared queues of those pools, to the own queues of
all active tenants (kept up to date while it runs, found again when it restarts), and to the platform's own queue; with
-Q it listens to what is named there and nothing else. Celery's threads only claim and hand over; the work runs in
the executors. Only the threads and solo pools are possible: an executor can't be shared between forked processes.
"""

import os
from typing import Any

import django
from celery import Celery, bootsteps
from celery.signals import celeryd_init
from django.apps import apps as django_apps

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
if not django_apps.ready:
    django.setup()

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from kombu import Exchange, Queue

from kernel.pools import SYSTEM_QUEUE
from workers import state
from workers.subscription import Subscription, wanted_queues

app = Celery("shardbeat", broker=settings.BROKER_URL, task_cls="workers.periodic:SlotTask")
app.conf.update(
    include=["workers.tasks", "workers.housekeeping", "workers.archiving"],
    worker_pool="threads",
    worker_concurrency=4,
    worker_prefetch_multiplier=2,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
    task_acks_late=False,  # a message is a doorbell: when it is lost its tickets are released again
    task_ignore_result=True,
    task_create_missing_queues=True,
    task_default_queue=SYSTEM_QUEUE,
    task_default_exchange="",
    task_default_routing_key=SYSTEM_QUEUE,
    task_serializer="json",
    accept_content=["json"],
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={
        "priority_steps": [0],  # one key a queue: with thousands of queues the default four cost ten times as much
        "ack_emulation": False,  # two round trips a message, for what nobody reads: what is lost is released again
        "queue_order_strategy": "round_robin",
        "max_connections": 100,
        "socket_timeout": 10,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 15,
    }
    if settings.BROKER_URL.startswith(("redis", "unix"))
    else {},
    timezone="UTC",
    enable_utc=True,
    beat_scheduler="workers.beat:LeaseScheduler",
    beat_max_loop_interval=1,
)


class RuntimeStep(bootsteps.StartStopStep):
    """Starts the runtime before the consumer takes messages, and drains it after the consumer has stopped."""

    requires = {"celery.worker.components:Pool"}

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        if type(worker.pool_cls).__name__ == "str" or worker.pool_cls.__module__.rsplit(".", 1)[-1] not in (
            "thread",
            "solo",
        ):
            raise ImproperlyConfigured("Run the worker with --pool threads or --pool solo.")

    def start(self, worker: Any) -> None:
        state.start(Subscription.current)

    def stop(self, worker: Any) -> None:
        state.stop(float(settings.WORKER_GRACE_S))


class SubscriptionStep(bootsteps.StartStopStep):
    """Keeps the consumer's queues in step with the tenants."""

    requires = {"celery.worker.consumer.tasks:Tasks"}

    def start(self, consumer: Any) -> None:
        Subscription.attach(consumer, follow=not state.queues_named)

    def stop(self, consumer: Any) -> None:
        Subscription.detach()


app.steps["worker"].add(RuntimeStep)
app.steps["consumer"].add(SubscriptionStep)


@celeryd_init.connect
def choose_queues(conf: Any = None, options: Any = None, **kwargs: Any) -> None:
    """Before the worker makes its queues: those of its pools and tenants, unless -Q names them.

    Jobs make way for a dispatcher on the same machine, so that what is due goes in time however busy it is.
    """
    os.nice(settings.WORKER_NICE)
    state.queues_named = bool((options or {}).get("queues"))
    if not state.queues_named:
        app.conf.task_queues = [queue(name) for name in wanted_queues()]


def queue(name: str) -> Queue:
    """A queue that the default exchange reaches by its name."""
    return Queue(name, Exchange("", type="direct"), routing_key=name)
