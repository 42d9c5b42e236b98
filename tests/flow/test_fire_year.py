"""What a preview promises for a year is what then fires; downtimes of all lengths under each misfire policy."""

from __future__ import annotations

import time
import tracemalloc
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.schedules.timing import spec_from_json
from apps.schedules.timing_preview import preview
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import MINUTE, NOW, count, entry_of, executions_of, fire, fire_all, make_job, make_schedule
from tests.schedules.cases import utc

Conn = psycopg.Connection[Any]
DAY = timedelta(days=1)
ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia", "Africa/Casablanca",
    "America/Santiago", "Antarctica/Troll",
)  # fmt: skip
LOOK_EVERY = timedelta(hours=6)


def spec_text(conn: Conn, schedule: UUID) -> str:
    row = conn.execute("SELECT spec FROM due_dueentry WHERE key = %s", [schedule]).fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.parametrize("zone", ZONES)
def test_a_years_preview_is_what_fires(conn: Conn, registry: Registry, acme: Tenant, zone: str) -> None:
    """Each rule for clock changes, each misfire policy, each kind of trigger, windows too; a clock that is driven."""
    start = utc("2025-02-01T00:00:00Z")
    job, grace_s = make_job(acme, now=start), int(LOOK_EVERY.total_seconds())
    base: dict[str, Any] = {"timezone": zone, "grace_s": grace_s, "now": start}
    schedules = [
        make_schedule(acme, job, cron=cron, dst_gap=gap, dst_fold=fold, misfire=misfire, **base)
        for cron, gap, fold, misfire in (
            ("30 2 * * *", "run_after", "first", "fire_once"), ("30 2 * * *", "skip", "last", "skip"),
            ("15 1,2,3 * * *", "run_after", "both", "fire_all"), ("0 0 * * *", "run_after", "first", "fire_latest_n"),
            ("*/30 1-3 * * *", "run_after", "both", "fire_once"),
        )
    ]  # fmt: skip
    more: tuple[dict[str, Any], ...] = (
        {"trigger": {"every": {"days": 1}, "anchor": "2025-02-01T02:15"}},
        {"trigger": {"rrule": "FREQ=WEEKLY;BYDAY=SU;BYHOUR=0,1,2,3"}, "dst_fold": "both"},
        {"trigger": {"every_s": 43_200}, "jitter_s": 600},
        {"trigger": {"every_s": 7_200}, "windows": [{"from": "02:00", "to": "04:00", "days": ["sun"]}]},
        {"trigger": {"cron": "0 5 * * *"}, "windows": [{"from": "02:00", "to": "03:00"}], "outside": "next_opening"},
    )
    schedules += [make_schedule(acme, job, **{**base, **one}) for one in more]
    promised = {}
    for one in schedules:
        shown = preview(
            spec_from_json(spec_text(conn, one)), after=start, until=start + 365 * DAY, count=5_000, key=str(one)
        )
        promised[one] = [(each.nominal_at, each.at) for each in shown if each.at <= start + 365 * DAY]
    at = start
    while at < start + 365 * DAY:
        at += LOOK_EVERY
        fire_all(conn, registry, now=at)
    for one in schedules:
        rows = executions_of(conn, acme, one)
        assert [(row["nominal_at"], row["actual_at"]) for row in rows] == promised[one]
        assert {row["trigger"] for row in rows} == {"schedule"} and {row["state"] for row in rows} == {"ready"}


@pytest.mark.parametrize("misfire", ["skip", "fire_once", "fire_latest_n", "fire_all"])
@pytest.mark.parametrize("down_s", [0, 90, 86_400, 30 * 86_400])
def test_downtime_ends_with_the_documented_runs(
    conn: Conn, registry: Registry, acme: Tenant, misfire: str, down_s: int
) -> None:
    """A schedule of every minute; at most 100 are made up for. docs/time.md has this table."""
    schedule = make_schedule(acme, misfire=misfire)
    for minute in (1, 2):
        fire_all(conn, registry, now=NOW + minute * MINUTE)
    up = NOW + 2 * MINUTE + timedelta(seconds=down_s + 5)
    fire_all(conn, registry, now=up)
    rows = executions_of(conn, acme, schedule)[2:]
    due = (up - NOW) // MINUTE - 2
    on_time = sum(1 for number in range(due) if (up - NOW - (3 + number) * MINUTE).total_seconds() <= 60)
    missed = due - on_time
    kept = {
        "skip": 0, "fire_once": 0 if on_time else min(1, missed), "fire_latest_n": min(100, missed),
        "fire_all": min(100 - on_time, missed),
    }[misfire]  # fmt: skip
    triggers = [row["trigger"] for row in rows if row["state"] == "ready"]
    assert (triggers.count("catch_up"), triggers.count("schedule")) == (kept, on_time)
    skipped = [row for row in rows if row["state"] == "skipped"]
    assert sum(row["count"] for row in skipped) == missed - kept and len(skipped) <= 1
    assert sum(row["count"] for row in rows) == due
    assert entry_of(conn, schedule).due_at == NOW + (due + 3) * MINUTE


@pytest.mark.parametrize("misfire", ["skip", "fire_once", "fire_latest_n", "fire_all"])
def test_a_month_of_seconds_costs_little(conn: Conn, registry: Registry, acme: Tenant, misfire: str) -> None:
    schedule = make_schedule(acme, cron="* * * * * *", misfire=misfire, misfire_max=1000)
    tracemalloc.start()
    begun = time.process_time()
    fire_all(conn, registry, now=NOW + 30 * DAY)
    took_s, (_, peak) = time.process_time() - begun, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    rows = executions_of(conn, acme, schedule)
    assert sum(row["count"] for row in rows) == 30 * 86_400 and len(rows) <= 1_062
    assert took_s < 5 and peak < 50_000_000


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_million_overdue_entries_let_live_work_through(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """All overdue for an hour; ten schedules fire on time meanwhile, in each pass before the debt."""
    made = 1_000_000
    job = make_job(acme)
    template = make_schedule(acme, job, cron="0 0 1 1 *")
    names = (
        "shard, kind, tenant_id, due_at, nominal_at, version, spec, job_id, job_version, pool, queue, priority,"
        " timeout_s, max_concurrency, own_payload, parked"
    )
    picked = names.replace("shard,", "(n %% 64)::smallint,").replace("due_at, nominal_at", "%s, %s")
    conn.execute(
        f"INSERT INTO due_dueentry (key, {names}) SELECT gen_random_uuid(), {picked}"
        " FROM due_dueentry d CROSS JOIN generate_series(1, %s) AS n WHERE d.key = %s",
        [NOW - timedelta(hours=1), NOW - timedelta(hours=1), made, template],
    )
    conn.execute("ANALYZE due_dueentry")
    live = [make_schedule(acme, job) for _ in range(10)]
    at, fired, passes = NOW + MINUTE, 0, 0
    counts = fire(conn, registry, now=at)
    assert {entry_of(conn, one).due_at for one in live} == {at + MINUTE}  # the first pass has served them all
    while counts["entries"]:
        fired, passes = fired + counts["fired"], passes + 1
        at += timedelta(milliseconds=100)
        counts = fire(conn, registry, now=at)
        if passes % 200 == 0:
            assert all(entry_of(conn, one).due_at > at - timedelta(seconds=1) for one in live)
    assert count(conn, "SELECT count(*) FROM due_dueentry WHERE due_at <= %s", at) == 0
    assert fired >= made
