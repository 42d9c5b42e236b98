"""Case B27: the database's clock was ahead and came back. What is ahead in these tests is ahead of the real time.

What fires takes its time as an argument, so that it can be ahead; what looks after it asks the database.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.core.management import call_command

from apps.dispatch import clockwatch
from apps.dispatch.clockwatch import ClockWatch
from apps.schedules.policy import CURSOR_AHEAD
from apps.schedules.services import schedule_pause
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import (
    MINUTE,
    actor,
    count,
    entry_of,
    executions_of,
    fire_all,
    make_job,
    make_schedule,
    run_to_the_end,
)
from tests.schedules.cases import case

Conn = psycopg.Connection[Any]
HOUR = timedelta(hours=1)


@pytest.fixture
def now(conn: Conn) -> datetime:
    """The start of the minute that the database is in."""
    row = conn.execute("SELECT date_trunc('minute', clock_timestamp())").fetchone()
    assert row is not None
    found: datetime = row[0]
    return found


def look(conn: Conn, registry: Registry, watch: ClockWatch | None = None) -> dict[str, int]:
    """Passes of a watch until it has looked at everything; the sum of their counts."""
    watch, total = watch or ClockWatch(), Counter[str]()
    while True:
        total.update(watch.step(conn, registry))
        if not watch.busy:
            total.update(watch.step(conn, registry))
            return dict(total)


def went_back(conn: Conn, since: datetime) -> None:
    """The clock had been there."""
    conn.execute(
        "INSERT INTO due_clockmark VALUES (1, %s) ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at", [since]
    )


def test_a_clock_fix_silences_nobody(
    conn: Conn, registry: Registry, acme: Tenant, now: datetime, caplog: pytest.LogCaptureFixture
) -> None:
    expected = case("dispatcher.jsonl", "B27")["expected"]["db"]
    schedule = make_schedule(acme, now=now)
    ahead = now + 2 * HOUR
    assert fire_all(conn, registry, now=ahead + 30 * MINUTE / 60) == 1
    assert entry_of(conn, schedule).nominal_at == ahead + MINUTE
    went_back(conn, ahead)
    found = look(conn, registry)
    assert (found["clock_went_back"], found["cursor_ahead"]) == (1, 1)
    assert "went back" in caplog.text and str(schedule) in caplog.text
    back = entry_of(conn, schedule)
    assert back.nominal_at == back.due_at <= now + 2 * MINUTE
    made = [fire_all(conn, registry, now=back.due_at + slot * MINUTE) for slot in range(4)]
    assert sum(made[: expected["resumes_within_slots"]]) == 1, (
        "the first one is where the row of the passed ones stands"
    )
    assert made[1:] == [1, 1, 1], "what the wrong time only passed over runs"
    assert look(conn, registry) == {}, "told once"


def test_nothing_that_ran_runs_again(conn: Conn, registry: Registry, acme: Tenant, now: datetime) -> None:
    """The clock ran ahead for ten minutes: those occurrences have run, and the unique key refuses them."""
    schedule = make_schedule(acme, now=now)
    for minute in range(111, 121):
        fire_all(conn, registry, now=now + minute * MINUTE)
    run_to_the_end(conn, registry, [acme])
    ran = {one["nominal_at"]: one["id"] for one in executions_of(conn, acme, schedule) if one["state"] != "skipped"}
    assert set(ran) == {now + minute * MINUTE for minute in range(110, 121)}
    went_back(conn, now + 2 * HOUR)
    look(conn, registry)
    start = entry_of(conn, schedule).nominal_at
    made, at = 0, start
    while at <= now + 125 * MINUTE:
        made += fire_all(conn, registry, now=at)
        assert entry_of(conn, schedule).nominal_at == at + MINUTE, "it goes on through what has run"
        at += MINUTE
    runs = [one for one in executions_of(conn, acme, schedule) if one["state"] != "skipped"]
    times = [one["nominal_at"] for one in runs]
    assert len(times) == len(set(times)) == len(ran) + made
    assert {at: one for at, one in zip(times, (one["id"] for one in runs), strict=True) if at in ran} == ran
    passed = next(one["nominal_at"] for one in executions_of(conn, acme, schedule) if one["state"] == "skipped")
    slots = {now + minute * MINUTE for minute in range(126)}
    assert made == len({one for one in slots if one >= start} - set(ran) - {passed})


def test_what_is_right_stays(conn: Conn, registry: Registry, acme: Tenant, now: datetime) -> None:
    job = make_job(acme, now=now)
    later = [
        make_schedule(acme, job, cron="0 3 1 1 *", now=now),
        make_schedule(acme, job, trigger={"at": (now + 3 * HOUR).isoformat()}, now=now),
        make_schedule(acme, job, start_at=(now + HOUR).isoformat(), now=now),
    ]
    waits = make_schedule(acme, job, now=now)
    schedule_pause(tenant=acme, actor=actor(acme), schedule_id=waits, now=now, resume_at=now + 5 * HOUR)
    before = [entry_of(conn, one) for one in (*later, waits)]
    went_back(conn, now + 2 * HOUR)
    found = look(conn, registry)
    assert found["clock_went_back"] == 1 and "cursor_ahead" not in found
    assert [entry_of(conn, one) for one in (*later, waits)] == before


def test_one_that_was_made_while_the_clock_was_ahead_is_put_back(
    conn: Conn, registry: Registry, acme: Tenant, now: datetime
) -> None:
    schedule = make_schedule(acme, now=now + 2 * HOUR)
    went_back(conn, now + 2 * HOUR)
    assert look(conn, registry)["cursor_ahead"] == 1
    assert entry_of(conn, schedule).nominal_at <= now + 2 * MINUTE


def test_a_small_step_back_is_nothing(conn: Conn, registry: Registry, acme: Tenant, now: datetime) -> None:
    went_back(conn, now + CURSOR_AHEAD - MINUTE)
    assert look(conn, registry) == {}
    assert count(conn, "SELECT count(*) FROM due_clockmark WHERE ahead_until IS NULL") == 1


def test_it_looks_in_bounded_steps_and_another_process_goes_on(
    conn: Conn, registry: Registry, acme: Tenant, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clockwatch, "CHUNK", 2)
    job = make_job(acme, now=now)
    schedules = [make_schedule(acme, job, now=now) for _ in range(20)]
    fire_all(conn, registry, now=now + 2 * HOUR)
    went_back(conn, now + 2 * HOUR)
    first = ClockWatch()
    for _ in range(15):
        assert first.step(conn, registry).get("clock_looked_at", 0) <= 2
    assert first.busy
    look(conn, registry)  # by a successor, that knows nothing of the first one
    assert all(entry_of(conn, one).nominal_at <= now + 2 * MINUTE for one in schedules)
    assert count(conn, "SELECT count(*) FROM due_clockmark WHERE ahead_until IS NULL") == 1


def test_the_command_reports_it(conn: Conn, registry: Registry, acme: Tenant, now: datetime) -> None:
    schedule = make_schedule(acme, now=now)
    fire_all(conn, registry, now=now + 2 * HOUR)
    ahead = entry_of(conn, schedule)
    for dry_run in (True, False):
        out = io.StringIO()
        with pytest.raises(SystemExit) as caught:
            call_command("reconcile", "--format", "json", *(["--dry-run"] if dry_run else []), stdout=out)
        [finding] = json.loads(out.getvalue())["findings"]
        assert (caught.value.code, finding["check"], finding["id"]) == (1, "cursor_ahead", str(schedule))
        assert (entry_of(conn, schedule) == ahead) == dry_run
    assert entry_of(conn, schedule).nominal_at <= now + 2 * MINUTE
    call_command("reconcile", stdout=io.StringIO())


def test_a_lost_entry_is_not_made_again_in_the_wrong_future(
    conn: Conn, registry: Registry, acme: Tenant, now: datetime
) -> None:
    schedule = make_schedule(acme, now=now)
    fire_all(conn, registry, now=now + 2 * HOUR)
    conn.execute("DELETE FROM due_dueentry")
    with pytest.raises(SystemExit):
        call_command("reconcile", stdout=io.StringIO())
    assert entry_of(conn, schedule).nominal_at <= now + 2 * MINUTE
