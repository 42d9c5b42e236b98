"""Runs with a real dispatcher and a real worker: wide and long ones, each step once and not before what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from kernel.clock import utc_now
from tests.conftest import wait_until
from tests.processes import Processes
from tests.workflows.engine import make_workflow, step

if TYPE_CHECKING:
    from tenants.models import Tenant

Conn = psycopg.Connection[Any]


def diamond(size: int) -> list[dict[str, Any]]:
    """A first step, a last one, and all others between them."""
    middle = [f"m{at}" for at in range(size - 2)]
    return [step("first"), *(step(name, "first") for name in middle), step("last", *middle)]


def chain(size: int) -> list[dict[str, Any]]:
    return [step(f"s{at}", *([f"s{at - 1}"] if at else [])) for at in range(size)]


def test_a_diamond_of_fifty_and_a_chain_of_twenty(processes: Processes, conn: Conn, acme: Tenant) -> None:
    run_all(processes, conn, acme, diamond(50), chain(20))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_diamond_of_a_thousand_and_a_chain_of_two_hundred(processes: Processes, conn: Conn, acme: Tenant) -> None:
    run_all(processes, conn, acme, diamond(1_000), chain(200), timeout_s=240)


def run_all(
    processes: Processes, conn: Conn, tenant: Tenant, *graphs: list[dict[str, Any]], timeout_s: float | None = None
) -> None:
    processes.dispatcher()
    processes.worker()
    runs = [start(tenant, make_workflow(tenant, steps)) for steps in graphs]
    query = f"SELECT count(*) FROM {tenant.schema_name}.executions_execution WHERE id = ANY(%s) AND finished_at IS NULL"
    wait_until(lambda: conn.execute(query, [runs]).fetchone() == (0,), "the runs to end", timeout_s=timeout_s)
    for run_id, steps in zip(runs, graphs, strict=True):
        assert_each_ran_once_after_its_parents(conn, tenant, run_id, steps)
    assert conn.execute("SELECT count(*) FROM tickets_ticket").fetchone() == (0,)


def start(tenant: Tenant, workflow: UUID) -> UUID:
    from apps.schedules.running import Run, run_start, share_job
    from tenants.work import in_tenant

    run = Run(trigger="api", fired_by="test", payload_from="job")
    return in_tenant(tenant, lambda: run_start(tenant, share_job(tenant, workflow), run, now=utc_now()))


def assert_each_ran_once_after_its_parents(
    conn: Conn, tenant: Tenant, run_id: UUID, steps: list[dict[str, Any]]
) -> None:
    rows = conn.execute(
        f"SELECT step, state, attempt_count, created_at, finished_at FROM {tenant.schema_name}.executions_execution"
        " WHERE workflow_run_id = %(run)s AND id <> %(run)s",
        {"run": run_id},
    ).fetchall()
    found = {name: times for name, state, tries, *times in rows if [state, tries] == ["succeeded", 1]}
    assert len(rows) == len(steps) and found.keys() == {one["name"] for one in steps}
    for one in steps:
        for need in one.get("needs", []):
            assert found[one["name"]][0] >= found[need["step"]][1], f"{one['name']} began before {need['step']} ended"
    table = f"{tenant.schema_name}.executions_execution"
    assert conn.execute(f"SELECT state FROM {table} WHERE id = %s", [run_id]).fetchone() == ("succeeded",)
