"""Measuring the live tables: what waits for a slot and what for something else, and what machines are told of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from io import StringIO
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.findings import REPAIRS
from tests.fixtures_flow import live_worker, make_job, make_schedule, make_ticket, queue_of, started_now

if TYPE_CHECKING:
    from django.test import Client

    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
WORKER = UUID(int=7)
TOKEN = "for-tests-only"


@pytest.fixture
def now(conn: Conn) -> datetime:
    row = conn.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    found: datetime = row[0]
    return found


def look(conn: Conn, registry: Registry) -> dict[str, Any]:
    """One measurement; its figures as they were kept."""
    from apps.dispatch.pressure.gauges import count, measure
    from apps.usage import pressure

    registry.refresh(force=True)
    measure(conn, registry, count(conn))
    found = pressure.read(conn)
    assert found is not None
    return {"live": found.live, **found.figures}


def python(figures: dict[str, Any], group: str = "") -> dict[str, Any]:
    return next(one for one in figures["pools"] if (one["pool"], one["group"]) == ("python", group))


def test_what_waits_for_a_slot_is_told_from_what_its_own_limits_hold(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant, now: datetime
) -> None:
    from apps.schedules.services import job_pause
    from tests.fixtures_flow import actor

    long_ago, lately = now - timedelta(hours=1), now - timedelta(seconds=8)
    paused, narrow, free = make_job(acme), make_job(acme, max_concurrency=2), make_job(acme)
    for job, at in [(paused, long_ago)] * 3 + [(narrow, long_ago)] * 5 + [(free, lately)] * 2:
        make_ticket(acme, job, now=at)
    make_ticket(globex, run_at=(now + timedelta(hours=1)).isoformat(), now=now)
    job_pause(tenant=acme, actor=actor(acme), job_id=paused, now=now)
    ids = [
        row[0] for row in conn.execute("SELECT execution_id FROM tickets_ticket WHERE job_id = %s LIMIT 2", [narrow])
    ]
    started_now(conn, ids, WORKER)
    live_worker(conn, slots=4, queues=[queue_of(registry, acme)])
    figures = look(conn, registry)
    row = python(figures)
    assert (row["ready"]["live"], row["held"], row["running"]) == (8, 6, 2)
    assert (row["workers"], row["slots"], row["usable"]) == (1, 4, 4)
    assert 7.5 < row["oldest_wait_s"]["live"] < 60, "not the hour of those that wait for themselves"
    assert row["pressed"] and figures["pressed"] == [["python", ""]]
    assert (figures["live"], figures["delayed"]) == (11, 1)
    assert row["wanted_slots"] >= 3
    queue = figures["queues"][0]
    assert {name: queue[name] for name in ("queue", "pool", "tenants", "ready", "later", "queued", "running")} == {
        "queue": queue_of(registry, acme), "pool": "python", "tenants": 1, "ready": 8, "later": 0, "queued": 0,
        "running": 2,
    }  # fmt: skip


def test_what_a_rate_holds_back_waits_for_no_slot(conn: Conn, registry: Registry, acme: Tenant, now: datetime) -> None:
    job = make_job(acme, rate_limit={"runs": 1, "per_s": 3_600, "burst": 2})
    for _ in range(5):
        make_ticket(acme, job, now=now - timedelta(minutes=1))
    row = python(look(conn, registry))
    assert (row["ready"]["live"], row["held"]) == (5, 3) and row["oldest_wait_s"]["live"] >= 60
    conn.execute("UPDATE tickets_bucket SET tokens = 0, at = clock_timestamp()")
    row = python(look(conn, registry))
    assert (row["held"], row["usable"], row["oldest_wait_s"]["live"]) == (5, 0, 0)


def test_catch_up_waits_in_its_own_lane_and_presses_nobody(
    conn: Conn, registry: Registry, acme: Tenant, now: datetime
) -> None:
    from tests.fixtures_flow import fire

    make_schedule(acme, misfire="fire_latest_n", misfire_max=3, now=now - timedelta(hours=1))
    fire(conn, registry, now=now)
    conn.execute("UPDATE tickets_ticket SET available_at = %s WHERE lane = 1", [now - timedelta(minutes=1)])
    row = python(look(conn, registry))
    assert row["ready"]["catch_up"] == 3 and row["oldest_wait_s"]["catch_up"] >= 60
    assert not row["pressed"]


def test_a_second_serial_run_waits_for_the_first_and_not_for_a_slot(
    conn: Conn, registry: Registry, acme: Tenant, now: datetime
) -> None:
    from tests.fixtures_flow import fire

    start = now - timedelta(minutes=10)
    make_schedule(acme, overlap="buffer_one", now=start)
    for minute in (1, 2):
        fire(conn, registry, now=start + timedelta(minutes=minute))
    first = conn.execute("SELECT execution_id FROM tickets_ticket ORDER BY actual_at LIMIT 1").fetchone()
    assert first is not None
    started_now(conn, [first[0]], WORKER)
    row = python(look(conn, registry))
    assert (row["ready"]["live"], row["running"]) == (1, 1)
    assert row["oldest_wait_s"]["live"] == 0


def test_counting_is_as_rare_as_it_is_slow(conn: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.dispatch.pressure import gauges

    clock = iter([100.0, 101.5, 101.5])
    monkeypatch.setattr(gauges, "monotonic_s", lambda: next(clock))
    assert gauges.count(conn).until == 101.5 + 30.0
    clock = iter([100.0, 100.001, 100.001])
    assert gauges.count(conn).until == 100.001 + gauges.COUNT_EVERY_S


# --- what machines are told ---


@pytest.fixture
def told(
    conn: Conn, registry: Registry, acme: Tenant, now: datetime, settings: Any, client: Client
) -> Iterator[Client]:
    """A client with the token, and a platform with something to tell."""
    from django.test import Client as Real

    settings.METRICS_TOKEN = TOKEN
    job = make_job(acme)
    for _ in range(3):
        make_ticket(acme, job, now=now - timedelta(seconds=2))
    live_worker(conn, slots=4, queues=[queue_of(registry, acme)])
    look(conn, registry)
    yield Real(headers={"Host": "10.0.0.7", "Authorization": f"Bearer {TOKEN}"})


def test_prometheus_reads_it(told: Client, conn: Conn) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    before = {"reconcile": {"lost": 100, "gap": 9}}
    since = {
        "reconcile": {"lost": 3, "lost_stale": 1, "gap": 2, "incomplete": 4, "errors": 0, "lag_ms": 1},
        "release http": {"released_again": 5}, "release python": {"released_again": 1, "released": 7}, "fire": {},
    }  # fmt: skip
    for minutes, stats in ((1, since), (9, before)):  # of one container that was started again, with the same pid
        conn.execute(
            "INSERT INTO due_dispatcher (id, host, pid, version, started_at, expires_at, backends, draining, skew_ms,"
            " stats) VALUES (gen_random_uuid(), 'box', 7, '', now() - %s * interval '1 minute', now(), '{}', false, 0,"
            " %s::jsonb)",
            [minutes, json.dumps(stats)],
        )
    conn.execute('UPDATE tickets_worker SET stats = \'{"settled": {"stale": 2}}\'')
    answer = told.get("/metrics")
    assert answer.status_code == 200 and answer["Content-Type"].startswith("text/plain")
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }
    place = (("group", ""), ("pool", "python"))
    assert found["shardbeat_pool_slots", place] == 4 and found["shardbeat_pool_workers", place] == 1
    assert found["shardbeat_pool_wanted_slots", place] >= 1
    assert found["shardbeat_pool_ready", (place[0], ("lane", "live"), place[1])] == 3
    assert found["shardbeat_live", ()] == 3 and found["shardbeat_live_limit", ()] == 5_000_000
    assert 0 <= found["shardbeat_figures_age_seconds", ()] < 30
    assert not any("acme" in str(labels) for _, labels in found)
    box = (("process", "box:7"),)
    told_of_box = {name: value for (name, labels), value in found.items() if labels == box}
    assert told_of_box == {
        "shardbeat_attempts_lost_total": 3, "shardbeat_released_again_total": 6, "shardbeat_gaps_found_total": 6,
        "shardbeat_settlements_stale_total": 1,
    }  # fmt: skip
    repairs = {labels: value for (name, labels), value in found.items() if name == "shardbeat_repairs_total"}
    assert repairs[("check", "gap"), box[0]] == 2 and sum(repairs.values()) == 2 and len(repairs) == len(REPAIRS)
    assert found["shardbeat_settlements_stale_total", (("process", "test:1"),)] == 2
    openmetrics = told.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert openmetrics["Content-Type"].startswith("application/openmetrics-text")
    assert openmetrics.content.endswith(b"# EOF\n")


def test_an_autoscaler_reads_one_number(told: Client) -> None:
    body = told.get("/metrics/pools?pool=python").json()
    (one,) = body["pools"]
    assert (one["pool"], one["group"], one["slots"]) == ("python", "", 4) and one["wanted_slots"] >= 1
    assert told.get("/metrics/pools?pool=container&group=gpu").json()["pools"][0]["wanted_slots"] == 0
    assert told.get("/metrics/pools?pool=nonsense").status_code == 400
    assert [one["pool"] for one in told.get("/metrics/pools").json()["pools"]] == ["python"]


def test_stale_figures_are_no_figures(told: Client, conn: Conn) -> None:
    """Whoever scales keeps what there is: a number that nobody measures any more would be obeyed."""
    conn.execute("UPDATE usage_pressure SET measured_at = measured_at - interval '5 minutes'")
    answer = told.get("/metrics/pools?pool=python")
    assert answer.status_code == 503
    text = told.get("/metrics").content.decode()
    assert "shardbeat_figures_age_seconds 3" in text and "shardbeat_dispatchers" in text
    assert "wanted" not in text and "shardbeat_live" not in text


def test_nobody_reads_it_without_the_token(told: Client, settings: Any) -> None:
    from django.test import Client as Real

    for path in ("/metrics", "/metrics/pools"):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
            answer = Real(headers=headers).get(path)
            assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")
        assert told.post(path).status_code == 405
    settings.METRICS_TOKEN = ""
    assert told.get("/metrics").status_code == 404
    assert Real(headers={"Authorization": "Bearer "}).get("/metrics/pools").status_code == 404


def test_a_database_that_is_away_is_503(told: Client, settings: Any) -> None:
    settings.DATABASE_URL = "postgresql://someone@127.0.0.1:1/nothing"
    assert told.get("/metrics").status_code == 503


def test_the_command_says_it_to_people_and_to_scripts(told: Client, conn: Conn) -> None:
    assert _command().splitlines()[1].split()[:4] == ["python", "-", "1", "4"]
    assert int(_command("--pool", "python")) >= 1
    assert _command("--pool", "http", "--group", "gpu") == "0\n"
    assert json.loads(_command("--format", "json"))["pools"][0]["pool"] == "python"
    conn.execute("DELETE FROM usage_pressure")
    with pytest.raises(SystemExit) as ended:
        _command("--pool", "python")
    assert ended.value.code == 1


def _command(*words: str) -> str:
    from django.core.management import call_command

    out = StringIO()
    call_command("pool_wanted", *words, stdout=out, stderr=StringIO())
    return out.getvalue()
