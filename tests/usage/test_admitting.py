"""Runs that somebody asks for, against max_runs_per_day and max_live: never one more, whoever comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from kernel.errors import QuotaExceeded
from tests.fixtures_api import in_parallel
from tests.fixtures_flow import NOW, actor, count, make_job, make_schedule, make_ticket, settle_as, started_now

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
NewTenant = Callable[..., "Tenant"]


def runs_on(conn: Conn, tenant: Tenant, day: date) -> int:
    row = conn.execute("SELECT runs FROM usage_daycount WHERE tenant_id = %s AND day = %s", [tenant.pk, day]).fetchone()
    return int(row[0]) if row else 0


def refused(work: Callable[[], object]) -> QuotaExceeded:
    with pytest.raises(QuotaExceeded) as caught:
        work()
    return caught.value


@pytest.mark.parametrize("limits", [{"max_runs_per_day": 7}, {"max_live": 7}], ids=["day", "live"])
def test_fifty_threads_never_get_past_a_limit(new_tenant: NewTenant, conn: Conn, limits: dict[str, int]) -> None:
    tenant = new_tenant(**limits)
    job = make_job(tenant)

    def submit(number: int) -> UUID:
        later: dict[str, Any] = {"run_at": (NOW + timedelta(hours=1)).isoformat()} if number % 2 else {}
        return make_ticket(tenant, job, **later)

    done = in_parallel(50, submit)
    assert Counter(type(one) for one in done) == {UUID: 7, QuotaExceeded: 43}
    assert count(conn, f"SELECT count(*) FROM {tenant.schema_name}.executions_execution") == 7
    (quota,) = limits
    assert {
        (one.extra["quota"], one.extra["limit"], one.extra["use"]) for one in done if not isinstance(one, UUID)
    } == {(quota, 7, 7)}


def test_fifty_threads_of_many_runs_fill_a_day_exactly(new_tenant: NewTenant, conn: Conn) -> None:
    from django.db import transaction

    from apps.usage.admitting import admit_up_to
    from tenants import door

    tenant = new_tenant(max_runs_per_day=100)

    def admit(number: int) -> int:
        with transaction.atomic():
            return admit_up_to(door.raw(), tenant, 1 + number % 5, NOW).runs

    assert sum(in_parallel(50, admit)) == 100
    assert runs_on(conn, tenant, NOW.date()) == 100


def test_what_is_taken_back_is_not_counted(new_tenant: NewTenant, conn: Conn) -> None:
    """Effect and count are one transaction: a crash between them takes both back."""
    from django.db import transaction

    from apps.usage.admitting import admit_runs
    from tenants import door

    tenant = new_tenant(max_runs_per_day=3, max_live=3)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        admit_runs(door.raw(), tenant, 3, NOW)
        raise ZeroDivisionError
    assert runs_on(conn, tenant, NOW.date()) == 0
    assert count(conn, "SELECT count(*) FROM usage_delta") == 0
    assert count(conn, "SELECT count(*) FROM usage_notice") == 0
    make_ticket(tenant)
    assert runs_on(conn, tenant, NOW.date()) == 1


def test_all_or_nothing_or_as_many_as_there_is_room_for(new_tenant: NewTenant, conn: Conn) -> None:
    from django.db import transaction

    from apps.usage.admitting import admit_runs, admit_up_to
    from tenants import door

    tenant = new_tenant(max_runs_per_day=10)
    with transaction.atomic():
        admit_runs(door.raw(), tenant, 8, NOW)
    with transaction.atomic():
        error = refused(lambda: admit_runs(door.raw(), tenant, 3, NOW))
        admitted = admit_up_to(door.raw(), tenant, 3, NOW)
    assert (error.extra["limit"], error.extra["use"]) == (10, 8)
    assert error.extra["resets_at"] == "2025-01-07T00:00:00+00:00"
    assert error.extra["retry_after_s"] == 14 * 3_600 + 1
    assert admitted.runs == 2 and admitted.refusal is not None
    assert runs_on(conn, tenant, NOW.date()) == 10


@pytest.mark.parametrize(
    "last", [datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC), datetime(2025, 12, 31, 23, 59, 59, 999_999, UTC)]
)
def test_a_day_ends_at_midnight_utc_also_where_a_month_or_a_year_does(
    new_tenant: NewTenant, conn: Conn, last: datetime
) -> None:
    tenant = new_tenant(max_runs_per_day=2)
    job = make_job(tenant, now=last)
    for _ in range(2):
        make_ticket(tenant, job, now=last)
    error = refused(lambda: make_ticket(tenant, job, now=last))
    first = last + timedelta(microseconds=1)
    assert error.extra["resets_at"] == first.isoformat()
    make_ticket(tenant, job, now=first)
    assert runs_on(conn, tenant, last.date()) == 2
    assert runs_on(conn, tenant, first.date()) == 1
    refused(lambda: make_ticket(tenant, job, now=last))  # a slow request of yesterday is yesterday's


def test_a_plan_that_changes_meanwhile_counts_from_the_next_run_on(new_tenant: NewTenant, conn: Conn) -> None:
    from tenants.models import Plan, Tenant

    tenant = new_tenant(max_runs_per_day=5)
    job = make_job(tenant)
    for _ in range(4):
        make_ticket(tenant, job)
    Plan.objects.filter(pk=tenant.plan_id).update(max_runs_per_day=2)  # the tenant in hand still says 5
    error = refused(lambda: make_ticket(tenant, job))
    assert (error.extra["limit"], error.extra["use"]) == (2, 4)
    Plan.objects.filter(pk=tenant.plan_id).update(max_runs_per_day=6)
    make_ticket(tenant, job)
    Plan.objects.filter(pk=tenant.plan_id).update(max_runs_per_day=None)
    fresh = Tenant.objects.select_related("plan").get(pk=tenant.pk)
    for _ in range(3):
        make_ticket(fresh, job)
    assert runs_on(conn, tenant, NOW.date()) == 5


def test_triggers_reruns_and_replays_are_runs(new_tenant: NewTenant, conn: Conn, registry: Registry) -> None:
    from apps.deadletters.models import DeadLetter
    from apps.dispatch.submit import execution_rerun, schedule_trigger
    from apps.outcomes.again import How
    from apps.outcomes.replay import deadletter_replay
    from tenants import door

    tenant = new_tenant(max_runs_per_day=4)
    registry.refresh(force=True)
    job = make_job(tenant, retry={"max_attempts": 1})
    schedule = make_schedule(tenant, job)
    one, who = make_ticket(tenant, job), actor(tenant)
    settle_as(conn, registry, started_now(conn, [one], UUID(int=1)), "failed")
    with door.inside(tenant):
        (letter,) = DeadLetter.objects.values_list("pk", flat=True)
    again = execution_rerun(tenant=tenant, actor=who, execution_id=one, now=NOW)
    deadletter_replay(tenant=tenant, actor=who, letter_id=letter, now=NOW)
    schedule_trigger(tenant=tenant, actor=who, schedule_id=schedule, now=NOW)
    settle_as(conn, registry, started_now(conn, [again, one], UUID(int=1)), "failed")
    with door.inside(tenant):
        second = DeadLetter.objects.filter(resolved_at=None).values_list("pk", flat=True)[0]
    for work in (
        lambda: execution_rerun(tenant=tenant, actor=who, execution_id=one, now=NOW),
        lambda: deadletter_replay(tenant=tenant, actor=who, letter_id=second, now=NOW),
        lambda: deadletter_replay(tenant=tenant, actor=who, letter_id=second, now=NOW, how=How(payload={"a": 1})),
        lambda: schedule_trigger(tenant=tenant, actor=who, schedule_id=schedule, now=NOW),
    ):
        assert refused(work).extra["quota"] == "max_runs_per_day"
    with door.inside(tenant):
        assert DeadLetter.objects.get(pk=second).resolved_at is None
    assert runs_on(conn, tenant, NOW.date()) == 4


def test_a_trigger_that_overlap_leaves_no_room_is_no_run(new_tenant: NewTenant, conn: Conn) -> None:
    from apps.dispatch.submit import schedule_trigger

    tenant = new_tenant(max_runs_per_day=1)
    schedule = make_schedule(tenant, overlap="skip")
    for _ in range(3):
        schedule_trigger(tenant=tenant, actor=actor(tenant), schedule_id=schedule, now=NOW)
    assert runs_on(conn, tenant, NOW.date()) == 1
    refused(
        lambda: schedule_trigger(tenant=tenant, actor=actor(tenant), schedule_id=schedule, now=NOW, overlap="allow")
    )


def test_what_has_ended_makes_room_for_what_may_live(new_tenant: NewTenant, conn: Conn, registry: Registry) -> None:
    from apps.outcomes.cancel import execution_cancel

    tenant = new_tenant(max_live=3)
    registry.refresh(force=True)
    job = make_job(tenant)
    first, second = make_ticket(tenant, job), make_ticket(tenant, job)
    later = make_ticket(tenant, job, run_at=(NOW + timedelta(hours=1)).isoformat())
    started = started_now(conn, [first], UUID(int=1))
    error = refused(lambda: make_ticket(tenant, job))
    assert (error.extra["quota"], error.extra["limit"], error.extra["use"]) == ("max_live", 3, 3)
    settle_as(conn, registry, started, "failed")  # it waits for its next try: it lives
    refused(lambda: make_ticket(tenant, job))
    for one in (first, second, later):
        execution_cancel(tenant=tenant, actor=actor(tenant), execution_id=one, now=NOW)
        make_ticket(tenant, job)
        refused(lambda: make_ticket(tenant, job))


def test_limits_are_told_when_they_come_near_and_when_they_are_reached_once_a_day(
    new_tenant: NewTenant, conn: Conn
) -> None:
    from apps.usage import notices

    tenant = new_tenant(max_runs_per_day=10)
    job = make_job(tenant)
    for made in range(1, 11):
        make_ticket(tenant, job)
        with conn.transaction():
            found = notices.take(conn, now=NOW, limit=10)
        level = {8: 80, 10: 100}.get(made)
        assert [tuple(one) for one in found] == (
            [(tenant.pk, "max_runs_per_day", level, 10, made, NOW)] if level else []
        )
    conn.execute("UPDATE usage_daycount SET runs = 7")
    make_ticket(tenant, job)
    assert notices.take(conn, now=NOW, limit=10) == []
    make_ticket(tenant, job, now=NOW + timedelta(days=1))
    assert notices.take(conn, now=NOW, limit=10) == []
