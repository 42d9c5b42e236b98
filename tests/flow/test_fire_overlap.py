"""Overlap, catch-up, pauses and calendars through the database: who makes way, in which order debt is made up for."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.repairs import run_all
from apps.dispatch.submit import schedule_trigger
from apps.schedules.pausing import pause_by_system
from apps.schedules.services import (
    calendar_create,
    calendar_update,
    job_pause,
    job_resume,
    schedule_pause,
    schedule_resume,
    schedule_update,
)
from apps.tickets.values import CATCH_UP, LIVE
from kernel.errors import InvalidInput
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    entry_of,
    execution_of,
    executions_of,
    fire_all,
    make_job,
    make_schedule,
    rows_of,
    settle_as,
    started_now,
    ticket_of,
)

Conn = psycopg.Connection[Any]
WORKER = UUID(int=1)
DAY = timedelta(days=1)


def states(conn: Conn, tenant: Tenant, schedule: UUID) -> list[tuple[str, str]]:
    return [(one["state"], one["reason"]) for one in executions_of(conn, tenant, schedule)]


def run(conn: Conn, tenant: Tenant, schedule: UUID) -> Any:
    """Starts the newest run that is ready."""
    ready = [one["id"] for one in executions_of(conn, tenant, schedule) if one["state"] == "ready"]
    [started] = started_now(conn, ready[-1:], WORKER)
    return started


def test_replace_pending_ends_what_waits(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme, overlap="replace_pending")
    fire_all(conn, registry, now=NOW + MINUTE)
    running = run(conn, acme, schedule)
    for minute in (2, 3, 4):
        fire_all(conn, registry, now=NOW + minute * MINUTE)
    assert states(conn, acme, schedule) == [
        ("ready", ""),
        ("skipped", "replaced"),
        ("skipped", "replaced"),
        ("ready", ""),
    ]
    assert ticket_of(conn, running.execution_id)["cancel_requested"] is False
    waiting = executions_of(conn, acme, schedule)[-1]
    assert ticket_of(conn, waiting["id"])["state"] == "ready"


def test_cancel_running_stops_what_runs_and_waits_for_it(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme, overlap="cancel_running")
    fire_all(conn, registry, now=NOW + MINUTE)
    running = run(conn, acme, schedule)
    fire_all(conn, registry, now=NOW + 2 * MINUTE)
    fire_all(conn, registry, now=NOW + 3 * MINUTE)
    assert ticket_of(conn, running.execution_id)["cancel_requested"] is True
    settle_as(conn, registry, [running], "failed")
    assert states(conn, acme, schedule) == [("cancelled", "cancelled"), ("skipped", "replaced"), ("ready", "")]


def test_a_run_that_was_tried_before_is_cancelled_not_skipped(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme, overlap="replace_pending")
    fire_all(conn, registry, now=NOW + MINUTE)
    settle_as(conn, registry, [run(conn, acme, schedule)], "failed")  # waits for its next try
    fire_all(conn, registry, now=NOW + 2 * MINUTE)
    [first, second] = executions_of(conn, acme, schedule)
    assert (first["state"], first["reason"], first["attempt_count"]) == ("cancelled", "replaced", 1)
    assert second["state"] == "ready" and ticket_of(conn, first["id"]) is None


def test_buffer_all_is_bounded(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme, overlap="buffer_all", overlap_max=3)
    for minute in range(1, 7):
        fire_all(conn, registry, now=NOW + minute * MINUTE)
    assert [state for state, _ in states(conn, acme, schedule)] == ["ready"] * 4 + ["skipped"] * 2


@pytest.mark.parametrize("overlap", ["replace_pending", "cancel_running"])
def test_a_debt_under_a_replacing_policy_is_one_run(conn: Conn, registry: Registry, acme: Tenant, overlap: str) -> None:
    schedule = make_schedule(acme, trigger={"every_s": 10}, overlap=overlap)
    fire_all(conn, registry, now=NOW + MINUTE)
    rows = executions_of(conn, acme, schedule)
    assert [(one["state"], one["reason"], one["count"]) for one in rows] == [
        ("skipped", "replaced", 5),
        ("ready", "", 1),
    ]


def test_order_and_rate_of_catch_up(conn: Conn, registry: Registry, acme: Tenant) -> None:
    now = NOW + 10 * MINUTE + timedelta(seconds=30)
    schedule = make_schedule(
        acme, misfire="fire_all", misfire_order="newest", catch_up_per_s=0.5, misfire_max_age_s=300
    )  # fmt: skip
    fire_all(conn, registry, now=now)
    rows = executions_of(conn, acme, schedule)
    assert (rows[0]["state"], rows[0]["reason"], rows[0]["count"]) == ("skipped", "misfire_too_old", 5)
    late = [one for one in rows if one["trigger"] == "catch_up"]
    tickets = {one["nominal_at"]: ticket_of(conn, one["id"]) for one in late}
    waits = [(tickets[one]["available_at"] - now).total_seconds() for one in sorted(tickets, reverse=True)]
    assert waits == [0, 2, 4, 6]
    assert [tickets[one]["rank"] is None for one in sorted(tickets, reverse=True)] == [False, True, True, True]
    on_time = ticket_of(conn, rows[-1]["id"])
    assert on_time["trigger"] == "schedule"
    assert {on_time["lane"], *(one["lane"] for one in tickets.values())} == {LIVE, CATCH_UP}
    assert on_time["lane"] < tickets[max(tickets)]["lane"]  # live work goes first


def test_catch_up_comes_after_live_work_of_the_lowest_priority(conn: Conn, registry: Registry, acme: Tenant) -> None:
    from apps.tickets import releasing

    urgent, idle = make_job(acme, priority=9), make_job(acme, priority=0)
    made_up = make_schedule(acme, urgent, misfire="fire_all", misfire_max=1000)
    fire_all(conn, registry, now=NOW + 30 * MINUTE)
    live = make_schedule(acme, idle, now=NOW + 30 * MINUTE)
    fire_all(conn, registry, now=NOW + 31 * MINUTE)
    [fresh] = [ticket_of(conn, one["id"]) for one in executions_of(conn, acme, live)]
    late = [ticket_of(conn, one["id"]) for one in executions_of(conn, acme, made_up) if one["trigger"] == "catch_up"]
    assert len(late) == 28 and all(fresh["lane"] < one["lane"] for one in late)
    assert [one["nominal_at"] for one in sorted(late, key=lambda one: one["rank"])] == sorted(
        one["nominal_at"] for one in late
    )
    conn.execute("UPDATE tickets_ticket SET rank = NULL WHERE trigger = 'catch_up'")  # as after a failed attempt
    releasing.promote(conn, now=NOW + 32 * MINUTE, limit=100)
    again = [ticket_of(conn, one["execution_id"]) for one in late]
    assert all(one["rank"] and fresh["lane"] < one["lane"] for one in again)


def test_a_trigger_may_have_an_overlap_of_its_own(conn: Conn, registry: Registry, acme: Tenant) -> None:
    who: dict[str, Any] = {"tenant": acme, "actor": actor(acme), "now": NOW + 2 * MINUTE}
    schedule = make_schedule(acme, overlap="skip")
    fire_all(conn, registry, now=NOW + MINUTE)
    assert execution_of(conn, acme, schedule_trigger(schedule_id=schedule, **who))["state"] == "skipped"
    beside = schedule_trigger(schedule_id=schedule, overlap="allow", **who)
    assert ticket_of(conn, beside)["guarded"] is False
    instead = schedule_trigger(schedule_id=schedule, overlap="replace_pending", **who)
    assert ticket_of(conn, instead)["guarded"] is True
    assert states(conn, acme, schedule)[0] == ("skipped", "replaced")
    free = make_schedule(acme)
    fire_all(conn, registry, now=NOW + MINUTE)
    assert execution_of(conn, acme, schedule_trigger(schedule_id=free, overlap="skip", **who))["state"] == "skipped"
    with pytest.raises(InvalidInput):
        schedule_trigger(schedule_id=free, overlap="buffer_one", **who)


def test_a_resume_makes_up_for_the_pause_when_asked(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme, misfire="fire_latest_n", misfire_max=2, grace_s=0)
    who: dict[str, Any] = {"tenant": acme, "actor": actor(acme), "schedule_id": schedule}
    schedule_pause(now=NOW + timedelta(seconds=30), **who)
    schedule_resume(now=NOW + 5 * MINUTE + timedelta(seconds=30), catch_up=True, **who)
    fire_all(conn, registry, now=NOW + 5 * MINUTE + timedelta(seconds=31))
    rows = [(one["trigger"], one["state"], one["count"]) for one in executions_of(conn, acme, schedule)]
    assert rows == [("schedule", "skipped", 3), ("catch_up", "ready", 1), ("catch_up", "ready", 1)]


def test_a_pause_ends_by_itself(conn: Conn, registry: Registry, acme: Tenant) -> None:
    from apps.dispatch.repairs import run_all

    schedule = make_schedule(acme)
    who: dict[str, Any] = {"tenant": acme, "actor": actor(acme), "schedule_id": schedule}
    schedule_pause(now=NOW + timedelta(seconds=30), resume_at=NOW + 10 * MINUTE, **who)
    assert fire_all(conn, registry, now=NOW + 9 * MINUTE) == 0
    assert not list(run_all(conn, registry, list(registry.by_id.values()), dry_run=True))
    assert entry_of(conn, schedule).due_at == NOW + 11 * MINUTE
    assert fire_all(conn, registry, now=NOW + 11 * MINUTE) == 1
    assert len(executions_of(conn, acme, schedule)) == 1  # what the pause passed over is no debt
    changed = schedule_update(now=NOW + 12 * MINUTE, patch={"name": "awake"}, **who)
    assert (changed.schedule.status, changed.schedule.resume_at) == ("active", None)
    schedule_pause(now=NOW + 13 * MINUTE, resume_at=NOW + DAY, **who)
    schedule_update(now=NOW + 14 * MINUTE, patch={"trigger": {"cron": "30 * * * *"}}, **who)
    assert entry_of(conn, schedule).due_at == NOW + DAY + 30 * MINUTE
    schedule_resume(now=NOW + 15 * MINUTE, **who)
    assert entry_of(conn, schedule).due_at == NOW + 30 * MINUTE


def test_failures_in_a_row_pause_a_schedule_half_open(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Attempts end at the database's time, so the schedule lives there; pauses are over when the test says so."""
    now, days = database_now(conn), 0
    job = make_job(acme, retry={"max_attempts": 1})
    schedule = make_schedule(acme, job, trigger={"every_s": 3600}, pause_after_failures=2, probe_after_s=600, now=now)

    def ends(outcome: str) -> dict[str, Any]:
        """The next run ends so; the schedule's row afterwards. Each is a day later: none of them was fired before."""
        nonlocal days
        days += 1
        conn.execute(
            "UPDATE due_dueentry SET due_at = %(at)s, nominal_at = %(at)s WHERE key = %(key)s",
            {"at": now + days * DAY, "key": schedule},
        )
        assert fire_all(conn, registry, now=entry_of(conn, schedule).due_at) == 1
        settle_as(conn, registry, [run(conn, acme, schedule)], outcome)
        [found] = [one for one in rows_of(conn, acme, "schedules_schedule") if one["id"] == schedule]
        return found

    def the_pause_is_over() -> None:
        conn.execute(f"UPDATE {acme.schema_name}.schedules_schedule SET resume_at = now() WHERE id = %s", [schedule])

    assert [ends(outcome)["status"] for outcome in ("failed", "succeeded", "failed")] == ["active"] * 3
    paused = ends("failed")
    assert paused["status"] == "paused" and paused["paused_reason"] == "2 runs in a row have died."
    assert paused["resume_at"] - paused["paused_at"] == timedelta(seconds=600)
    assert entry_of(conn, schedule).due_at > paused["resume_at"]
    the_pause_is_over()
    again = ends("failed")  # the probe dies: paused again at once
    assert again["status"] == "paused" and again["paused_at"] > paused["paused_at"]
    the_pause_is_over()
    assert ends("succeeded")["paused_at"] == again["paused_at"]
    assert ends("failed")["paused_at"] == again["paused_at"]  # one failure after a success is not two
    who: dict[str, Any] = {"tenant": acme, "actor": actor(acme), "schedule_id": schedule}
    schedule_pause(now=database_now(conn), **who)
    schedule_resume(now=database_now(conn), **who)
    assert ends("failed")["status"] == "active"  # a person has resumed it: counting starts anew
    assert ends("failed")["status"] == "paused"


def database_now(conn: Conn) -> datetime:
    row = conn.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    now: datetime = row[0]
    return now


def test_a_changed_calendar_moves_what_uses_it(conn: Conn, registry: Registry, acme: Tenant) -> None:
    who: dict[str, Any] = {"tenant": acme, "actor": actor(acme)}
    calendar = calendar_create(data={"name": "Holidays", "dates": ["2025-01-07"]}, now=NOW, **who)
    schedule = make_schedule(acme, cron="0 9 * * *", calendar="holidays")
    assert entry_of(conn, schedule).due_at == (NOW + 2 * DAY).replace(hour=9)
    patch = {"dates": ["2025-01-08"]}
    calendar_update(calendar_id=calendar.pk, patch=patch, now=NOW + MINUTE, **who)
    assert entry_of(conn, schedule).due_at == (NOW + DAY).replace(hour=9)
    assert entry_of(conn, schedule).version == 2
    fire_all(conn, registry, now=NOW + DAY)
    assert entry_of(conn, schedule).due_at == (NOW + 3 * DAY).replace(hour=9)
    assert not [one for one in executions_of(conn, acme, schedule) if one["state"] == "skipped"]


def test_max_runs_survives_edits_and_pauses(conn: Conn, registry: Registry, acme: Tenant) -> None:
    who: dict[str, Any] = {"tenant": acme, "actor": actor(acme)}
    schedule = make_schedule(acme, max_runs=4)
    fire_all(conn, registry, now=NOW + MINUTE)
    schedule_pause(schedule_id=schedule, now=NOW + MINUTE, **who)
    schedule_resume(schedule_id=schedule, now=NOW + 60 * MINUTE, **who)
    fire_all(conn, registry, now=NOW + 61 * MINUTE)
    schedule_update(schedule_id=schedule, now=NOW + 61 * MINUTE, patch={"trigger": {"every_s": 30}}, **who)
    for half in range(1, 9):
        fire_all(conn, registry, now=NOW + 61 * MINUTE + half * timedelta(seconds=30))
    assert len(executions_of(conn, acme, schedule)) == 4
    assert entry_of(conn, schedule) is None
    more = schedule_update(schedule_id=schedule, now=NOW + 70 * MINUTE, patch={"max_runs": 5}, **who)
    assert more.schedule.status == "active"
    fire_all(conn, registry, now=NOW + 71 * MINUTE)
    assert sum(one["count"] for one in executions_of(conn, acme, schedule)) == 5


@pytest.mark.parametrize("how", ["edited", "resumed early", "edited and made up for", "its job resumed", "probed"])
def test_max_runs_counts_what_a_pause_passes_over_only_when_it_is_made_up_for(
    conn: Conn, registry: Registry, acme: Tenant, how: str
) -> None:
    job = make_job(acme)
    schedule = make_schedule(acme, job, max_runs=6, misfire="fire_all")
    who: dict[str, Any] = {"tenant": acme, "actor": actor(acme)}
    one: dict[str, Any] = {**who, "schedule_id": schedule}
    fire_all(conn, registry, now=NOW + MINUTE)
    fire_all(conn, registry, now=NOW + 2 * MINUTE)
    endless, stopped, until = how == "edited and made up for", NOW + 2.5 * MINUTE, NOW + 10.5 * MINUTE
    if how == "probed":
        pause_by_system(
            conn, acme.schema_name, tenant_id=acme.pk, schedule_id=schedule, reason="died", now=stopped, resume_at=until
        )
    else:
        schedule_pause(now=stopped, resume_at=None if endless else until, **one)
    if how.startswith("edited"):
        schedule_update(now=stopped + 2 * MINUTE, patch={"trigger": {"cron": "*/1 * * * *"}, "jitter_s": 1}, **one)
    if how == "its job resumed":
        job_pause(job_id=job, now=stopped + MINUTE, **who)
        job_resume(job_id=job, now=stopped + 3 * MINUTE, **who)
    caught_up = how in ("resumed early", "edited and made up for")
    if caught_up:
        schedule_resume(now=stopped + 3 * MINUTE, catch_up=True, **one)
    for minute in range(6, 20):
        fire_all(conn, registry, now=NOW + minute * MINUTE + timedelta(seconds=2))
        if how == "probed" and minute == 12:
            schedule_update(now=NOW + minute * MINUTE + timedelta(seconds=9), patch={"jitter_s": 1}, **one)
        assert not list(run_all(conn, registry, list(registry.by_id.values()), dry_run=minute < 19))
    minutes = [(each["nominal_at"] - NOW) // MINUTE for each in executions_of(conn, acme, schedule)]
    assert sorted(minutes) == ([1, 2, 3, 4, 5, 6] if caught_up else [1, 2, 11, 12, 13, 14])


@pytest.mark.parametrize(
    ("policy", "runs", "skipped"),
    [("skip", 0, 4), ("fire_once", 1, 3), ("fire_latest_n", 2, 2), ("fire_all", 2, 2)],
)
def test_catch_up_waits_for_a_paused_job(
    conn: Conn, registry: Registry, acme: Tenant, policy: str, runs: int, skipped: int
) -> None:
    """The schedule's policy decides at its resume; what is to run waits for the job, the rest has a row."""
    job = make_job(acme)
    schedule = make_schedule(acme, job, trigger={"every_s": 3600}, misfire=policy, misfire_max=2)
    given: dict[str, Any] = {"tenant": acme, "actor": actor(acme)}
    schedule_pause(schedule_id=schedule, now=NOW, **given)
    job_pause(job_id=job, now=NOW + DAY / 24, **given)
    resumed = NOW + timedelta(hours=4, minutes=30)
    schedule_resume(schedule_id=schedule, now=resumed, catch_up=True, **given)
    assert fire_all(conn, registry, now=resumed + DAY) == 0
    found = executions_of(conn, acme, schedule)
    made = [one for one in found if one["state"] == "ready"]
    assert [one["trigger"] for one in made] == ["catch_up"] * runs
    assert sum(one["count"] for one in found if one["state"] == "skipped") == skipped
    assert {one["nominal_at"] for one in made} <= {NOW + n * DAY / 24 for n in range(1, 5)}
    assert {ticket_of(conn, one["id"])["job_limit"] for one in made} <= {0}
    job_resume(job_id=job, now=resumed + DAY, **given)
    assert {ticket_of(conn, one["id"])["job_limit"] for one in made} <= {None}
    assert fire_all(conn, registry, now=resumed + DAY) == 0, "the job's pause builds up no debt"
    assert len(executions_of(conn, acme, schedule)) == len(found)
    settle_as(conn, registry, started_now(conn, [one["id"] for one in made], WORKER))
    assert entry_of(conn, schedule).nominal_at == NOW + DAY + timedelta(hours=5)


def test_what_waits_for_a_paused_job_counts_for_max_runs(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme)
    schedule = make_schedule(acme, job, max_runs=5, misfire="fire_all")
    given: dict[str, Any] = {"tenant": acme, "actor": actor(acme)}
    schedule_pause(schedule_id=schedule, now=NOW, **given)
    job_pause(job_id=job, now=NOW + MINUTE, **given)
    schedule_resume(schedule_id=schedule, now=NOW + 3.5 * MINUTE, catch_up=True, **given)
    assert len(executions_of(conn, acme, schedule)) == 3
    job_resume(job_id=job, now=NOW + 10 * MINUTE, **given)
    for minute in range(11, 16):
        fire_all(conn, registry, now=NOW + minute * MINUTE)
    assert len(executions_of(conn, acme, schedule)) == 5


def test_one_instant_that_a_pause_passed_runs_when_its_job_goes_on(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    job = make_job(acme)
    schedule = make_schedule(acme, job, trigger={"at": (NOW + DAY).isoformat()}, overlap="cancel_running")
    given: dict[str, Any] = {"tenant": acme, "actor": actor(acme)}
    schedule_pause(schedule_id=schedule, now=NOW, **given)
    job_pause(job_id=job, now=NOW, **given)
    schedule_resume(schedule_id=schedule, now=NOW + 2 * DAY, catch_up=True, **given)
    [run] = executions_of(conn, acme, schedule)
    assert (run["state"], run["nominal_at"], ticket_of(conn, run["id"])["job_limit"]) == ("ready", NOW + DAY, 0)
    job_resume(job_id=job, now=NOW + 3 * DAY, **given)
    assert rows_of(conn, acme, "schedules_schedule")[0]["status"] == "completed"
    assert entry_of(conn, schedule) is None and ticket_of(conn, run["id"])["job_limit"] is None


def test_a_catch_up_that_a_pause_of_the_job_meets_is_recorded(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """The other order: the debt was due and not yet fired."""
    job = make_job(acme)
    schedule = make_schedule(acme, job, trigger={"every_s": 3600}, misfire="fire_all")
    given: dict[str, Any] = {"tenant": acme, "actor": actor(acme)}
    schedule_pause(schedule_id=schedule, now=NOW, **given)
    schedule_resume(schedule_id=schedule, now=NOW + DAY / 4, catch_up=True, **given)
    job_pause(job_id=job, now=NOW + DAY / 4, **given)
    [row] = executions_of(conn, acme, schedule)
    assert (row["state"], row["reason"], row["count"]) == ("skipped", "job_paused", 6)
