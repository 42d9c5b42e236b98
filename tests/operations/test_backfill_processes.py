"""A month of hours with real dispatchers and workers, through kill -9, beside live schedules that stay on time."""

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
from tests.fixtures_flow import make_schedule
from tests.flow.test_processes import assert_complete, every_second, live, pause, served
from tests.operations.fixtures import read
from tests.operations.test_backfill import HOURLY, backfill, rehearse, runs
from tests.processes import Processes, kill

Conn = psycopg.Connection[Any]
LIVE = 20  # schedules of every second
P99_S, MEDIAN_S = 10.0, 1.0  # dispatch lateness of live runs; a dispatcher dies meanwhile
MONTHS = (("2025-03-01", "2025-03-31", 719), ("2025-10-01", "2025-10-31", 721))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_month_runs_once_each_through_kill_9_and_live_runs_stay_on_time(
    processes: Processes, conn: Conn, acme: Any, globex: Any
) -> None:
    dispatchers = [processes.dispatcher(), processes.dispatcher()]
    workers = [processes.worker(), processes.worker()]
    wait_until(lambda: served(conn) == 64 and live(conn, "tickets_worker") == 2, "all shards served, two workers")
    beside = [every_second(tenant, number) for tenant in (acme, globex) for number in range(LIVE // 2)]
    wait_until(lambda: len(lateness(conn, acme)) > 100, "live runs alone")
    schedule = make_schedule(acme, **HOURLY, now=utc_now())
    calm = lateness(conn, acme) + lateness(conn, globex)
    for since, until, count in MONTHS:
        range_ = {"from": since, "to": until}
        assert rehearse(acme, schedule, **range_).count == count
        one = backfill(acme, schedule, **range_, max_in_flight=20)
        done = len(runs(conn, acme, schedule))
        wait_until(partial(more_runs, conn, acme, schedule, done + 200), "a good part", timeout_s=120)
        kill(dispatchers.pop())
        kill(workers.pop())
        dispatchers.append(processes.dispatcher())
        workers.append(processes.worker())
        wait_until(partial(completed, acme, one.pk), "its end", timeout_s=240)
        now = read(acme, one.pk)
        assert (now.planned, now.succeeded, now.failed, now.skipped) == (count, count, 0, 0)
        assert rehearse(acme, schedule, **range_).standings == {"ran": count}
    found = runs(conn, acme, schedule)
    total = sum(count for *_, count in MONTHS)
    assert len(found) == len({run["nominal_at"] for run in found}) == len({run["run_key"] for run in found}) == total
    assert {run["state"] for run in found} == {"succeeded"}

    late = lateness(conn, acme) + lateness(conn, globex)
    told = f"live lateness before: {said(calm)}; all: {said(late)}"
    print(told)
    assert statistics.quantiles(late, n=100)[98] < P99_S, told
    assert statistics.median(late) < MEDIAN_S, told
    pause(acme, beside[: LIVE // 2])
    pause(globex, beside[LIVE // 2 :])
    wait_until(lambda: not alive(conn), "all runs to end", timeout_s=60)
    for number, schedule_id in enumerate(beside):
        assert_complete(conn, acme if number < LIVE // 2 else globex, schedule_id)


def lateness(conn: Conn, tenant: Any) -> list[float]:
    """Of live runs, in seconds: first queued after they were due."""
    query = sql.SQL(
        "SELECT extract(epoch FROM queued_at - actual_at)::float8 FROM {}"
        " WHERE trigger = 'schedule' AND queued_at IS NOT NULL"
    ).format(sql.Identifier(tenant.schema_name, "executions_execution"))
    return [row[0] for row in conn.execute(query)]


def said(late: list[float]) -> str:
    cuts = statistics.quantiles(late, n=100)
    return f"{len(late):,} runs, median {cuts[49] * 1_000:.0f} ms, p95 {cuts[94] * 1_000:.0f} ms, p99 {cuts[98]:.2f} s"


def alive(conn: Conn) -> bool:
    return conn.execute("SELECT 1 FROM tickets_ticket LIMIT 1").fetchone() is not None


def more_runs(conn: Conn, tenant: Any, schedule: UUID, than: int) -> bool:
    return len(runs(conn, tenant, schedule)) > than


def completed(tenant: Any, operation_id: UUID) -> bool:
    """Asked without its items, which others write."""
    from apps.operations.models import Operation
    from tenants import door

    with door.inside(tenant):
        return Operation.objects.filter(pk=operation_id, state="completed").exists()
