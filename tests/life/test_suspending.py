"""Suspension: nothing starts, nothing is owed, and no time passes for what waits, whoever looks when."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection

from apps.audit.services import Actor
from apps.life.suspending import tenant_resume, tenant_suspend
from apps.outcomes.expire import expire_batch
from kernel.clock import utc_now
from kernel.errors import Conflict, InvalidInput
from tenants.deletion import tenant_delete, tenant_undelete
from tenants.models import Suspension, Tenant
from tenants.registry import Registry
from tenants.suspension import Standstill, standstills
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    at_once,
    count,
    entry_of,
    executions_of,
    fire_all,
    make_job,
    make_schedule,
    make_ticket,
    settle_as,
    started_now,
    ticket_of,
)
from tests.tenants.test_commands import run

Conn = psycopg.Connection[Any]
Make = Callable[..., Tenant]
OPERATOR = Actor(name="test:operator", role="admin")
WORKER = UUID(int=1)
SECOND = timedelta(seconds=1)


def suspend(tenant: Tenant, *, now: datetime) -> None:
    tenant_suspend(tenant=tenant, actor=OPERATOR, now=now, reason="not paid")


def resume(tenant: Tenant, *, now: datetime) -> None:
    tenant_resume(tenant=tenant, actor=OPERATOR, now=now)


def test_what_is_owed_is_what_was_due_before_and_after(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """No dispatcher looked from before the suspension until after it, and the first one knows nothing of it."""
    every_minute = make_schedule(acme, misfire="fire_all")
    late = make_schedule(acme, misfire="fire_all", jitter_s=30)
    suspend(acme, now=NOW + 2.5 * MINUTE)
    resume(acme, now=NOW + 10 * MINUTE)
    assert not registry.by_id[acme.pk].suspended
    fire_all(conn, registry, now=NOW + 11.9 * MINUTE)
    found = [
        (one["state"], one["nominal_at"], one["count"], one["reason"])
        for one in executions_of(conn, acme, every_minute)
    ]
    assert found == [
        ("ready", NOW + MINUTE, 1, ""),
        ("ready", NOW + 2 * MINUTE, 1, ""),
        ("skipped", NOW + 3 * MINUTE, 7, "tenant_suspended"),
        ("ready", NOW + 10 * MINUTE, 1, ""),  # it was let go at that very instant
        ("ready", NOW + 11 * MINUTE, 1, ""),
    ]
    jittered = executions_of(conn, acme, late)
    assert min(one["nominal_at"] for one in jittered if one["state"] == "skipped") >= NOW + 2 * MINUTE
    assert sum(one["count"] for one in jittered) == 11, "each occurrence has a row, whichever it is"


def test_nobody_looked_through_two_suspensions(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme, misfire="fire_once")
    for begins, ends in ((2.5, 4.5), (7.5, 8.5)):
        suspend(acme, now=NOW + begins * MINUTE)
        resume(acme, now=NOW + ends * MINUTE)
    fire_all(conn, registry, now=NOW + 9 * MINUTE)
    rows = [(one["state"], one["count"], one["reason"]) for one in executions_of(conn, acme, schedule)]
    missed, passed, run = ("skipped", 1, "misfire_skipped"), "tenant_suspended", ("ready", 1, "")
    assert rows == [missed, run, ("skipped", 2, passed), ("skipped", 2, missed[2]), run, ("skipped", 1, passed), run]


def test_while_it_lasts_nothing_is_fired_but_what_was_due_before(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme)
    suspend(acme, now=NOW + MINUTE + SECOND)  # before anybody fired what was due a second ago
    assert fire_all(conn, registry, now=NOW + 5 * MINUTE) == 1
    assert [(one["state"], one["count"]) for one in executions_of(conn, acme, schedule)] == [
        ("ready", 1),
        ("skipped", 4),
    ]
    assert entry_of(conn, schedule).nominal_at == NOW + 6 * MINUTE
    resume(acme, now=NOW + 5 * MINUTE + SECOND)
    assert fire_all(conn, registry, now=NOW + 6 * MINUTE) == 1


def test_no_time_passes_for_what_waits(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """A run that has a minute to start, one between two tries that has ten minutes in all, one that runs."""
    fresh = make_ticket(acme, make_job(acme, max_queue_age_s=60))
    slow = make_job(acme, timeout_s=60, total_timeout_s=600)
    [tried, runs] = sorted(started_now(conn, [make_ticket(acme, slow), make_ticket(acme, slow)], WORKER))
    settle_as(conn, registry, [tried], "failed")
    left = ticket_of(conn, tried.execution_id)["start_by"]
    begun = max(tried.started_at, left - 600 * SECOND)
    suspend(acme, now=begun)
    expire = partial(expire_batch, conn, registry, limit=100)
    assert expire(now=left + 24 * 60 * MINUTE) == {"expired": 0, "given_up": 0}
    later = make_ticket(acme, make_job(acme, max_queue_age_s=60), now=begun)
    settle_as(conn, registry, [runs], "failed")  # what runs goes on to its end, and may be tried again
    resume(acme, now=begun + 24 * 60 * MINUTE)
    assert ticket_of(conn, tried.execution_id)["start_by"] == left + 24 * 60 * MINUTE
    assert ticket_of(conn, fresh)["start_by"] == NOW + MINUTE + 24 * 60 * MINUTE
    assert ticket_of(conn, later)["start_by"] == begun + MINUTE + 24 * 60 * MINUTE
    assert {ticket_of(conn, one.execution_id)["total_timeout_s"] for one in (tried, runs)} == {600 + 86_400}
    assert expire(now=left + 24 * 60 * MINUTE + SECOND) == {"expired": 2, "given_up": 2}


def test_it_is_done_once_and_the_trail_says_who_and_why(conn: Conn, acme: Tenant) -> None:
    hour = 60 * MINUTE
    for _ in range(2):
        suspend(acme, now=NOW)
    with pytest.raises(InvalidInput):
        tenant_suspend(tenant=acme, actor=OPERATOR, now=NOW, reason="x" * 501)
    for _ in range(2):
        resume(acme, now=NOW + hour)
    suspend(acme, now=NOW + 2 * hour)
    trail = conn.execute(
        "SELECT action, reason, actor FROM audit_auditevent WHERE tenant_id = %s ORDER BY id", [acme.pk]
    )
    assert [row for row in trail if row[0].startswith("tenant.")] == [
        ("tenant.suspend", "not paid", "test:operator"),
        ("tenant.resume", "", "test:operator"),
        ("tenant.suspend", "not paid", "test:operator"),
    ]
    first, second = Standstill(NOW, NOW + hour), Standstill(NOW + 2 * hour, None)
    for since in (NOW - hour, NOW):
        assert standstills(conn, [acme.pk], since=since) == {acme.pk: [first, second]}
    assert standstills(conn, [acme.pk], since=NOW + hour) == {acme.pk: [second]}, "its end is left out of it"


def test_a_mark_for_deletion_is_one_standstill_with_what_follows(conn: Conn, new_tenant: Make) -> None:
    tenant = new_tenant()
    now = utc_now()
    tenant_delete(tenant=tenant, actor=OPERATOR, now=now)
    for verb in (suspend, resume):
        with pytest.raises(Conflict):
            verb(tenant, now=now)
    tenant_undelete(tenant=tenant, actor=OPERATOR, now=now + MINUTE)
    resume(tenant, now=now + 2 * MINUTE)
    assert standstills(conn, [tenant.pk], since=now) == {tenant.pk: [Standstill(now, now + 2 * MINUTE)]}


def test_two_operators_at_once(conn: Conn, acme: Tenant) -> None:
    at_once(*[partial(suspend, acme, now=NOW)] * 3)
    assert count(conn, "SELECT count(*) FROM tenants_suspension") == 1
    at_once(*[partial(resume, acme, now=NOW + MINUTE)] * 3)
    assert Suspension.objects.get().ended_at == NOW + MINUTE


def test_whatever_comes_at_the_same_moment_waits_for_the_end_of_it(
    conn: Conn, second: Conn, registry: Registry, acme: Tenant
) -> None:
    """Requests that were let in, a dispatcher that fires, expiry, an operator: nothing is lost, nothing is doubled."""
    job, schedule = make_job(acme), make_schedule(acme)
    at_once(
        partial(fire_all, conn, registry, now=NOW + MINUTE),
        partial(make_ticket, acme, job),
        partial(suspend, acme, now=NOW + MINUTE),
        partial(make_ticket, acme, job, delay_s=60),
    )
    fire_all(conn, registry, now=NOW + 5 * MINUTE)
    at_once(
        partial(fire_all, conn, registry, now=NOW + 6 * MINUTE),
        partial(expire_batch, second, registry, now=NOW + 6 * MINUTE, limit=100),
        partial(resume, acme, now=NOW + 6 * MINUTE),
    )
    fire_all(conn, registry, now=NOW + 6 * MINUTE)
    rows = executions_of(conn, acme, schedule)
    assert sum(one["count"] for one in rows) == 6, "each occurrence is in one row"
    waiting = count(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'ready'")
    assert waiting == 2 + sum(one["state"] == "ready" for one in rows)


def test_nobody_waits_while_limits_are_moved(conn: Conn, second: Conn, acme: Tenant, wait_for: Any) -> None:
    """Release locks rows of tenants; a ticket that somebody holds holds up whoever lets its tenant go on, alone."""
    held = make_ticket(acme, make_job(acme, max_queue_age_s=60))
    suspend(acme, now=NOW)
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"

    def goes_on() -> None:
        try:
            resume(acme, now=NOW + MINUTE)
        finally:
            connection.close()

    thread = threading.Thread(target=goes_on)
    with second.transaction():
        second.execute("SELECT 1 FROM tickets_ticket WHERE execution_id = %s FOR UPDATE", [held])
        thread.start()
        wait_for(lambda: count(conn, blocked, second.info.backend_pid), "the resume to wait for the ticket")
        conn.execute("SELECT 1 FROM tenants_tenant WHERE id = %s FOR NO KEY UPDATE NOWAIT", [acme.pk])
    thread.join()
    assert Tenant.objects.get(pk=acme.pk).status == "active"
    assert ticket_of(conn, held)["start_by"] == NOW + 2 * MINUTE


def test_a_batch_that_fires_comes_before_or_after_it(
    conn: Conn, second: Conn, registry: Registry, acme: Tenant, wait_for: Any
) -> None:
    """Fire holds its entries until it commits; the suspension waits for nothing of that, nor does it miss anything."""
    schedule = make_schedule(acme)
    with second.transaction():
        second.execute("SELECT 1 FROM tenants_tenant WHERE id = %s FOR UPDATE", [acme.pk])  # an operator is about to
        assert fire_all(conn, registry, now=NOW + MINUTE) == 1, "nobody who fires waits for an operator"
        second.execute("UPDATE tenants_tenant SET status = 'suspended' WHERE id = %s", [acme.pk])
        second.execute(
            "INSERT INTO tenants_suspension (tenant_id, began_at, reason) VALUES (%s, %s, '')",
            [acme.pk, NOW + MINUTE + SECOND],
        )
        assert fire_all(conn, registry, now=NOW + 2 * MINUTE) == 1, "it has not happened yet"
    assert fire_all(conn, registry, now=NOW + 3 * MINUTE) == 0
    assert [one["state"] for one in executions_of(conn, acme, schedule)] == ["ready", "ready", "skipped"]


def test_the_commands_say_what_they_do(acme: Tenant) -> None:
    assert run("tenant_suspend", "acme", "--dry-run") == (0, "acme was active; it would be suspended.\n", "")
    assert run("tenant_suspend", "acme", "--reason", "not paid") == (0, "acme was active; it is suspended.\n", "")
    assert run("tenant_suspend", "acme") == (0, "acme was suspended; it is suspended.\n", "")
    assert run("tenant_resume", "acme") == (0, "acme was suspended; it is active.\n", "")
    assert run("tenant_suspend", "--tenant", "acme", "--reason", "x" * 501, "--dry-run")[0] == 2
    code, _, err = run("tenant_suspend", "--tenant", "nobody")
    assert (code, err) == (2, "There is no tenant 'nobody'.\n")
