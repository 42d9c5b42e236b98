"""Windows of real history and of schedules to come, read from real tables and simulated."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.core.management import call_command

from kernel.ids import attempt_id, first_id_at
from tests.commands import run_command
from tests.fixtures_flow import live_worker, make_job, make_schedule, queue_of
from tests.workflows.engine import make_workflow, step

Conn = psycopg.Connection[Any]
BEGAN = datetime(2025, 1, 6, 10, 0, tzinfo=UTC)
RUNS = 120


@pytest.fixture
def busy(acme: Any, globex: Any, conn: Conn) -> Any:
    """Two tenants shared four slots: 120 runs of a second each were due within a minute, first come, first served."""
    jobs = {acme: make_job(acme, name="sync"), globex: make_job(globex, name="sync")}
    free = [BEGAN] * 4
    worker = uuid.uuid4()
    for number in range(RUNS):
        tenant = globex if number % 3 == 0 else acme
        due = BEGAN + timedelta(seconds=number * 0.5)
        slot = min(range(4), key=free.__getitem__)
        started = max(due + timedelta(milliseconds=30), free[slot])
        free[slot] = started + timedelta(seconds=2.2)
        add_run(conn, tenant, jobs[tenant], due, started, free[slot], worker, number)
    return jobs


def add_run(conn: Conn, tenant: Any, job: Any, due: Any, started: Any, ended: Any, worker: Any, number: int) -> None:
    made = uuid.UUID(int=first_id_at(due).int + number + 1)
    conn.execute(
        f"INSERT INTO {tenant.schema_name}.executions_execution (id, run_key, job_id, job_version, trigger, state,"
        " priority, actual_at, created_at, queued_at, started_at, finished_at, attempt_count, reason, count, fired_by)"
        " VALUES (%s, %s, %s, 1, 'api', 'succeeded', 5, %s, %s, %s, %s, %s, 1, '', 1, 'test')",
        [made, made.hex, job, due, due, started - timedelta(milliseconds=10), started, ended],
    )
    conn.execute(
        f"INSERT INTO {tenant.schema_name}.executions_attempt"
        " (id, execution_id, number, fence, state, worker_id, started_at, finished_at)"
        " VALUES (%s, %s, 1, %s, 'succeeded', %s, %s, %s)",
        [attempt_id(made, 1), made, number + 1, worker, started, ended],
    )


def simulated(capsys: Any, *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    call_command("simulate", *arguments, "--format", "json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def window(seconds: float) -> tuple[str, ...]:
    return "--from", BEGAN.isoformat(), "--to", (BEGAN + timedelta(seconds=seconds)).isoformat()


def test_history_is_simulated_as_it_was_and_as_it_might_be(busy: Any, capsys: Any) -> None:
    found = simulated(capsys, *window(120), "--set", "slots.python=8", "--set", "tenant.acme.weight=3")
    assert found["window"]["runs"] == RUNS
    assert {slug: one["runs"] for slug, one in found["reality"].items()} == {"acme": 80, "globex": 40}
    assert found["present"]["pools"]["python"]["slots"] == 4, "as many as ran at once"
    assert abs(found["error"]["all"]["p95"]) < 0.3
    assert found["what_if"]["all"]["p95"] < found["present"]["all"]["p95"] / 2
    assert found["worth"]["verdict"] == "little"
    assert any("no worker of python is alive" in reason for reason in found["worth"]["reasons"])


def test_slots_of_living_workers_are_taken(busy: Any, conn: Conn, registry: Any, acme: Any, capsys: Any) -> None:
    live_worker(conn, slots=2, queues=[queue_of(registry, acme)])
    found = simulated(capsys, *window(120))
    assert found["present"]["pools"]["python"]["slots"] == 2
    assert any("4 runs of python ran at once" in reason for reason in found["worth"]["reasons"])
    assert found["error"]["all"]["p95"] > 1, "half the slots, and more than twice the wait"


def test_too_much_and_nonsense_are_refused(busy: Any, capsys: Any) -> None:
    for arguments in (
        ("--from", "2025-01-06T10:00:00Z"), ("--from", "2025-01-06T10:00:00Z", "--to", "2025-01-06T09:00:00Z"),
        (*window(120), "--set", "schedule.x.cron=* * * * *"), (*window(120), "--set", "tenant.nobody.weight=2"),
        ("--synthetic", "/nowhere.json"), ("--plan", "--set", "peak=-1"),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            call_command("simulate", *arguments)
        assert ended.value.code == 2, arguments
        assert capsys.readouterr().err


def test_schedules_to_come_with_and_without_jitter(acme: Any, conn: Conn, registry: Any, capsys: Any) -> None:
    from kernel.clock import utc_now

    now = utc_now()
    job = make_job(acme)
    for _ in range(20):
        make_schedule(acme, job, now=now)
    workflow = make_workflow(acme, [step("extract")])
    make_schedule(acme, now=now, workflow=str(workflow))
    live_worker(conn, slots=1, queues=[queue_of(registry, acme)])
    found = simulated(capsys, "--next", "10", "--set", "schedule.acme/*.jitter_s=50")
    assert 180 <= found["window"]["runs"] <= 220
    assert "1 schedules of workflows" in found["worth"]["reasons"][0]
    assert found["present"]["all"]["p95"] > 10, "twenty runs at once and one slot"
    assert found["what_if"]["all"]["p95"] < found["present"]["all"]["p95"] - 2


def test_a_plan_says_what_a_size_needs(capsys: Any) -> None:
    code, out, _ = run_command(
        "simulate", "--plan", "--set", "database_cores=1", "--set", "runs_per_day=100000000", "--format", "json"
    )
    found = json.loads(out)
    assert code == 1, "it is not enough"
    parts = {part["name"]: part for part in found["parts"]}
    assert parts["database cores"]["given"] == 1
    assert parts["database cores"]["most_per_s"] < parts["dispatchers"]["most_per_s"]
    assert found["bottleneck"] == {"part": "database cores", "most_per_s": parts["database cores"]["most_per_s"],
                                   "holds": False}  # fmt: skip
    assert found["assumptions"] and all(figure["source"] for figure in found["figures"].values())
    call_command("simulate", "--plan")
    text = capsys.readouterr().out
    assert "Gives way first" in text and "Assumptions" in text


def test_words(busy: Any, capsys: Any) -> None:
    call_command("simulate", *window(120), "--set", "slots.python=8")
    text = capsys.readouterr().out
    assert "Present settings against reality" in text and "What if slots.python=8" in text and "globex" in text
    call_command("simulate", "--synthetic", "weights", "--limit", "0.2")
    assert "held back by" in capsys.readouterr().out
