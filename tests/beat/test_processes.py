"""Real beats, a real worker, a real broker: killed, emptied, told to stop. Each slot runs once."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import psycopg
import pytest
import redis

from tests.beat.tasks import RUNS
from tests.conftest import wait_until
from tests.processes import QUIET, Processes, kill

Conn = psycopg.Connection[Any]
STOP_S = 10.0


@pytest.fixture
def every_second(periodic: Any) -> Any:
    """A task that notes its runs, each second from now on."""
    return periodic("every second", task="tests.beat.record", changed_at=None)


@pytest.mark.timeout(180)
def test_two_beats_run_each_slot_once_also_when_one_of_them_is_killed(
    processes: Processes, broker: Any, every_second: Any, conn: Conn
) -> None:
    beats = [processes.beat(), processes.beat()]
    worker(processes)
    wait_until(lambda: live(conn) == 2, "both beats")
    wait_until(lambda: ended(conn) >= 4, "the first runs")
    kill(beats[0])
    before = ended(conn)
    wait_until(lambda: ended(conn) >= before + 4, "runs by the other one")
    type(every_second).objects.filter(pk=every_second.pk).update(enabled=False)
    wait_until(lambda: waiting(conn) == 0, "what was made to be run")
    every_second.refresh_from_db()
    assert runs(broker) == sorted(slot_ids(conn))
    assert every_second.total_run_count == len(slot_ids(conn))


@pytest.mark.timeout(180)
def test_what_an_emptied_broker_forgot_is_sent_again_and_what_was_sent_twice_runs_once(
    processes: Processes, broker: Any, every_second: Any, conn: Conn
) -> None:
    type(every_second).objects.filter(pk=every_second.pk).update(one_off=True)
    processes.beat()
    wait_until(lambda: sends(conn) == 1, "the slot to be sent")
    with redis.Redis.from_url(broker.url) as client:
        wait_until(lambda: client.llen("shardbeat.system") == 1, "its message")
        client.flushall()
        wait_until(lambda: sends(conn) == 2, "it to be sent again")
        (message,) = wait_until(lambda: client.lrange("shardbeat.system", 0, -1), "its second message")
        client.lpush("shardbeat.system", message, message)  # a broker that delivers more than once
        worker(processes)
        wait_until(lambda: ended(conn) == 1, "the run")
        wait_until(lambda: client.llen("shardbeat.system") == 0, "all messages to be taken")
    assert runs(broker) == slot_ids(conn)
    assert len(slot_ids(conn)) == 1


@pytest.mark.timeout(120)
def test_a_beat_that_is_told_to_stop_gives_its_leases_up(processes: Processes, every_second: Any, conn: Conn) -> None:
    beat = processes.beat()
    wait_until(lambda: held(conn) == 64, "all shards")
    asked_at = time.monotonic()
    beat.terminate()
    assert beat.wait(STOP_S) == 0
    assert time.monotonic() - asked_at < STOP_S
    assert (held(conn), live(conn)) == (0, 0)


@pytest.mark.timeout(120)
def test_a_beat_whose_broker_is_frozen_stops_in_time_too(
    processes: Processes, broker: Any, every_second: Any, conn: Conn
) -> None:
    beat = processes.beat()
    wait_until(lambda: held(conn) == 64 and sends(conn), "a beat at work")
    pid = broker_pid(broker)
    os.kill(pid, signal.SIGSTOP)
    try:
        beat.terminate()
        assert beat.wait(STOP_S) == 0
    finally:
        os.kill(pid, signal.SIGCONT)


def worker(processes: Processes) -> None:
    """A worker that knows the test's task and serves the platform's queue only."""
    command = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "workers.app", "worker", *QUIET]
    processes._start("worker", [*command, "-I", "tests.beat.tasks", "-Q", "shardbeat.system"], {"WORKER_POOLS": "http"})


def broker_pid(broker: Any) -> int:
    with redis.Redis.from_url(broker.url) as client:
        info: Any = client.info("server")
        return int(info["process_id"])


def runs(broker: Any) -> list[int]:
    with redis.Redis.from_url(broker.url) as client:
        found: Any = client.lrange(RUNS, 0, -1)
        return sorted(int(one) for one in found)


def one(conn: Conn, query: str) -> int:
    row = conn.execute(query).fetchone()
    assert row is not None
    return int(row[0] or 0)


def slot_ids(conn: Conn) -> list[int]:
    return [row[0] for row in conn.execute("SELECT id FROM due_beatslot")]


def ended(conn: Conn) -> int:
    return one(conn, "SELECT count(*) FROM due_beatslot WHERE finished_at IS NOT NULL")


def waiting(conn: Conn) -> int:
    return one(conn, "SELECT count(*) FROM due_beatslot WHERE finished_at IS NULL")


def sends(conn: Conn) -> int:
    return one(conn, "SELECT max(sends) FROM due_beatslot")


def live(conn: Conn) -> int:
    return one(conn, "SELECT count(*) FROM due_dispatcher WHERE expires_at > clock_timestamp()")


def held(conn: Conn) -> int:
    query = "SELECT count(*) FROM due_shardlease WHERE kind = 'fire' AND owner IS NOT NULL"
    return one(conn, query + " AND expires_at > clock_timestamp()")
