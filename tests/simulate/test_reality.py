"""A real dispatcher and a real worker against the simulation of what they did. The error is printed, and bounded.

The bounds are wide: what a busy machine does to a worker is no part of the model.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.conftest import wait_until
from tests.fixtures_flow import make_job, make_ticket
from tests.processes import Processes
from tests.simulate.test_history import simulated

RUNS = 100
SLOTS = 8


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_real_run_is_simulated_as_it_was(
    processes: Processes, conn: psycopg.Connection[Any], acme: Any, globex: Any, settings: Any, capsys: Any
) -> None:
    from kernel.clock import utc_now
    from tenants.models import Plan

    heavy = Plan.objects.create(name="heavy", weight=3)
    globex.plan = heavy
    globex.save(update_fields=["plan"])
    settings.PYTHON_TASKS = {**settings.PYTHON_TASKS, "nap": "tests.simulate.tasks:nap"}
    jobs = {tenant: make_job(tenant, target={"task": "nap"}) for tenant in (acme, globex)}
    rng = random.Random(1)
    processes.worker(
        PYTHON_TASKS="nap=tests.simulate.tasks:nap",
        PYTHON_POOL="threads",
        PYTHON_THREADS=str(SLOTS),
        WORKER_POOLS="python",
    )
    processes.dispatcher()
    held = "SELECT count(*) FROM due_shardlease WHERE kind = 'release' AND expires_at > now()"
    wait_until(lambda: one(conn, "SELECT count(*) FROM tickets_worker") == 1 and one(conn, held) > 1, "both processes")
    began = utc_now()
    for _ in range(RUNS):
        for tenant, job in jobs.items():
            make_ticket(tenant, job, now=utc_now(), payload={"s": round(rng.uniform(0.1, 0.7), 2)})
    wait_until(lambda: one(conn, "SELECT count(*) FROM tickets_ticket") == 0, "all runs to end", timeout_s=90)
    ended = utc_now() + timedelta(milliseconds=1)
    found = simulated(capsys, "--from", began.isoformat(), "--to", ended.isoformat())
    with capsys.disabled():
        print(f"\nerror against reality: {found['error']['all']}, by tenant {found['error']['tenants']}")
        print(found["present"]["pools"], found["costs"])
        print(f"worth: {found['worth']}")
    assert found["window"]["runs"] == 2 * RUNS
    assert found["present"]["pools"]["python"]["slots"] == SLOTS
    assert all(abs(found["error"]["all"][name]) < 0.4 for name in ("p50", "p95", "p99"))
    assert all(abs(error["p95"]) < 0.5 for error in found["error"]["tenants"].values())


def one(conn: psycopg.Connection[Any], query: str) -> int:
    return int(conn.execute(query).fetchall()[0][0])
