"""Schedules against max_live: what there is no room for is one skip row, which grows; the count is seconds old."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import psycopg

from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    count,
    executions_of,
    fire,
    make_job,
    make_schedule,
    make_ticket,
    run_to_the_end,
)
from tests.usage.test_admitting import NewTenant, runs_on
from tests.usage.test_fire_quota import DUE, outcome

if TYPE_CHECKING:
    from apps.dispatch.pressure.backlogs import Backlogs
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]


def test_what_a_backlog_has_no_room_for_is_one_row_until_there_is_room(
    new_tenant: NewTenant, conn: Conn, registry: Registry
) -> None:
    tenant = new_tenant(max_live=2, max_runs_per_day=3)
    make_schedule(tenant)
    for minute in range(1, 6):
        fire(conn, registry, now=NOW + minute * MINUTE)
    assert outcome(conn, tenant) == [("ready", "", 1)] * 2 + [("skipped", "backlog_full", 3)]
    assert runs_on(conn, tenant, NOW.date()) == 2  # what was not made counts for no day
    run_to_the_end(conn, registry, [tenant])
    for minute in range(6, 8):
        fire(conn, registry, now=NOW + minute * MINUTE)
    assert outcome(conn, tenant)[2:] == [
        ("skipped", "backlog_full", 3), ("ready", "", 1), ("skipped", "daily_quota", 1)
    ]  # fmt: skip


def test_what_was_asked_for_takes_room_too_and_catch_up_gets_what_is_left(
    new_tenant: NewTenant, conn: Conn, registry: Registry
) -> None:
    tenant = new_tenant(max_live=5)
    job = make_job(tenant)
    make_ticket(tenant, job)
    make_ticket(tenant, job, run_at=(NOW + 60 * MINUTE).isoformat())
    schedule = make_schedule(tenant, job, misfire="fire_all", grace_s=1)
    fire(conn, registry, now=NOW + 10 * MINUTE)
    assert outcome(conn, tenant, schedule) == [("ready", "", 1)] * 3 + [("skipped", "backlog_full", 7)]


def test_a_resume_behind_a_paused_job_stays_below_the_bound(
    new_tenant: NewTenant, conn: Conn, registry: Registry
) -> None:
    from apps.schedules.services import job_pause, schedule_pause, schedule_resume

    tenant = new_tenant(max_live=2)
    job = make_job(tenant)
    schedule = make_schedule(tenant, job, misfire="fire_all", grace_s=1)
    who = actor(tenant)
    schedule_pause(tenant=tenant, actor=who, schedule_id=schedule, now=NOW)
    job_pause(tenant=tenant, actor=who, job_id=job, now=NOW)
    schedule_resume(tenant=tenant, actor=who, schedule_id=schedule, now=NOW + 5 * MINUTE, catch_up=True)
    assert outcome(conn, tenant, schedule) == [("ready", "", 1)] * 2 + [("skipped", "backlog_full", 3)]


def test_a_tenant_is_counted_again_after_two_seconds_and_its_own_runs_at_once(
    new_tenant: NewTenant, conn: Conn, registry: Registry, statements: list[str]
) -> None:
    from apps.dispatch.pressure.backlogs import KEPT_S, Backlogs

    now = [0.0]
    backlogs: Backlogs = Backlogs(clock=lambda: now[0])
    tenant = new_tenant(max_live=3)
    make_schedule(tenant)
    registry.refresh(force=True)
    statements.clear()
    for minute in range(1, 6):
        fire(conn, registry, now=NOW + minute * MINUTE, backlogs=backlogs)
    assert sum("AS m(tenant_id, most)" in one for one in statements) == 1
    assert outcome(conn, tenant) == [("ready", "", 1)] * 3 + [("skipped", "backlog_full", 2)]
    conn.execute("DELETE FROM tickets_ticket")
    assert backlogs.room(conn, {tenant.pk: 3}) == {tenant.pk: 0}
    now[0] += KEPT_S
    assert backlogs.room(conn, {tenant.pk: 3}) == {tenant.pk: 3}


def test_a_batch_that_fails_takes_no_room(
    new_tenant: NewTenant, conn: Conn, registry: Registry, monkeypatch: Any
) -> None:
    from apps.dispatch import firing
    from apps.dispatch.pressure.backlogs import Backlogs

    tenant = new_tenant(max_live=1)
    registry.refresh(force=True)
    make_schedule(tenant)
    backlogs = Backlogs()

    def crash(*args: object) -> None:
        raise psycopg.OperationalError

    with monkeypatch.context() as patched:
        patched.setattr(firing.tickets, "insert_few", crash)
        with contextlib.suppress(psycopg.OperationalError):
            fire(conn, registry, now=DUE, backlogs=backlogs)
    assert executions_of(conn, tenant) == []
    assert fire(conn, registry, now=DUE, backlogs=backlogs)["fired"] == 1


def test_who_has_no_bound_is_not_counted(
    new_tenant: NewTenant, conn: Conn, registry: Registry, statements: list[str]
) -> None:
    tenant = new_tenant()
    make_schedule(tenant)
    statements.clear()
    assert fire(conn, registry, now=DUE)["fired"] == 1
    assert not any("count(*)" in one for one in statements)


def test_what_is_remembered_is_bounded(conn: Conn, monkeypatch: Any) -> None:
    from apps.dispatch.pressure import backlogs as module

    monkeypatch.setattr(module, "REMEMBERED", 3)
    backlogs = module.Backlogs()
    for first in range(0, 12, 2):
        assert set(backlogs.room(conn, {first: 5, first + 1: 5}).values()) == {5}
    assert len(backlogs._known) <= 3 + 1


def test_a_full_backlog_is_told_once_a_day(new_tenant: NewTenant, conn: Conn, registry: Registry) -> None:
    tenant = new_tenant(max_live=1)
    conn.execute("UPDATE tenants_tenant SET event_types = '[\"schedule.missed\"]' WHERE id = %s", [tenant.pk])
    registry.refresh(force=True)
    make_schedule(tenant)
    for minute in range(1, 5):
        fire(conn, registry, now=NOW + minute * MINUTE)
    assert count(conn, f"SELECT count(*) FROM {tenant.schema_name}.events_event WHERE type = 'schedule.missed'") == 1
