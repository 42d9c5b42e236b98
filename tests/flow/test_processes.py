"""Real dispatchers, workers and brokers: killed, frozen, emptied. No occurrence is lost, none runs twice."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.conftest import wait_until
from tests.processes import Processes, kill

SCHEDULES = 20
TAKEOVER_S = 8.0
LATE_P99_S = 10.0


@pytest.mark.timeout(240)
def test_nothing_is_lost_or_doubled_through_every_death(
    processes: Processes, broker: Any, conn: psycopg.Connection[Any], acme: Any, globex: Any
) -> None:
    dispatchers = [processes.dispatcher(), processes.dispatcher()]
    workers = [processes.worker(), processes.worker()]
    wait_until(lambda: served(conn) == 64 and live(conn, "tickets_worker") == 2, "all shards served, two workers")
    made = {tenant: [every_second(tenant, number) for number in range(SCHEDULES)] for tenant in (acme, globex)}

    wait_until(lambda: succeeded(conn, acme) >= 3 * SCHEDULES, "the first runs")

    killed_at = time.monotonic()
    victim = holder(conn)
    kill(next(one for one in dispatchers if one.pid == victim))
    kill(workers[0])
    wait_until(lambda: served_by_others(conn, victim) == 64, "every shard to be served again", timeout_s=TAKEOVER_S)
    assert time.monotonic() - killed_at < TAKEOVER_S

    survivor = next(one for one in dispatchers if one.pid != victim)
    processes.worker()
    broker.stop()
    broker.start()  # empty: it keeps nothing
    runs = succeeded(conn, globex)
    wait_until(lambda: succeeded(conn, globex) > runs + 3 * SCHEDULES, "runs after the broker came back empty")

    others_lived_until = one(conn, "SELECT clock_timestamp()")
    os.kill(survivor.pid, signal.SIGSTOP)
    wait_until(lambda: served(conn) == 0, "the frozen dispatcher's leases to run out")
    processes.dispatcher()
    wait_until(lambda: served_by_others(conn, survivor.pid) == 64, "the takeover from the frozen one")
    os.kill(survivor.pid, signal.SIGCONT)
    runs = succeeded(conn, globex)
    wait_until(lambda: succeeded(conn, globex) > runs + 2 * SCHEDULES, "runs after the frozen one went on")

    for tenant, schedules in made.items():
        pause(tenant, schedules)
    wait_until(lambda: one(conn, "SELECT count(*) FROM tickets_ticket") == 0, "all tickets to be settled", timeout_s=60)
    for tenant, schedules in made.items():
        for schedule_id in schedules:
            assert_complete(conn, tenant, schedule_id)
    assert 0 < late_p99_s(conn, list(made), before=others_lived_until) < LATE_P99_S


@pytest.mark.timeout(120)
def test_a_worker_that_is_told_to_stop_hands_its_work_back(
    processes: Processes, conn: psycopg.Connection[Any], acme: Any
) -> None:
    processes.dispatcher()
    first = processes.worker()
    wait_until(lambda: live(conn, "tickets_worker") == 1, "the worker")
    execution = submit(acme, task="shardbeat.noop")
    wait_until(lambda: state(conn, acme, execution) == "succeeded", "a run")
    first.terminate()
    assert first.wait(30) == 0
    assert live(conn, "tickets_worker") == 0
    execution = submit(acme, task="shardbeat.echo")
    processes.worker()
    wait_until(lambda: state(conn, acme, execution) == "succeeded", "the run that waited for a worker")


def every_second(tenant: Any, number: int) -> UUID:
    """A schedule of a no-op job that is due each second and may miss nothing."""
    from apps.schedules.services import schedule_create
    from kernel.clock import utc_now
    from tenants import door

    with door.inside(tenant):
        job = job_of(tenant, "shardbeat.noop")
        data = {
            "name": f"every second {number}", "job": str(job), "trigger": {"every_s": 1}, "misfire": "fire_all",
            "misfire_max": 1000,
        }  # fmt: skip
        return schedule_create(tenant=tenant, actor=actor(tenant), data=data, now=utc_now()).schedule.id


def job_of(tenant: Any, task: str) -> UUID:
    from apps.schedules.models import Job
    from apps.schedules.services import job_create
    from kernel.clock import utc_now

    found = Job.objects.filter(name=task).first()
    if found is not None:
        return found.id
    data = {"name": task, "kind": "python", "target": {"task": task}, "retry": {"max_attempts": 10, "base_s": 1}}
    return job_create(tenant=tenant, actor=actor(tenant), data=data, now=utc_now()).job.id


def submit(tenant: Any, *, task: str) -> UUID:
    from apps.dispatch.submission import execution_submit
    from kernel.clock import utc_now
    from tenants import door

    with door.inside(tenant):
        data = {"job": str(job_of(tenant, task))}
        return execution_submit(tenant=tenant, actor=actor(tenant), data=data, now=utc_now())


def pause(tenant: Any, schedules: list[UUID]) -> None:
    from apps.schedules.services import schedule_pause
    from kernel.clock import utc_now
    from tenants import door

    with door.inside(tenant):
        for schedule_id in schedules:
            schedule_pause(tenant=tenant, actor=actor(tenant), schedule_id=schedule_id, now=utc_now())


def actor(tenant: Any) -> Any:
    from apps.audit.services import Actor

    return Actor(name="test", role="admin", tenant_id=tenant.pk)


def assert_complete(conn: psycopg.Connection[Any], tenant: Any, schedule_id: UUID) -> None:
    """Each second from the first to the last has exactly one execution, and each of them succeeded once."""
    rows = conn.execute(
        f"SELECT nominal_at, state, run_key FROM {tenant.schema_name}.executions_execution"
        " WHERE schedule_id = %s AND state <> 'skipped' ORDER BY nominal_at",
        [schedule_id],
    ).fetchall()
    nominals: list[datetime] = [row[0] for row in rows]
    assert len(nominals) > 10
    steps = {later - earlier for earlier, later in pairwise(nominals)}
    assert steps == {timedelta(seconds=1)}, f"lost or doubled around {schedule_id}"
    assert {row[1] for row in rows} == {"succeeded"}
    attempts = conn.execute(
        f"SELECT e.run_key, count(*) FILTER (WHERE a.state = 'succeeded'), count(DISTINCT a.number), count(*)"
        f" FROM {tenant.schema_name}.executions_execution e JOIN {tenant.schema_name}.executions_attempt a"
        " ON a.execution_id = e.id WHERE e.schedule_id = %s GROUP BY 1",
        [schedule_id],
    ).fetchall()
    assert len(attempts) == len(rows)
    assert {row[1] for row in attempts} == {1}
    assert all(row[2] == row[3] for row in attempts)


def late_p99_s(conn: psycopg.Connection[Any], tenants: list[Any], *, before: datetime) -> float:
    """Dispatch lateness that 99 in 100 of the runs had at most that were due before an instant."""
    runs = " UNION ALL ".join(
        f"SELECT actual_at, queued_at - actual_at AS late FROM {one.schema_name}.executions_execution"
        " WHERE state = 'succeeded'"
        for one in tenants
    )
    query = (
        "SELECT extract(epoch FROM percentile_disc(0.99) WITHIN GROUP (ORDER BY late))::float8"
        f" FROM ({runs}) r WHERE actual_at < %s"
    )
    return float(conn.execute(query, [before]).fetchone()[0])  # type: ignore[index]  # an aggregate has a row


def served(conn: psycopg.Connection[Any]) -> int:
    return int(
        one(
            conn, "SELECT count(*) FROM due_shardlease WHERE kind = 'fire' AND owner IS NOT NULL AND expires_at > now()"
        )
    )


def served_by_others(conn: psycopg.Connection[Any], pid: int) -> int:
    query = (
        "SELECT count(*) FROM due_shardlease l JOIN due_dispatcher d ON d.id = l.owner"
        " WHERE l.kind = 'fire' AND l.expires_at > clock_timestamp() AND d.pid <> %s"
    )
    return int(conn.execute(query, [pid]).fetchone()[0])  # type: ignore[index]  # count(*) always has a row


def holder(conn: psycopg.Connection[Any]) -> int:
    """The process that holds the first shard."""
    query = "SELECT d.pid FROM due_shardlease l JOIN due_dispatcher d ON d.id = l.owner WHERE l.kind = 'fire' LIMIT 1"
    return int(one(conn, query))


def live(conn: psycopg.Connection[Any], table: str) -> int:
    return int(one(conn, f"SELECT count(*) FROM {table} WHERE expires_at > clock_timestamp()"))


def succeeded(conn: psycopg.Connection[Any], tenant: Any) -> int:
    return int(one(conn, f"SELECT count(*) FROM {tenant.schema_name}.executions_execution WHERE state = 'succeeded'"))


def state(conn: psycopg.Connection[Any], tenant: Any, execution_id: UUID) -> str:
    query = f"SELECT state FROM {tenant.schema_name}.executions_execution WHERE id = %s"
    return str(conn.execute(query, [execution_id]).fetchone()[0])  # type: ignore[index]  # it was made by the test


def one(conn: psycopg.Connection[Any], query: str) -> Any:
    row = conn.execute(query).fetchone()
    assert row is not None
    return row[0]
