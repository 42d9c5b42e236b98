"""Messages: what a release puts on the broker is what the batch task reads, and what it can't read starts nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty
from typing import Any
from uuid import UUID

import kombu
import pytest

from apps.dispatch.capacity import Message
from apps.dispatch.publish import KombuPublisher, Publisher, RedisPublisher, publisher
from kernel.pools import BATCH_TASK, SYSTEM_QUEUE
from tenants.models import Tenant
from tenants.registry import Registry
from workers import state, subscription, tasks
from workers.subscription import Subscription, wanted_queues


@pytest.fixture
def queue(settings: Any) -> Iterator[str]:
    """A queue of this test's own on the run's broker."""
    name = f"python.test.{uuid.uuid4().hex}"
    yield name
    with kombu.Connection(settings.BROKER_URL) as connection:
        kombu.Queue(name, channel=connection.default_channel).delete()


def received(url: str, queue: str) -> list[kombu.Message]:
    """What a consumer of the queue gets, as Celery's would."""
    with kombu.Connection(url, transport_options={"priority_steps": [0]}) as connection:
        simple = connection.SimpleQueue(queue)
        found = []
        with suppress(Empty):
            while True:
                message = simple.get(block=False)
                message.ack()
                found.append(message)
        simple.close()
        return found


@pytest.mark.parametrize("kind", [RedisPublisher, KombuPublisher])
def test_a_message_arrives_as_a_task_of_celery(settings: Any, queue: str, kind: type[Publisher]) -> None:
    messages = [Message(queue, 7, [uuid.uuid4() for _ in range(3)]), Message(queue, 8, [uuid.uuid4()])]
    sender: Any = kind(settings.BROKER_URL)  # type: ignore[call-arg]  # both take an address
    sender.publish(messages)
    sender.close()
    found = received(settings.BROKER_URL, queue)
    assert len(found) == 2
    for message, sent in zip(found, messages, strict=True):
        arguments, keywords, _ = message.payload
        assert arguments == [sent.queue, sent.release, [one.hex for one in sent.ids]] and keywords == {}
        assert message.headers["task"] == BATCH_TASK and message.headers["ignore_result"]
        assert message.headers["eta"] is message.headers["expires"] is None, "the broker keeps no time"
        assert message.content_type == "application/json"
    assert len({message.headers["id"] for message in found}) == 2


def test_the_address_decides_how_it_is_sent(settings: Any) -> None:
    assert isinstance(publisher("redis://127.0.0.1:1/0"), RedisPublisher)
    assert isinstance(publisher("amqp://127.0.0.1:1//"), KombuPublisher)


def test_a_broker_that_is_away_is_an_error(queue: str) -> None:
    sender = publisher("redis://127.0.0.1:1/0")
    with pytest.raises(Exception, match=r"Connection refused|Error"):
        sender.publish([Message(queue, 1, [uuid.uuid4()])])
    sender.close()


class Taking:
    """Notes what the batch task hands to the runtime."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, list[UUID], int]] = []
        self.queues: list[str] = []

    def take(self, pool: str, ids: list[UUID], release: int, *, queue: str) -> None:
        self.taken.append((pool, ids, release))
        self.queues.append(queue)


@pytest.fixture
def taking(monkeypatch: pytest.MonkeyPatch) -> Taking:
    found = Taking()
    monkeypatch.setattr(state, "runtime", lambda: found)
    return found


def test_the_batch_task_hands_over_what_the_message_names(taking: Taking) -> None:
    ids = [uuid.uuid4(), uuid.uuid4()]
    tasks.batch("http.own.acme", 9, [one.hex for one in ids])
    assert (taking.taken, taking.queues) == ([("http", ids, 9)], ["http.own.acme"])


@pytest.mark.parametrize(
    "message",
    [
        ("python.own.acme", 9, ["not an id"]), ("python.own.acme", 9, [None]), ("python.own.acme", 9, 7),
        ("python.own.acme", None, []), ("python.own.acme", "nine", []), (None, None, None),
        ("python.own.acme", 9, [{"id": 1}]), ("python.own.acme", {}, []),
    ],
)  # fmt: skip
def test_a_message_that_can_not_be_read_starts_nothing(taking: Taking, message: tuple[Any, ...]) -> None:
    """Case D04: it names nobody, so nobody's work is started by it."""
    tasks.batch(*message)
    assert taking.taken == []


def test_a_process_that_is_no_worker_says_so() -> None:
    from kernel.errors import Conflict

    with pytest.raises(Conflict):
        state.runtime()


# --- which queues a worker listens to ---


def test_a_worker_listens_to_what_may_come(registry: Registry, acme: Tenant, globex: Tenant, settings: Any) -> None:
    settings.WORKER_POOLS = ["python"]
    settings.SHARED_QUEUES = 2
    assert sorted(wanted_queues(registry)) == sorted(
        [SYSTEM_QUEUE, "python.shared.0", "python.shared.1", "python.own.acme", "python.own.globex"]
    )
    Tenant.objects.filter(pk=globex.pk).update(status="suspended")
    Tenant.objects.filter(pk=acme.pk).update(dispatch_paused=True)  # what was handed out goes on
    registry.refresh(force=True)
    assert "python.own.globex" not in wanted_queues(registry) and "python.own.acme" in wanted_queues(registry)


class Consumer:
    """What a subscription asks of Celery's consumer."""

    def __init__(self, *queues: str) -> None:
        self.task_consumer: Any = self
        self.names = set(queues)

    @property
    def queues(self) -> list[Any]:
        return [kombu.Queue(name) for name in self.names]

    def call_soon(self, call: Callable[..., None], *args: Any, **more: Any) -> None:
        call(*args, **more)

    def add_task_queue(self, name: str, **more: Any) -> None:
        assert more["routing_key"] == name and more["exchange"] == ""
        self.names.add(name)

    def cancel_task_queue(self, name: str) -> None:
        self.names.discard(name)


def test_queues_follow_the_tenants_while_the_worker_runs(
    database: None, new_tenant: Callable[..., Tenant], settings: Any
) -> None:
    settings.WORKER_POOLS = ["python"]
    consumer = Consumer("python.own.gone")
    following = Subscription(consumer)
    assert following.run_once().counts["dropped"] == 1
    assert "python.own.acme" in consumer.names
    assert following.run_once().counts == {"added": 0, "dropped": 0}
    tenant = new_tenant()
    following._registry.refresh(force=True)
    assert following.run_once().counts == {"added": 1, "dropped": 0}
    assert f"python.own.{tenant.slug}" in consumer.names
    consumer.task_consumer = None
    assert following.run_once().counts == {}, "between two connections to the broker"
    following.close()


def test_what_is_consumed_is_what_the_lease_says(database: None) -> None:
    assert Subscription.current() == []
    consumer = Consumer("b", "a")
    Subscription.attach(consumer, follow=False)
    try:
        assert Subscription.current() == ["a", "b"]
        consumer.task_consumer = None
        assert Subscription.current() == []
    finally:
        Subscription.detach()
    assert Subscription.current() == []
    assert subscription.FOLLOW_EVERY_S <= 5
