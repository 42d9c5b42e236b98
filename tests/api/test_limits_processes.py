"""Limits of jobs from the API to a receiver, with real dispatchers and workers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.api.makers import Makers
from tests.conftest import wait_until
from tests.executors.receiver import Receiver
from tests.fixtures_api import Api
from tests.processes import Processes

Conn = psycopg.Connection[Any]


@pytest.mark.long
def test_customers_run_beside_each_other_and_each_one_at_a_time(
    processes: Processes, receiver: Receiver, api: Api, make: Makers, conn: Conn
) -> None:
    processes.dispatcher()
    processes.worker()
    url = receiver.url("/hold/{{ payload.name }}")
    job = make.job(target={"url": url}, concurrency_key={"payload": "/customer/id", "max": 1})
    names = {"1a": 1, "1b": 1, "1c": 1, "2a": 2, "2b": 2}
    items = [{"job": job["id"], "payload": {"name": name, "customer": {"id": n}}} for name, n in names.items()]
    assert api.post("executions/bulk", {"items": items}).body["succeeded"] == len(names)
    for at_once, waiting in ((("1a", "2a"), 3), (("1b", "2b"), 1), (("1c",), 0)):
        for name in at_once:
            receiver.wait_held(name)
        assert states(conn) == {"running": len(at_once), **({"ready": waiting} if waiting else {})}
        assert len(receiver.requests) == len(names) - waiting, "nobody else was called"
        for name in at_once:
            receiver.release(name)
    wait_until(lambda: states(conn) == {}, "all runs to end")


@pytest.mark.long
def test_no_more_start_than_the_burst_and_what_came_back(
    processes: Processes, receiver: Receiver, api: Api, make: Makers, conn: Conn
) -> None:
    processes.dispatcher()
    processes.worker()
    job = make.job(target={"url": receiver.url()}, rate_limit={"runs": 60, "per_s": 60, "burst": 5})
    assert api.post("executions/bulk", {"items": [{"job": job["id"]}] * 12}).body["succeeded"] == 12
    wait_until(lambda: states(conn) == {}, "all runs to end")
    runs = api.get(f"executions?job={job['id']}&page_size=50").body["items"]
    gone = sorted(datetime.fromisoformat(one["queued_at"]) for one in runs)
    for first, began in enumerate(gone):
        for last, ended in enumerate(gone[first:], first):
            most = 5 + (ended - began + timedelta(milliseconds=1)) / timedelta(seconds=1)
            assert last - first + 1 <= most, f"{last - first + 1} in {ended - began}"
    assert gone[4] - gone[0] < timedelta(seconds=1), "the burst at once"
    assert timedelta(seconds=6.5) < gone[11] - gone[0] < timedelta(seconds=9), "then one a second"


def states(conn: Conn) -> dict[str, int]:
    return dict(conn.execute("SELECT state, count(*) FROM tickets_ticket GROUP BY 1").fetchall())
