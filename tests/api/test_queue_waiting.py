"""Waiting for work: woken when something comes, bounded, and without a connection for each who waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from apps.api.waiting import WaitingRoom, room
from kernel.clock import monotonic_s
from tests.api.makers import Makers
from tests.conftest import WAIT_TIMEOUT_S
from tests.fixtures_api import Answer, Api
from tests.fixtures_flow import count

Conn = psycopg.Connection[Any]


@pytest.fixture
def job(make: Makers) -> str:
    return str(make.job(kind="pull", queue="invoices", target={}, retry={"base_s": 0, "jitter": "none"})["id"])


@pytest.fixture
def ask(acme: Any) -> Iterator[Callable[..., Future[Answer]]]:
    """Asks for work from threads of its own."""
    from django.db import connection

    from tenants.keys import apikey_create

    key = apikey_create(tenant=acme, name="worker", role="worker")[1]
    threads = ThreadPoolExecutor(16)

    def one(members: dict[str, Any]) -> Answer:
        try:
            return Api(key).post("queues/invoices/lease", members)
        finally:
            connection.close()

    yield lambda **members: threads.submit(one, members)
    threads.shutdown()


def waiting(number: int) -> bool:
    return sum(len(places) for places in room._places.values()) == number


def test_who_waits_is_woken_by_what_comes(job: str, ask: Any, make: Makers, wait_for: Any) -> None:
    asked = ask(wait_s=30)
    wait_for(lambda: waiting(1))
    began = monotonic_s()
    run = make.execution(job=job)
    [item] = asked.result(WAIT_TIMEOUT_S).body["items"]
    assert item["execution"] == run["id"]
    assert monotonic_s() - began < 5
    wait_for(lambda: waiting(0))


def test_nothing_came_in_time(job: str, ask: Any) -> None:
    began = monotonic_s()
    answer = ask(wait_s=1).result(WAIT_TIMEOUT_S)
    assert (answer.status, answer.body) == (200, {"items": []})
    assert monotonic_s() - began >= 1


def test_each_who_waits_gets_its_own(job: str, ask: Any, make: Makers, wait_for: Any) -> None:
    asked = [ask(wait_s=30) for _ in range(4)]
    wait_for(lambda: waiting(4))
    runs = {make.execution(job=job)["id"] for _ in range(4)}
    items = [item for one in asked for item in one.result(WAIT_TIMEOUT_S).body["items"]]
    assert {item["execution"] for item in items} == runs


def test_what_is_freed_by_another_is_found(job: str, ask: Any, api: Api, make: Makers, wait_for: Any) -> None:
    """A retry, a resumed queue, a released lease: whoever waits gets it."""
    make.execution(job=job)
    [item] = ask().result(WAIT_TIMEOUT_S).body["items"]
    asked = ask(wait_s=30)
    wait_for(lambda: waiting(1))
    assert api.post(f"queues/leases/{item['token']}/release", {}).status == 200
    [again] = asked.result(WAIT_TIMEOUT_S).body["items"]
    assert again["attempt"] == 2
    assert api.post("queues/invoices/pause").status == 200
    make.execution(job=job)
    asked = ask(wait_s=30)
    wait_for(lambda: waiting(1))
    assert api.post("queues/invoices/resume").status == 200
    assert len(asked.result(WAIT_TIMEOUT_S).body["items"]) == 1


def test_who_waits_holds_no_connection(job: str, ask: Any, make: Makers, conn: Conn, wait_for: Any) -> None:
    here = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    before = count(conn, here)
    asked = [ask(wait_s=30) for _ in range(6)]
    wait_for(lambda: waiting(6))
    wait_for(lambda: count(conn, here) <= before + 1, "all but the listener's to be closed")
    for _ in range(6):
        make.execution(job=job)
    assert all(len(one.result(WAIT_TIMEOUT_S).body["items"]) == 1 for one in asked)


def test_only_so_many_may_wait(job: str, ask: Any, make: Makers, wait_for: Any, settings: Any) -> None:
    settings.PULL_WAITERS, settings.PULL_WAITERS_PER_TENANT = 3, 2
    asked = [ask(wait_s=30) for _ in range(2)]
    wait_for(lambda: waiting(2))
    refused = ask(wait_s=30).result(WAIT_TIMEOUT_S)
    assert (refused.status, refused.code, refused.headers["Retry-After"]) == (503, "too_many_waiting", "2")
    assert ask().result(WAIT_TIMEOUT_S).body == {"items": []}, "who does not wait is served"
    for _ in range(2):
        make.execution(job=job)
    assert all(len(one.result(WAIT_TIMEOUT_S).body["items"]) == 1 for one in asked)


def test_a_lost_listener_is_replaced(job: str, ask: Any, make: Makers, conn: Conn, wait_for: Any) -> None:
    asked = ask(wait_s=30)
    wait_for(lambda: waiting(1))
    listener = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shardbeat pull listener'"
    wait_for(lambda: count(conn, listener) == 1)
    conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'shardbeat pull listener'"
        " AND datname = current_database()"
    )
    make.execution(job=job)
    assert len(asked.result(WAIT_TIMEOUT_S).body["items"]) == 1


def test_one_of_a_queue_is_woken_at_a_time(database: None, settings: Any) -> None:
    own = WaitingRoom()
    own._listener = threading.current_thread()  # nobody looks by itself here
    own._listening.set()
    with own.place((1, "a")) as first, own.place((1, "a")) as second, own.place((1, "b")) as other:
        own.wake((1, "a"))
        assert (first._woken.is_set(), second._woken.is_set(), other._woken.is_set()) == (True, False, False)
        own.wake((1, "a"))
        assert second._woken.is_set()
        own.wake_all()
        assert other._woken.is_set()
    assert own.waiting() == []
