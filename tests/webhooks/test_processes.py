"""The receiver of the docs, a web process, dispatchers and workers: real processes, killed in the middle."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from kernel.clock import utc_now
from tests.conftest import wait_until
from tests.executors.test_conformance_pull import free_port
from tests.fixtures_api import Api
from tests.fixtures_flow import actor, count, make_schedule
from tests.fixtures_people import People
from tests.processes import ROOT, Processes, kill
from tests.webhooks.hands import deliveries_of, events_of

Conn = psycopg.Connection[Any]
PROGRAM = str(ROOT / "docs/examples/webhook_receiver.py")


@dataclass
class Receiving:
    """The receiver of the docs at an address of its own."""

    processes: Processes
    place: Path
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def database(self) -> str:
        return str(self.place / "events.db")

    def start(self, secret: str) -> subprocess.Popen[bytes]:
        told = self.processes.log("receiver").count("listening")
        command = [PROGRAM, f"127.0.0.1:{self.port}", self.database]
        process = self.processes.program("receiver", *command, SHARDBEAT_WEBHOOK_SECRET=secret)
        wait_until(lambda: self.processes.log("receiver").count("listening") > told, "the receiver to listen")
        return process

    def stored(self) -> set[str]:
        if not Path(self.database).exists():
            return set()
        with closing(sqlite3.connect(self.database, timeout=10)) as connection:
            try:
                return {row[0] for row in connection.execute("SELECT id FROM event")}
            except sqlite3.OperationalError:  # it has not made its tables yet
                return set()


@pytest.fixture
def receiving(processes: Processes, tmp_path: Path) -> Iterator[Receiving]:
    yield Receiving(processes, tmp_path)


def pause(tenant: Any, schedule: UUID) -> None:
    """An event."""
    from apps.schedules.services import schedule_pause, schedule_resume

    schedule_pause(tenant=tenant, actor=actor(tenant), schedule_id=schedule, now=utc_now())
    schedule_resume(tenant=tenant, actor=actor(tenant), schedule_id=schedule, now=utc_now())


@pytest.mark.timeout(240)
def test_every_event_arrives_through_every_death(
    processes: Processes, receiving: Receiving, conn: Conn, acme: Any, acme_people: People
) -> None:
    api = Api(acme_people.admin)
    hook = api.post("webhooks", {"url": receiving.url, "types": ["schedule.paused", "schedule.resumed"]}).body
    receiving.start(hook["signing_secret"])
    dispatchers, workers = [processes.dispatcher(), processes.dispatcher()], [processes.worker()]
    schedule = make_schedule(acme, cron="0 0 1 1 *", now=utc_now())
    pause(acme, schedule)
    wait_until(lambda: len(receiving.stored()) == 2, "the first two events to arrive", timeout_s=60)

    assert api.post(f"webhooks/{hook['id']}/test").status == 202
    wait_until(lambda: "webhook.test" in processes.log("receiver"), "the test to arrive")

    for _ in range(10):
        pause(acme, schedule)
    kill(dispatchers[0])
    kill(workers[0])
    for _ in range(10):
        pause(acme, schedule)
    processes.worker()
    wanted = {str(one["id"]) for one in events_of(conn, acme)}
    assert len(wanted) == 42
    wait_until(lambda: receiving.stored() == wanted, "every event to arrive", timeout_s=120)
    made = deliveries_of(conn, acme)
    assert len(made) == 43 and len({one["run_key"] for one in made}) == 43  # and the test
    assert "refused" not in processes.log("receiver")
    wait_until(lambda: count(conn, "SELECT count(*) FROM tickets_ticket") == 0, "all to be settled", timeout_s=60)
    assert len(events_of(conn, acme)) == 42


@pytest.mark.timeout(180)
def test_a_receiver_that_was_away_and_one_with_another_secret(
    processes: Processes, receiving: Receiving, conn: Conn, acme: Any, acme_people: People
) -> None:
    """What was refused is tried again; what is read over the API is the same."""
    api = Api(acme_people.admin)
    hook = api.post("webhooks", {"url": receiving.url, "types": ["*"]}).body
    stranger = receiving.start("whsec_" + "A" * 32)
    processes.dispatcher()
    processes.worker()
    schedule = make_schedule(acme, cron="0 0 1 1 *", now=utc_now())
    pause(acme, schedule)
    wait_until(lambda: processes.log("receiver").count("no signature fits") >= 2, "two refusals", timeout_s=60)
    read = f"webhooks/{hook['id']}"
    wait_until(lambda: api.get(read).body["failures"] >= 2, "the failures to be noted")
    assert receiving.stored() == set() and api.get(read).body["last_error"] == "The target answered 400."
    kill(stranger)
    receiving.start(hook["signing_secret"])
    wait_until(lambda: len(receiving.stored()) == 2, "both to be sent again", timeout_s=60)  # the first wait is 10 s
    wait_until(lambda: api.get(read).body["failing_since"] is None, "the webhook to be well again")

    web = free_port()
    processes.web(web)
    wait_until(lambda: _answers(web), "the web process", timeout_s=60)
    for turn in ("first", "second"):
        base = f"http://127.0.0.1:{web}"
        command = [PROGRAM, "--catch-up", base, str(receiving.place / "other.db")]
        program = processes.program("reader", *command, SHARDBEAT_KEY=acme_people.viewer)
        assert program.wait(60) == 0, processes.log("reader")
        assert processes.log("reader").count("caught up") == 2, turn


def _answers(port: int) -> bool:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
