"""What is alive over all tenants, in pages: every filter gives what a look at all rows gives, in order, once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg

from kernel.clock import utc_now
from kernel.ids import uuid7s
from tests.fixtures_flow import live_worker

Conn = psycopg.Connection[Any]
STATES: tuple[Any, ...] = ("running", "queued", "ready", "waiting", "blocked")


def test_every_filter_gives_the_rows_that_fit(conn: Conn, acme: Any, globex: Any) -> None:
    from apps.tickets.alive import AliveFilter, alive_counts, alive_read

    worker = live_worker(conn, queues=["python.shared.0"])
    tickets_of(conn, [acme.pk, globex.pk], worker, count=60)
    everything = alive_read(conn, AliveFilter(), size=100).rows
    assert len(everything) == 60 and alive_counts(conn) == dict.fromkeys(STATES, 12)
    late = utc_now() - timedelta(minutes=30)
    asked = [
        (AliveFilter(pool="http"), lambda row: row.pool == "http"),
        (AliveFilter(due_before=late), lambda row: row.actual_at < late),
        (AliveFilter(cancelling=True), lambda row: row.cancel_requested),
        (AliveFilter(worker_id=worker), lambda row: row.worker_id == worker and row.state == "running"),
        (AliveFilter(execution_id=everything[7].execution_id), lambda row: row == everything[7]),
        (AliveFilter(tenant_id=globex.pk), lambda row: row.tenant_id == globex.pk),
        *((AliveFilter(state=one), lambda row, one=one: row.shown == one) for one in STATES),
        *((AliveFilter(state=one, tenant_id=acme.pk, pool="python"), lambda row, one=one: (
            row.shown == one and row.tenant_id == acme.pk and row.pool == "python")) for one in STATES),
    ]  # fmt: skip
    for wanted, fits in asked:
        fitting = [row for row in everything if fits(row)]
        assert fitting, wanted
        for oldest_first in (True, False):
            found, after = [], None
            while True:
                page = alive_read(conn, wanted, oldest_first=oldest_first, after=after, size=5)
                found += page.rows
                after = page.after
                if after is None:
                    break
            assert found == (fitting if oldest_first else fitting[::-1]), wanted


def tickets_of(conn: Conn, tenants: list[int], worker: Any, *, count: int) -> None:
    """Tickets of all states, older and younger ones, of two pools, of these tenants in turn."""
    now, ids = utc_now(), uuid7s(count)
    rows = []
    for number, one in enumerate(ids):
        state = ("running", "queued", "ready", "ready", "blocked")[number % 5]
        held = state in ("running", "queued")
        rows.append({
            "id": one, "tenant": tenants[number % len(tenants)], "job": ids[number % 7], "key": one.hex, "now": now,
            "due": now - timedelta(minutes=count - number), "pool": ("http", "python")[number // 2 % 2],
            "state": state, "rank": now if number % 5 == 2 else None, "number": number if held else None,
            "at": now if held else None, "worker": worker if state == "running" else None,
            "asked": number % 3 == 0,
        })  # fmt: skip
    columns = (
        "execution_id, tenant_id, job_id, job_version, run_key, trigger, actual_at, pool, queue, priority, timeout_s,"
        " flow, payload_from, state, rank, available_at, release, queued_at, fence, worker_id, started_at, deadline,"
        " cancel_requested, guarded, releases, attempt, failures"
    )
    values = (
        "%(id)s, %(tenant)s, %(job)s, 1, %(key)s, 'api', %(due)s, %(pool)s, 'q', 5, 60, %(job)s, 'job', %(state)s,"
        " %(rank)s, %(now)s, %(number)s, %(at)s, %(number)s, %(worker)s, %(at)s, %(at)s, %(asked)s, false, 0, 0, 0"
    )
    with conn.cursor() as cursor:
        cursor.executemany(f"INSERT INTO tickets_ticket ({columns}) VALUES ({values})", rows)
