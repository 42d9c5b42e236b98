"""Real workers of two groups: a tenant moves between them while it runs, and the worker of a group is killed."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.conftest import WAIT_TIMEOUT_S, wait_until
from tests.fixtures_flow import ticket_of
from tests.flow.test_processes import actor, live, one, state, submit, succeeded
from tests.processes import Processes, kill

RUNS = 40


@pytest.mark.timeout(180)
def test_a_tenant_moves_to_a_group_and_a_killed_worker_gives_up_its_slots(
    processes: Processes, conn: psycopg.Connection[Any], acme: Any, settings: Any
) -> None:
    """Nothing is lost or doubled by the move, and a job that runs once at a time does not wait for who is no more."""
    settings.PYTHON_TASKS = {**settings.PYTHON_TASKS, "test.hold": "tests.executors.sample_tasks:hold"}
    more = {"WORKER_POOLS": "python", "PYTHON_TASKS": "test.hold=tests.executors.sample_tasks:hold"}
    processes.dispatcher()
    shared, vip = processes.worker(**more), processes.worker(WORKER_GROUP="vip", **more)
    wait_until(lambda: live(conn, "tickets_worker") == 2, "two workers")
    with tempfile.TemporaryDirectory(prefix="sb") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/line")
        listener.listen(8)
        listener.settimeout(WAIT_TIMEOUT_S)
        try:
            for number in range(RUNS):
                submit(acme, task="shardbeat.noop")
                if number == RUNS // 2:
                    wait_until(lambda: succeeded(conn, acme) > 0, "runs on the shared workers")
                    move(acme, "vip")
            wait_until(lambda: succeeded(conn, acme) == RUNS, "all runs")
            wait_until(lambda: "python.own.acme@vip" in queues(conn, vip.pid), "the group's worker to follow")
            wait_until(lambda: "python.own.acme" not in queues(conn, shared.pid), "the shared ones to leave")
            attempts = f"SELECT count(*) FROM {acme.schema_name}.executions_attempt"
            assert one(conn, attempts) == RUNS, "each once"

            first, second = hold_twice(acme, folder)
            line, _ = listener.accept()
            wait_until(
                lambda: {ticket_of(conn, run)["state"] for run in (first, second)} == {"running", "ready"}, "one"
            )
            kill(vip)
            line.close()
            processes.worker(WORKER_GROUP="vip", **more)
            for _ in (first, second):  # the one that waited, and the lost one again: only when its slot is free
                answer(listener)
            wait_until(lambda: succeeded(conn, acme) == RUNS + 2, "both runs")
            assert state(conn, acme, first) == state(conn, acme, second) == "succeeded"
            assert one(conn, f"{attempts} WHERE state = 'lost'") == 1
        finally:
            move(acme, "")


def move(tenant: Any, group: str) -> None:
    """What an operator does in the admin."""
    type(tenant).objects.filter(pk=tenant.pk).update(worker_group=group)


def hold_twice(tenant: Any, folder: str) -> tuple[UUID, UUID]:
    """Two runs of a job that may run once at a time and that waits for the test."""
    from apps.dispatch.submission import execution_submit
    from apps.schedules.services import job_create
    from kernel.clock import utc_now
    from tenants import door

    data = {
        "name": "once at a time", "kind": "python", "target": {"task": "test.hold"}, "max_concurrency": 1,
        "payload": {"path": str(Path(folder) / "line")}, "retry": {"max_attempts": 3, "base_s": 1},
    }  # fmt: skip
    with door.inside(tenant):
        job = job_create(tenant=tenant, actor=actor(tenant), data=data, now=utc_now()).job.id
        first, second = (
            execution_submit(tenant=tenant, actor=actor(tenant), data={"job": str(job)}, now=utc_now())
            for _ in range(2)
        )
    return first, second


def answer(listener: socket.socket) -> None:
    """Lets the next run that begins go on, and waits until it is over."""
    line, _ = listener.accept()
    with line:
        line.sendall(b"x")
        while line.recv(64):
            pass


def queues(conn: psycopg.Connection[Any], pid: int) -> list[str]:
    row = conn.execute("SELECT queues FROM tickets_worker WHERE pid = %s", [pid]).fetchone()
    return list(row[0]) if row else []
