"""Runs that are put on a tenant's own broker: a real Valkey on loopback, AMQP through kombu's transport in memory."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import kombu
import orjson
import pytest
import redis

from kernel.deliveryrules import parse_broker, validate_delivery
from tests.executors.works import LOOPBACK, Results, key_of, make_work
from workers.executors import delivery_brokers
from workers.executors.base import Work
from workers.executors.delivery import DeliveryExecutor

STREAM = {"delivery": "queue", "url": {"secret": "BROKER"}, "stream": "jobs"}
QUEUE = {"delivery": "queue", "url": "amqp://user@127.0.0.1:25672/prod", "queue": "jobs"}
TOKEN = "sbc_token"


@pytest.fixture
def executor(running: Callable[[Any], Any]) -> DeliveryExecutor:
    made: DeliveryExecutor = running(DeliveryExecutor(slots=4))
    return made


def work(url: str, target: dict[str, Any] | None = None, **changes: Any) -> Work:
    given = {"secrets": {"BROKER": url}, "completion": TOKEN, "payload": {"n": 7}, **changes}
    return make_work("pull", {**STREAM, **(target or {})}, **given)


def messages(broker: Any) -> list[tuple[str, dict[str, str]]]:
    """What is in the stream."""
    client: Any = redis.Redis.from_url(broker.url, decode_responses=True)
    found: list[tuple[str, dict[str, str]]] = client.xrange("jobs")
    return found


def test_a_run_becomes_one_message_and_ends_when_the_broker_has_it(
    broker: Any, executor: DeliveryExecutor, results: Results, wait_for: Any
) -> None:
    one = work(broker.url, {"headers": {"team": "billing"}})
    executor.submit([one], results)
    result = results.of(one)
    [(entry, told)] = messages(broker)
    assert (result.outcome, result.result) == ("succeeded", {"stream": "jobs", "id": entry})
    assert orjson.loads(told["body"]) == {"n": 7}
    assert (told["id"], told["shardbeat-run-key"], told["team"]) == (one.run_key, one.run_key, "billing")
    assert (told["shardbeat-execution"], told["shardbeat-attempt"]) == (str(one.execution_id), "1")
    assert "shardbeat-completion" not in told
    wait_for(lambda: executor.free() == 4 and not executor.held())


def test_finished_on_callback_the_run_goes_on_outside(
    broker: Any, executor: DeliveryExecutor, results: Results
) -> None:
    one = work(broker.url, {"finish_on": "callback"})
    executor.submit([one], results)
    assert (results.of(one).outcome, results.of(one).holder) == ("accepted", "jobs")
    [(_, told)] = messages(broker)
    assert told["shardbeat-completion"] == TOKEN


def test_the_stream_is_kept_short_when_asked_for(broker: Any, executor: DeliveryExecutor, results: Results) -> None:
    works = [work(broker.url, {"max_length": 10}) for _ in range(300)]
    executor.submit(works, results)
    assert {one.outcome for one in results.all_of(works)} == {"succeeded"}
    assert len(messages(broker)) < 300


def test_a_broker_that_stops_and_comes_back(broker: Any, executor: DeliveryExecutor, results: Results) -> None:
    first, second, third = (work(broker.url) for _ in range(3))
    executor.submit([first], results)
    assert results.of(first).outcome == "succeeded"
    broker.stop()
    executor.submit([second], results)
    lost = results.of(second)
    assert (lost.outcome, lost.retryable) == ("failed", True)
    assert lost.error and lost.error["class"] == "connect_failed"
    broker.start()
    executor.submit([third], results)
    assert results.of(third).outcome == "succeeded"


def test_a_broker_that_says_nothing_times_out(
    executor: DeliveryExecutor, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_brokers, "ANSWER_TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = work(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        executor.submit([one], results)
        assert results.of(one).outcome == "timed_out"


def test_the_runs_own_time_out_comes_before_the_clients(executor: DeliveryExecutor, results: Results) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = work(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", timeout_s=0.3)
        executor.submit([one], results)
        ended = results.of(one, within_s=delivery_brokers.ANSWER_TIMEOUT_S / 2)
        assert (ended.outcome, ended.retryable) == ("timed_out", True)
        assert ended.error
        assert ended.error["message"] == "The broker did not answer within 0.3 s."
        executor.stop(0.05)


@pytest.mark.parametrize(
    ("target", "changes", "class_"),
    [
        ({"url": "redis://127.0.0.1:7777/0"}, {"network": ()}, "bad_target"),
        ({"url": "redis://localhost:7777/0"}, {"network": ()}, "bad_target"),
        ({"url": "redis://inside.example.com:6379/0"}, {"network": ()}, "address_blocked"),
        ({"url": "ftp://example.com"}, {}, "bad_target"),
        ({"url": {"secret": "NONE"}}, {}, "secret_missing"),
        ({"finish_on": "callback"}, {"completion": None}, "bad_target"),
    ],
)
def test_what_never_works_is_not_tried_again(
    executor: DeliveryExecutor,
    results: Results,
    monkeypatch: pytest.MonkeyPatch,
    target: Any,
    changes: Any,
    class_: str,
) -> None:
    monkeypatch.setattr(delivery_brokers, "system_addresses", lambda host: ["10.0.0.7"])
    one = work("redis://user:s3cret@127.0.0.1:7777/0", target, **changes)
    executor.submit([one], results)
    result = results.of(one)
    assert (result.outcome, result.retryable) == ("failed", False)
    assert result.error and result.error["class"] == class_
    assert "s3cret" not in str(result.error)


def test_cancel_and_stop(broker: Any, executor: DeliveryExecutor, results: Results) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        works = [work(url) for _ in range(6)]
        executor.submit(works, results)
        assert executor.cancel(*key_of(works[0]))
        assert results.of(works[0], within_s=3).outcome == "cancelled"
        executor.stop(0.05)
    assert {one.outcome for one in results.all_of(works[1:], within_s=0)} == {"returned"}
    assert set(results.times.values()) == {1}


def test_amqp_messages_have_what_a_consumer_needs(
    executor: DeliveryExecutor, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through kombu, whose transport in memory stands for a broker: shape, not confirms."""
    real, asked = kombu.Connection, []

    def in_memory(**options: Any) -> Any:
        asked.append(options)
        return real("memory://")

    monkeypatch.setattr(delivery_brokers.kombu, "Connection", in_memory)
    one = make_work("pull", QUEUE, payload={"n": 7})
    with real("memory://") as consumer:
        simple = consumer.SimpleQueue(kombu.Queue("jobs", routing_key="jobs"))
        executor.submit([one], results)
        assert results.of(one).outcome == "succeeded", results.of(one).error
        message = simple.get(timeout=10)
        simple.close()
    assert orjson.loads(message.body) == {"n": 7}
    assert (message.properties["message_id"], message.headers["shardbeat-run-key"]) == (one.run_key, one.run_key)
    [options] = asked
    assert (options["hostname"], options["port"], options["virtual_host"]) == ("127.0.0.1", 25672, "prod")
    assert options["transport_options"]["confirm_publish"] is True


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, None),
        ({"url": "rediss://example.com/1"}, None),
        ({"url": "redis://example.com/x"}, ("/url", "invalid")),
        ({"url": "redis://user:pw@example.com/1"}, ("/url", "password_in_url")),
        ({"url": "redis://10.0.0.1/1"}, ("/url", "address_not_public")),
        ({"url": "redis://127.1/1"}, ("/url", "address_not_public")),
        ({"url": "redis://[::ffff:10.0.0.1]/1"}, ("/url", "address_not_public")),
        ({"url": "sqs://example.com/q"}, ("/url", "scheme_not_allowed")),
        ({"url": "redis://exa mple.com"}, ("/url", "invalid")),
        ({"url": {"secret": 7}}, ("/url", "invalid")),
        ({"stream": ""}, ("/stream", "invalid")),
        ({"stream": "a\nb"}, ("/stream", "invalid")),
        ({"finish_on": "hope"}, ("/finish_on", "choice")),
        ({"max_length": 0}, ("/max_length", "range")),
        ({"headers": {"shardbeat-run-key": "x"}}, ("/headers", "invalid")),
        ({"headers": {"id": "x"}}, ("/headers/id", "reserved")),
        ({"headers": {"body": "x"}}, ("/headers/body", "reserved")),
        ({"exchange": "x"}, ("/exchange", "unknown_field")),
        ({"url": "amqps://example.com/v", "stream": None}, ("/stream", "unknown_field")),
    ],
)
def test_targets_are_judged_when_saved(change: dict[str, Any], fault: tuple[str, str] | None) -> None:
    faults = [(one.pointer, one.code) for one in validate_delivery({**STREAM, **change}, ())]
    assert (fault in faults) if fault else (faults == [])


def test_amqp_targets_name_a_queue_or_an_exchange() -> None:
    base = {"delivery": "queue", "url": "amqps://user@example.com/prod"}
    assert validate_delivery({**base, "queue": "q"}, ()) == []
    assert validate_delivery({**base, "exchange": "e", "routing_key": "k"}, ()) == []
    for wrong in ({}, {"queue": "q", "exchange": "e"}):
        assert [one.pointer for one in validate_delivery({**base, **wrong}, ())] == ["/queue"]
    broker = parse_broker("amqps://us%40er:p%2Fw@MQ.example.com/pr%2Fod", ())
    assert (broker.user, broker.password, broker.host, broker.port, broker.path) == (
        "us@er", "p/w", "mq.example.com", 5671, "pr/od",
    )  # fmt: skip
    assert parse_broker("redis://127.0.0.1:7001", LOOPBACK).path == "0"
