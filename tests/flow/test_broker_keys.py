"""What runs leave behind on the broker: case C20, where keys that never expire piled up in other schedulers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
import redis

from kernel.pools import SYSTEM_QUEUE
from tests.conftest import wait_until
from tests.flow.test_processes import live, one, submit, succeeded
from tests.processes import Processes, kill
from tests.schedules.cases import case

# All that may stand on the broker without an expiry, and what bounds it. Nothing of the platform makes keys for
# bindings of exchanges, answers, results, remote control or messages in a worker's hands.
LASTING = {
    rf"{re.escape(SYSTEM_QUEUE)}|(http|python|queue|container)\.(own|shared)\.[a-z0-9-]+": "queues, while not empty",
}
KEYS_MOST = 10  # queues of two tenants, and the platform's own


@pytest.fixture
def server(broker: Any) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(broker.url, decode_responses=True) as client:
        yield client


@pytest.mark.timeout(240)
def test_keys_do_not_pile_up_c20(
    processes: Processes, server: redis.Redis, conn: psycopg.Connection[Any], acme: Any, globex: Any
) -> None:
    """The case in small: 150 runs, the worker ended twice in the middle of them, once with kill -9."""
    soak(processes, server, conn, (acme, globex), runs=150, restarts=2)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_keys_do_not_pile_up_as_given_c20(
    processes: Processes, server: redis.Redis, conn: psycopg.Connection[Any], acme: Any, globex: Any
) -> None:
    given = case("worker.jsonl", "C20")["input"]
    soak(processes, server, conn, (acme, globex), runs=given["runs"], restarts=given["worker_restarts"])


def soak(
    processes: Processes, server: redis.Redis, conn: psycopg.Connection[Any], tenants: tuple[Any, ...], *, runs: int,
    restarts: int,
) -> None:  # fmt: skip
    """So many runs, through workers that end while they work. The broker is looked at all the time."""
    expected = case("worker.jsonl", "C20")["expected"]
    processes.dispatcher()
    processes.beat()
    worker = processes.worker()
    wait_until(lambda: live(conn, "tickets_worker") == 1, "the worker")
    before, seen = set(keys(server)), dict[str, int]()
    share, done = runs // (restarts + 1), 0
    for restart in range(restarts + 1):
        count = share if restart < restarts else runs - done
        for number in range(count):
            submit(tenants[number % len(tenants)], task="shardbeat.noop")
            if number % 20 == 0:
                seen |= keys(server)
        if restart < restarts:
            if restart % 2:
                kill(worker)
            else:
                worker.terminate()
                assert worker.wait(30) == 0
            worker = processes.worker()
        done += count
        wait_until(partial(_finished, conn, server, tenants, done, seen), f"{done} runs", timeout_s=60 + count / 20)
    assert done == runs
    last = keys(server)
    assert server.info("commandstats")["cmdstat_lpush"]["calls"] > restarts, "the runs went over this broker"
    assert len(last.keys() - before) <= KEYS_MOST < expected["redis_keys_growth_max"], last
    assert len(seen.keys() - before) <= KEYS_MOST, "nor was there more in between"
    lasting = [name for name, ttl in (seen | last).items() if ttl == -1]
    unnamed = [name for name in lasting if not any(re.fullmatch(known, name) for known in LASTING)]
    assert len(unnamed) == expected["keys_without_ttl_outside_queues"], unnamed
    assert messages(server) == 0, "no message is left in a queue"
    print(f"{runs} runs, {restarts} restarts: {sorted(seen | last)}, at the end {sorted(last)}")


def _finished(
    conn: psycopg.Connection[Any], server: redis.Redis, tenants: tuple[Any, ...], runs: int, seen: dict[str, int]
) -> bool:
    """All runs have succeeded and no ticket is left. Notes which keys the broker has."""
    seen |= keys(server)
    done = sum(succeeded(conn, tenant) for tenant in tenants)
    return done == runs and one(conn, "SELECT count(*) FROM tickets_ticket") == 0


def keys(server: redis.Redis) -> dict[str, int]:
    """All keys, with the seconds that they have left; -1 is for ever."""
    names: list[str] = list(server.scan_iter("*", count=1_000))
    return {name: int(server.ttl(name)) for name in names}


def messages(server: redis.Redis) -> int:
    """How many there are in all queues."""
    return sum(int(server.llen(name)) for name in server.scan_iter("*") if server.type(name) == "list")
