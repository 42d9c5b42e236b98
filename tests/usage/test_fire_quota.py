"""Schedules against max_runs_per_day: what there is no room for is skipped, and nothing makes way for it."""

from __future__ import annotations

import contextlib
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg

from kernel.errors import QuotaExceeded
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    count,
    executions_of,
    fire,
    fire_all,
    make_job,
    make_schedule,
    make_ticket,
    run_to_the_end,
    started_now,
    ticket_of,
)
from tests.usage.test_admitting import NewTenant, runs_on

if TYPE_CHECKING:
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
DUE = NOW + MINUTE


def outcome(conn: Conn, tenant: Any, schedule: UUID | None = None) -> list[tuple[str, str, int]]:
    return [(one["state"], one["reason"], one["count"]) for one in executions_of(conn, tenant, schedule)]


def test_what_a_day_has_no_room_for_is_skipped_with_the_reason(
    new_tenant: NewTenant, conn: Conn, registry: Registry
) -> None:
    tenant = new_tenant(max_runs_per_day=3)
    job = make_job(tenant)
    for _ in range(5):
        make_schedule(tenant, job)
    counts = fire(conn, registry, now=DUE)
    assert (counts["fired"], counts["skipped"]) == (3, 2)
    assert sorted(outcome(conn, tenant)) == [("ready", "", 1)] * 3 + [("skipped", "daily_quota", 1)] * 2
    assert runs_on(conn, tenant, NOW.date()) == 3
    assert count(conn, "SELECT count(*) FROM tickets_ticket") == 3


def test_a_schedule_without_room_stays_one_row_until_the_next_day(
    new_tenant: NewTenant, conn: Conn, registry: Registry
) -> None:
    """And the day is UTC's: at the end of a month it is the next month's first."""
    tenant = new_tenant(max_runs_per_day=2)
    start = datetime(2025, 1, 31, 23, 55, tzinfo=UTC)
    make_schedule(tenant, now=start)
    for minute in range(1, 8):
        fire(conn, registry, now=start + minute * MINUTE)
    assert outcome(conn, tenant) == [
        ("ready", "", 1), ("ready", "", 1), ("skipped", "daily_quota", 2), ("ready", "", 1), ("ready", "", 1),
        ("skipped", "daily_quota", 1),
    ]  # fmt: skip
    skipped = executions_of(conn, tenant)[2]
    assert (skipped["nominal_at"], skipped["until_at"]) == (start + 3 * MINUTE, start + 4 * MINUTE)


def test_catch_up_counts_and_the_rest_of_a_debt_is_one_row(
    new_tenant: NewTenant, conn: Conn, registry: Registry
) -> None:
    tenant = new_tenant(max_runs_per_day=4)
    make_schedule(tenant, misfire="fire_all", grace_s=1)
    fire(conn, registry, now=NOW + 10 * MINUTE)
    assert outcome(conn, tenant) == [("ready", "", 1)] * 4 + [("skipped", "daily_quota", 6)]
    assert runs_on(conn, tenant, NOW.date()) == 4


def test_a_resume_that_catches_up_behind_a_paused_job_counts(
    new_tenant: NewTenant, conn: Conn, registry: Registry
) -> None:
    from apps.schedules.services import job_pause, schedule_pause, schedule_resume

    tenant = new_tenant(max_runs_per_day=2)
    job = make_job(tenant)
    schedule = make_schedule(tenant, job, misfire="fire_all", grace_s=1)
    who = actor(tenant)
    schedule_pause(tenant=tenant, actor=who, schedule_id=schedule, now=NOW)
    job_pause(tenant=tenant, actor=who, job_id=job, now=NOW)
    schedule_resume(tenant=tenant, actor=who, schedule_id=schedule, now=NOW + 5 * MINUTE, catch_up=True)
    assert outcome(conn, tenant, schedule) == [("ready", "", 1)] * 2 + [("skipped", "daily_quota", 3)]
    assert runs_on(conn, tenant, NOW.date()) == 2


def test_nothing_makes_way_for_what_is_skipped(new_tenant: NewTenant, conn: Conn, registry: Registry) -> None:
    tenant = new_tenant(max_runs_per_day=1)
    registry.refresh(force=True)
    make_schedule(tenant, overlap="cancel_running")
    fire(conn, registry, now=DUE)
    (first,) = executions_of(conn, tenant)
    fire(conn, registry, now=DUE + MINUTE)
    assert ticket_of(conn, first["id"])["state"] == "ready"
    started_now(conn, [first["id"]], UUID(int=1))
    fire(conn, registry, now=DUE + 2 * MINUTE)
    assert ticket_of(conn, first["id"])["cancel_requested"] is False
    assert outcome(conn, tenant) == [("ready", "", 1), ("skipped", "daily_quota", 2)]


def test_schedules_and_requests_share_one_count(new_tenant: NewTenant, conn: Conn, registry: Registry) -> None:
    tenant = new_tenant(max_runs_per_day=30)
    registry.refresh(force=True)
    job = make_job(tenant)
    for _ in range(40):
        make_schedule(tenant, job)
    barrier = threading.Barrier(51)
    done: list[object] = []

    def submit() -> None:
        from django.db import connection

        barrier.wait()
        try:
            done.append(make_ticket(tenant, job))
        except QuotaExceeded as error:
            done.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=submit) for _ in range(50)]
    for thread in threads:
        thread.start()
    barrier.wait()
    fired = fire_all(conn, registry, now=DUE, limit=5)
    for thread in threads:
        thread.join()
    submitted = sum(isinstance(one, UUID) for one in done)
    assert len(done) == 50 and fired + submitted == 30 == runs_on(conn, tenant, NOW.date())
    skipped = [one for one in executions_of(conn, tenant) if one["state"] == "skipped"]
    assert len(skipped) == 40 - fired
    assert count(conn, "SELECT count(*) FROM tickets_ticket") == 30


def test_a_delayed_run_was_counted_when_it_was_asked_for(new_tenant: NewTenant, conn: Conn, registry: Registry) -> None:
    tenant = new_tenant(max_runs_per_day=1)
    one = make_ticket(tenant, run_at=(NOW + timedelta(days=1)).isoformat())
    fire(conn, registry, now=NOW + timedelta(days=1))
    assert ticket_of(conn, one) is not None
    assert runs_on(conn, tenant, NOW.date()) == 1
    assert runs_on(conn, tenant, (NOW + timedelta(days=1)).date()) == 0


def test_what_was_there_already_is_not_counted_twice(new_tenant: NewTenant, conn: Conn, registry: Registry) -> None:
    tenant = new_tenant(max_runs_per_day=5)
    registry.refresh(force=True)
    schedule = make_schedule(tenant)
    before = conn.execute("SELECT due_at, nominal_at FROM due_dueentry WHERE key = %s", [schedule]).fetchone()
    assert before is not None
    fire(conn, registry, now=DUE)
    run_to_the_end(conn, registry, [tenant])
    conn.execute("UPDATE due_dueentry SET due_at = %s, nominal_at = %s WHERE key = %s", [*before, schedule])
    counts = fire(conn, registry, now=DUE)
    assert (counts["fired"], counts["already_there"]) == (0, 1)
    assert runs_on(conn, tenant, NOW.date()) == 1


def test_a_failing_batch_counts_nothing(
    new_tenant: NewTenant, conn: Conn, registry: Registry, monkeypatch: Any
) -> None:
    from apps.dispatch import firing

    tenant = new_tenant(max_runs_per_day=5)
    registry.refresh(force=True)
    make_schedule(tenant)

    def crash(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(firing.tickets, "insert_few", crash)
        with contextlib.suppress(KeyboardInterrupt):
            fire(conn, registry, now=DUE)
    assert runs_on(conn, tenant, NOW.date()) == 0 and executions_of(conn, tenant) == []
    assert fire(conn, registry, now=DUE)["fired"] == 1
    assert runs_on(conn, tenant, NOW.date()) == 1


def test_a_limit_that_changes_counts_in_the_next_batch(new_tenant: NewTenant, conn: Conn, registry: Registry) -> None:
    """The dispatcher's picture of tenants is seconds old; where it knows of a limit it asks for today's."""
    from tenants.models import Plan

    tenant = new_tenant(max_runs_per_day=1)
    registry.refresh(force=True)
    make_schedule(tenant)
    fire(conn, registry, now=DUE)
    Plan.objects.filter(pk=tenant.plan_id).update(max_runs_per_day=2)
    fire(conn, registry, now=DUE + MINUTE)
    fire(conn, registry, now=DUE + 2 * MINUTE)
    assert outcome(conn, tenant) == [("ready", "", 1)] * 2 + [("skipped", "daily_quota", 1)]
