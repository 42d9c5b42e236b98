"""Runs with real dispatchers and workers: chains and diamonds end, and each step runs once, through deaths too."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from kernel.clock import utc_now
from tests.conftest import wait_until
from tests.flow.test_processes import live, served
from tests.processes import Processes, kill
from tests.workflows.engine import make_workflow, step

Conn = psycopg.Connection[Any]
EDGE_P50_MS = 150  # from the end of a step to the start of the next one, on an idle machine


def chain(length: int) -> list[dict[str, Any]]:
    return [step("s0"), *(step(f"s{at}", f"s{at - 1}") for at in range(1, length))]


def diamond(width: int) -> list[dict[str, Any]]:
    """One step, so many that need it, and one that needs all of these."""
    middle = [f"m{at}" for at in range(width)]
    return [step("first"), *(step(name, "first") for name in middle), step("last", *middle)]


def begin(tenant: Any, steps: list[dict[str, Any]]) -> UUID:
    from apps.schedules.running import Run, run_start, share_job
    from tenants.work import in_tenant

    workflow = make_workflow(tenant, steps, attempts=10)
    given = Run(trigger="api", fired_by="test")
    return in_tenant(tenant, lambda: run_start(tenant, share_job(tenant, workflow), given, now=utc_now()))


def has_succeeded(conn: Conn, tenant: Any, run_id: UUID) -> bool:
    query = sql.SQL("SELECT state FROM {} WHERE id = %s").format(
        sql.Identifier(tenant.schema_name, "executions_execution")
    )
    row = conn.execute(query, [run_id]).fetchone()
    assert row is not None
    return bool(row[0] == "succeeded")


def steps_of(conn: Conn, tenant: Any, run_id: UUID) -> dict[str, tuple[Any, ...]]:
    """(executions, started_at, finished_at) by step; each has succeeded."""
    query = sql.SQL(
        "SELECT step, count(*), min(started_at), max(finished_at), bool_and(state = 'succeeded') FROM {}"
        " WHERE workflow_run_id = %s AND step IS NOT NULL GROUP BY 1"
    ).format(sql.Identifier(tenant.schema_name, "executions_execution"))
    rows = conn.execute(query, [run_id]).fetchall()
    assert all(row[4] for row in rows)
    return {row[0]: row[1:4] for row in rows}


def assert_in_order(steps: list[dict[str, Any]], found: dict[str, tuple[Any, ...]]) -> list[float]:
    """Each step ran once and after all that it needs; the waits between, in milliseconds."""
    assert {name: row[0] for name, row in found.items()} == {one["name"]: 1 for one in steps}
    waits = []
    for one in steps:
        ends = [found[edge["step"]][2] for edge in one.get("needs", [])]
        if ends:
            waits.append((found[one["name"]][1] - max(ends)).total_seconds() * 1_000)
    assert min(waits) >= 0
    return waits


@pytest.mark.timeout(120)
def test_a_chain_and_a_diamond_run_while_a_worker_dies(processes: Processes, conn: Conn, acme: Any) -> None:
    processes.dispatcher()
    first = processes.worker()
    wait_until(lambda: live(conn, "tickets_worker") == 1 and served(conn) > 0, "a dispatcher and a worker")
    shapes = [chain(20), diamond(50)]
    runs = [begin(acme, steps) for steps in shapes]
    wait_until(partial(has_succeeded, conn, acme, runs[1]), "the diamond")
    kill(first)
    processes.worker()
    wait_until(partial(has_succeeded, conn, acme, runs[0]), "the chain", timeout_s=60)
    for run_id, steps in zip(runs, shapes, strict=True):
        assert_in_order(steps, steps_of(conn, acme, run_id))


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_long_chain_and_a_wide_diamond_run(processes: Processes, conn: Conn, acme: Any) -> None:
    processes.dispatcher()
    processes.worker()
    wait_until(lambda: live(conn, "tickets_worker") == 1 and served(conn) > 0, "a dispatcher and a worker")
    for name, steps in (("diamond", diamond(998)), ("chain", chain(200))):
        run_id = begin(acme, steps)
        wait_until(partial(has_succeeded, conn, acme, run_id), f"the {name}", timeout_s=180)
        waits = assert_in_order(steps, steps_of(conn, acme, run_id))
        print(f"{name}: {len(steps)} steps, p50 of an edge {statistics.median(waits):.0f} ms")  # `pytest -s` shows it
        if name == "chain":
            assert statistics.median(waits) < EDGE_P50_MS
