"""Bounds of what waits: a tenant's, with an estimate of when there is room, and the platform's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures_flow import NOW, count, make_job, make_ticket
from tests.usage.test_admitting import NewTenant, refused

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tests.fixtures_api import Api

Conn = psycopg.Connection[Any]
MOST = 10**6  # more than what the database remembers of the tickets of earlier tests


@given(st.integers(1, 10**9), st.floats(0, 10**6))
def test_an_estimate_is_between_a_second_and_an_hour(over: int, ended_per_s: float) -> None:
    from apps.usage.draining import wait_s

    found = wait_s(over=over, ended_per_s=ended_per_s)
    assert 1 <= found <= 3_600
    assert wait_s(over=over + 1, ended_per_s=ended_per_s) >= found


def ended(conn: Conn, tenant: Tenant, *, minutes_ago: int, succeeded: int = 0, dead: int = 0) -> None:
    conn.execute(
        "INSERT INTO usage_rollup (step_s, starts_at, tenant_id, fired, submitted, skipped, released, started,"
        " succeeded, dead, cancelled, expired, attempts, attempts_failed, run_ms)"
        " VALUES (60, date_trunc('minute', %s::timestamptz), %s, 0, 0, 0, 0, 0, %s, %s, 0, 0, 0, 0, 0)",
        [NOW - timedelta(minutes=minutes_ago), tenant.pk, succeeded, dead],
    )


def test_whoever_is_refused_is_told_when_to_come_again(new_tenant: NewTenant, conn: Conn) -> None:
    tenant = new_tenant(max_live=2)
    job = make_job(tenant)
    for _ in range(2):
        make_ticket(tenant, job)
    error = refused(lambda: make_ticket(tenant, job))
    assert (error.extra["quota"], error.extra["retry_after_s"]) == ("max_live", 60)  # nothing has ended: nobody knows
    ended(conn, tenant, minutes_ago=60, succeeded=1_000_000)  # long ago
    ended(conn, tenant, minutes_ago=4, succeeded=10)
    ended(conn, tenant, minutes_ago=1, succeeded=5, dead=5)
    error = refused(lambda: make_ticket(tenant, job))
    assert error.extra["retry_after_s"] == 12  # twenty in the four minutes since the first of them


def test_many_at_a_time_are_told_when_all_of_them_fit(new_tenant: NewTenant, conn: Conn) -> None:
    from django.db import transaction

    from apps.usage.admitting import admit_up_to
    from tenants import door

    tenant = new_tenant(max_live=5)
    ended(conn, tenant, minutes_ago=1, succeeded=60)
    with transaction.atomic():
        admitted = admit_up_to(door.raw(), tenant, 105, NOW)
    assert admitted.runs == 5 and admitted.refusal is not None
    assert admitted.refusal.extra["retry_after_s"] == 100


@pytest.fixture
def fresh() -> Iterator[None]:
    """This process looks at the platform anew, and so does the next test."""
    from apps.usage.pressure import glance

    glance.forget()
    yield
    glance.forget()


def busy(conn: Conn, live: int, *, ended_per_s: float = 0.0, every_s: float = 2.0) -> None:
    from apps.usage import pressure

    pressure.write(conn, every_s=every_s, live=live, ended_per_s=ended_per_s, figures={})
    pressure.glance.forget()


def test_a_full_platform_answers_503_and_when_to_come_again(
    api: Api, acme: Tenant, conn: Conn, settings: Any, fresh: None
) -> None:
    settings.MAX_LIVE_TOTAL = MOST
    body = {"job": str(make_job(acme))}
    run = api.post("executions", body)
    assert run.status == 202
    busy(conn, MOST + 49, ended_per_s=5)
    for path, sent in [("executions", body), ("executions/bulk", {"items": [body]})]:
        answer = api.post(path, sent)
        assert (answer.status, answer.code, answer.headers["Retry-After"]) == (503, "overloaded", "10")
    assert api.get("executions").status == 200
    assert api.post(f"executions/{run.body['id']}/cancel").status == 200
    busy(conn, MOST - 1)
    assert api.post("executions", body).status == 202


def test_nobody_counts_tickets_for_a_request(
    acme: Tenant, conn: Conn, settings: Any, fresh: None, statements: list[str]
) -> None:
    settings.MAX_LIVE_TOTAL = MOST
    job = make_job(acme)
    busy(conn, 10)
    statements.clear()
    for _ in range(3):
        make_ticket(acme, job)
    assert sum("usage_pressure" in one for one in statements) == 1
    assert not any("count(*)" in one for one in statements)


def test_without_a_dispatcher_the_database_says_how_much_there_is(
    acme: Tenant, conn: Conn, settings: Any, fresh: None
) -> None:
    """The last measurement is too old to mean anything: neither does it refuse for ever, nor is there no bound."""
    from apps.usage import pressure
    from kernel.errors import Overloaded

    settings.MAX_LIVE_TOTAL = MOST
    busy(conn, 5 * MOST)
    with pytest.raises(Overloaded):
        pressure.admit(conn)
    conn.execute("UPDATE usage_pressure SET measured_at = measured_at - interval '1 minute'")
    pressure.glance.forget()
    pressure.admit(conn)
    assert 0 <= pressure.glance.take(conn)[0] < MOST


def test_no_bound_reads_nothing(conn: Conn, settings: Any, statements: list[str], fresh: None) -> None:
    from apps.usage import pressure

    settings.MAX_LIVE_TOTAL = 0
    busy(conn, 10**9)
    statements.clear()
    pressure.admit(conn)
    assert statements == []


def test_a_glance_is_as_old_as_it_may_be(conn: Conn) -> None:
    from apps.usage.pressure import GLANCE_S, live_read
    from kernel.glance import Glance

    now = [0.0]
    glance = Glance(live_read, first=(0, 0.0), for_s=GLANCE_S, clock=lambda: now[0])
    busy(conn, 1)
    assert glance.take(conn)[0] == 1
    busy(conn, 2)
    assert glance.take(conn)[0] == 1
    now[0] += GLANCE_S
    assert glance.take(conn)[0] == 2
    assert count(conn, "SELECT count(*) FROM usage_pressure") == 1
