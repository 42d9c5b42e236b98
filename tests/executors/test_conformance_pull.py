"""What every executor promises, for runs that a tenant's own worker pulls: the example worker of the docs, a real web
process and real signals. The promises are those of `test_conformance`; here the database says how they were kept."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import psycopg
import pytest

from apps.dispatch.reconcile import end_lost
from apps.outcomes.cancel import execution_cancel
from apps.schedules.definitions import Definitions
from kernel.clock import utc_now
from kernel.ids import uuid7
from tenants.models import Tenant
from tenants.registry import Registry
from tests.conftest import wait_until
from tests.fixtures_flow import (
    actor,
    assert_exactly_one_outcome,
    attempts_of,
    count,
    execution_of,
    make_job,
    make_ticket,
    ticket_of,
)
from tests.processes import ROOT, Processes, kill

Conn = psycopg.Connection[Any]
RETRY = {"max_attempts": 2, "base_s": 0, "jitter": "none"}
WORK = "tests.executors.pull_tasks:work"


@dataclass
class Pulling:
    """A web process, and the tenant's side of it."""

    conn: Conn
    registry: Registry
    tenant: Tenant
    processes: Processes
    port: int
    key: str
    place: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def worker(self, *, threads: int = 1) -> subprocess.Popen[bytes]:
        url = f"http://127.0.0.1:{self.port}"
        command = [str(ROOT / "docs/examples/pull_worker.py"), url, "jobs", WORK, "--threads", str(threads)]
        self.workers.append(self.processes.program("puller", *command, SHARDBEAT_KEY=self.key))
        return self.workers[-1]

    def run(self, how: str, *, job: dict[str, Any] | None = None, **payload: Any) -> UUID:
        members = {"kind": "pull", "queue": "jobs", "retry": RETRY, "timeout_s": 600, **(job or {})}
        made = make_job(self.tenant, now=utc_now(), **members)
        return make_ticket(self.tenant, made, now=utc_now(), payload={"how": how, **payload})

    def hold(self, **more: Any) -> tuple[UUID, Path]:
        place = self.place / uuid7().hex
        place.mkdir()
        return self.run("hold", place=str(place), **more), place

    def ended(self, run: UUID) -> dict[str, Any]:
        wait_until(lambda: execution_of(self.conn, self.tenant, run)["finished_at"], f"{run} to end")
        found = execution_of(self.conn, self.tenant, run)
        return assert_exactly_one_outcome(self.conn, self.tenant, found["run_key"])

    def expire(self, run: UUID) -> None:
        """Its lease has run out; the reconciler looks once."""
        self.conn.execute(
            "UPDATE tickets_ticket SET deadline = clock_timestamp() - interval '1 second' WHERE execution_id = %s",
            [run],
        )
        end_lost(self.conn, self.registry, Definitions())

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/v1/{path}", method="POST", data=orjson.dumps(body),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, orjson.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, orjson.loads(error.read())


@pytest.fixture(scope="module")
def web_port(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """One web process for all tests here, on the tests' database."""
    from django.conf import settings

    port = free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "DATABASE_URL": settings.DATABASE_URL, "MIGRATION_DATABASE_URL": settings.MIGRATION_DATABASE_URL,
        "PYTHONPATH": f"{ROOT}:{ROOT}/platform", "DJANGO_SETTINGS_MODULE": "config.settings",
    }  # fmt: skip
    running = Processes(environment, tmp_path_factory.mktemp("web"))
    running.web(port)
    yield port
    running.close()


@pytest.fixture
def pulling(
    conn: Conn, registry: Registry, acme: Tenant, processes: Processes, web_port: int, tmp_path: Path
) -> Pulling:
    from tenants.keys import apikey_create

    key = apikey_create(tenant=acme, name="worker", role="worker")[1]
    found = Pulling(conn, registry, acme, processes, web_port, key, tmp_path)
    wait_until(lambda: _answers(found), "the web process to answer")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(pulling: Pulling) -> bool:
    try:
        return pulling.post("queues/nothing/lease", {})[0] == 404
    except OSError:
        return False


def test_success_failure_big_and_hostile_output(pulling: Pulling) -> None:
    runs = {how: pulling.run(how) for how in ("echo", "fail", "give_up", "big", "hostile")}
    pulling.worker(threads=2)
    ended = {how: pulling.ended(run) for how, run in runs.items()}
    assert ended["echo"]["state"] == "succeeded"
    assert ended["echo"]["result"]["run_key"] == ended["echo"]["run_key"]
    for how, tries, name in (("fail", 2, "ValueError"), ("give_up", 1, "GiveUp")):
        assert (ended[how]["state"], ended[how]["attempt_count"]) == ("dead", tries)
        assert ended[how]["error"]["class"] == name
    for how in ("big", "hostile"):  # refused with the reason; the worker says that it failed
        assert (ended[how]["state"], ended[how]["error"]["class"]) == ("dead", "ResultRefused")


def test_a_worker_that_is_killed_costs_an_attempt_and_its_late_word_nothing(pulling: Pulling) -> None:
    """C27, C28: nobody tells of a kill -9; the lease does."""
    run, place = pulling.hold()
    first = pulling.worker()
    wait_until(lambda: (place / "running-1").exists(), "the work to run")
    kill(first)
    assert ticket_of(pulling.conn, run)["state"] == "running", "nothing but the lease says that it is gone"
    pulling.expire(run)
    (place / "go").touch()
    pulling.worker()
    ended = pulling.ended(run)
    assert (ended["state"], ended["attempt_count"]) == ("succeeded", 2)
    assert [one["state"] for one in attempts_of(pulling.conn, pulling.tenant, run)] == ["lost", "succeeded"]


def test_a_frozen_worker_that_wakes_up_too_late_changes_nothing(pulling: Pulling) -> None:
    """C02, C19: stale settlement; at most one copy counts, and the next may start when the lease is over."""
    run, place = pulling.hold(job={"max_concurrency": 1})
    frozen = pulling.worker()
    wait_until(lambda: (place / "running-1").exists(), "the work to run")
    frozen.send_signal(signal.SIGSTOP)
    pulling.expire(run)
    pulling.worker()
    wait_until(lambda: (place / "running-2").exists(), "the next attempt to run")
    (place / "go").touch()
    ended = pulling.ended(run)
    frozen.send_signal(signal.SIGCONT)
    wait_until(lambda: "409" in pulling.processes.log("puller"), "the frozen one to be refused")
    assert pulling.ended(run) == ended
    assert (ended["state"], ended["attempt_count"], ended["result"]) == ("succeeded", 2, "released")


def test_time_out(pulling: Pulling) -> None:
    run, _ = pulling.hold(job={"timeout_s": 1, "retry": {"max_attempts": 1}})
    worker = pulling.worker()
    definitions = Definitions()
    wait_until(lambda: end_lost(pulling.conn, pulling.registry, definitions).counts.get("lost"), "the time-out")
    assert pulling.ended(run)["state"] == "dead"
    [attempt] = attempts_of(pulling.conn, pulling.tenant, run)
    assert attempt["state"] == "timed_out"
    kill(worker)  # else it would hear of the end with its next heartbeat, and the test would wait for that


def test_cancel_while_waiting_and_while_running(pulling: Pulling) -> None:
    running, place = pulling.hold()
    worker = pulling.worker()
    wait_until(lambda: (place / "running-1").exists(), "the work to run")
    waiting = pulling.run("echo")
    for run in (waiting, running):
        execution_cancel(tenant=pulling.tenant, actor=actor(pulling.tenant), execution_id=run, now=utc_now())
    assert pulling.ended(waiting)["state"] == "cancelled"
    pulling.expire(running)  # its next heartbeat is far off: the moment that it is given is over first
    assert pulling.ended(running)["state"] == "cancelled"
    kill(worker)


def test_a_worker_that_is_told_to_stop_gives_back_what_it_does_not_finish(pulling: Pulling) -> None:
    run, place = pulling.hold(job={"retry": {"max_attempts": 1}})
    worker = pulling.worker()
    wait_until(lambda: (place / "running-1").exists(), "the work to run")
    (place / "go").touch()
    worker.terminate()
    assert pulling.ended(run)["state"] in ("succeeded", "dead")
    assert worker.wait(40) == 0


def test_release_uses_up_no_attempt_and_another_gets_it(pulling: Pulling) -> None:
    run = pulling.run("echo", job={"retry": {"max_attempts": 1}})
    _, answer = pulling.post("queues/jobs/lease", {"wait_s": 5})
    [item] = answer["items"]
    assert pulling.post(f"queues/leases/{item['token']}/release", {})[0] == 200
    pulling.worker()
    ended = pulling.ended(run)
    assert (ended["state"], ended["attempt_count"]) == ("succeeded", 2)
    assert pulling.post(f"queues/leases/{item['token']}/complete", {"result": 1})[0] == 409


def test_several_workers_share_a_backlog_and_each_run_ends_once(pulling: Pulling) -> None:
    runs = [pulling.run("echo", job={"name": f"job {number}"}) for number in range(30)]
    for _ in range(3):
        pulling.worker(threads=2)
    assert {pulling.ended(run)["attempt_count"] for run in runs} == {1}


def test_the_web_process_dies_and_the_workers_go_on_with_the_next(pulling: Pulling) -> None:
    pulling.port = free_port()
    web = pulling.processes.web(pulling.port)
    run, place = pulling.hold()
    pulling.worker()
    wait_until(lambda: (place / "running-1").exists(), "the work to run")
    kill_all_of(web)
    (place / "go").touch()
    pulling.processes.web(pulling.port)
    ended = pulling.ended(run)
    assert (ended["state"], ended["attempt_count"]) == ("succeeded", 1), "what it had to say was said to the next"


def test_who_hangs_up_while_waiting_is_given_nothing(pulling: Pulling) -> None:
    """C27: a client that was killed while it waited: the run goes to one that lives."""
    pulling.run("echo", job={"name": "makes the queue"})
    assert len(pulling.post("queues/jobs/lease", {})[1]["items"]) == 1
    gone = pulling.worker()
    seen = "SELECT count(*) FROM tickets_consumer WHERE name <> '(no name)'"
    wait_until(lambda: count(pulling.conn, seen), "the worker to ask")
    kill(gone)
    run = pulling.run("echo")
    pulling.worker()
    assert pulling.ended(run)["attempt_count"] == 1


def kill_all_of(process: subprocess.Popen[bytes]) -> None:
    """A master and its children, which have a session of their own."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
