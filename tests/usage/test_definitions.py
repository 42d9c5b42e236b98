"""Bounds of what a tenant keeps (jobs, schedules, secrets, people, ...): fifty at once never get past one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from kernel.errors import QuotaExceeded
from tests.fixtures_api import in_parallel
from tests.fixtures_flow import NOW, actor, count, make_job, make_schedule
from tests.usage.test_admitting import NewTenant, refused

if TYPE_CHECKING:
    from tenants.models import Tenant

Conn = psycopg.Connection[Any]
Make = Callable[["Tenant", int], object]


def a_calendar(tenant: Tenant, number: int) -> object:
    from apps.schedules.services import calendar_create

    return calendar_create(tenant=tenant, actor=actor(tenant), data={"name": f"c{number}"}, now=NOW)


def a_secret(tenant: Tenant, number: int) -> object:
    from apps.secrets.services import secret_create

    return secret_create(tenant=tenant, actor=actor(tenant), name=f"S{number}", value="x", now=NOW)


def a_person(tenant: Tenant, number: int) -> object:
    from tenants.invitations import invitation_create
    from tenants.people import member_add

    given: Any = {"tenant": tenant, "actor": actor(tenant), "email": f"p{number}@example.com", "role": "viewer"}
    return invitation_create(**given, now=NOW) if number % 2 else member_add(**given, now=NOW)


def a_key(tenant: Tenant, number: int) -> object:
    from tenants.apikeys import apikey_issue

    return apikey_issue(tenant=tenant, actor=actor(tenant), name=f"k{number}", role="viewer", now=NOW)


def a_webhook(tenant: Tenant, number: int) -> object:
    from apps.webhooks.services import webhook_create

    data = {"url": f"https://example.com/{number}", "types": ["run.failed"]}
    return webhook_create(tenant=tenant, actor=actor(tenant), data=data, now=NOW)


KINDS: dict[str, Make] = {
    "max_jobs": lambda tenant, number: make_job(tenant),
    "max_schedules": lambda tenant, number: make_schedule(tenant, _job_of(tenant)),
    "max_calendars": a_calendar,
    "max_secrets": a_secret,
    "max_webhooks": a_webhook,
    "max_members": a_person,
    "max_api_keys": a_key,
}


def _job_of(tenant: Tenant) -> Any:
    from apps.schedules.models import Job
    from tenants import door

    with door.inside(tenant):
        return Job.objects.values_list("pk", flat=True)[0]


@pytest.mark.parametrize("quota", KINDS)
def test_fifty_threads_never_get_past_a_bound(new_tenant: NewTenant, quota: str) -> None:
    from apps.dispatch.standing import standings
    from tenants import door

    tenant = new_tenant(**{quota: 7})
    if quota == "max_schedules":
        make_job(tenant)
    done = in_parallel(50, lambda number: KINDS[quota](tenant, number))
    errors = [one for one in done if isinstance(one, Exception)]
    assert Counter(type(one) for one in errors) == {QuotaExceeded: 43}, errors[:3]
    assert {(one.extra["quota"], one.extra["limit"], one.extra["use"]) for one in errors} == {(quota, 7, 7)}  # type: ignore[attr-defined]  # all are QuotaExceeded
    with door.inside(tenant):
        (found,) = [one for one in standings(tenant, now=NOW) if one.quota == quota]
    assert (found.use, found.limit, found.percent, found.exact) == (7, 7, 100.0, True)


def test_an_invitation_keeps_its_place_and_a_second_one_takes_the_same(new_tenant: NewTenant) -> None:
    from tenants.invitations import invitation_create, invitation_revoke
    from tenants.people import member_add

    tenant = new_tenant(max_members=2)
    given: Any = {"tenant": tenant, "actor": actor(tenant), "role": "viewer", "now": NOW}
    member_add(**given, email="one@example.com")
    invitation_create(**given, email="two@example.com")
    invited, _ = invitation_create(**given, email="two@example.com")
    refused(lambda: member_add(**given, email="three@example.com"))
    given["now"] = NOW
    invitation_revoke(tenant=tenant, actor=actor(tenant), invitation_id=invited.pk, now=NOW)
    member_add(**given, email="three@example.com")


def test_a_key_that_is_over_or_has_a_successor_counts_no_more(new_tenant: NewTenant) -> None:
    from tenants.apikeys import apikey_end, apikey_issue, apikey_rotate

    tenant = new_tenant(max_api_keys=2)
    given: Any = {"tenant": tenant, "actor": actor(tenant), "role": "viewer"}
    first, _ = apikey_issue(**given, name="first", now=NOW)
    apikey_issue(**given, name="short", now=NOW, expires_at=NOW + timedelta(hours=1))
    refused(lambda: apikey_issue(**given, name="third", now=NOW))
    apikey_rotate(tenant=tenant, actor=actor(tenant), key_id=first.pk, now=NOW)
    refused(lambda: apikey_issue(**given, name="third", now=NOW))
    later = NOW + timedelta(hours=2)
    third, _ = apikey_issue(**given, name="third", now=later)
    apikey_end(tenant=tenant, actor=actor(tenant), key_id=third.pk, now=later)
    apikey_issue(**given, name="fourth", now=later)


def test_changing_over_again_and_again_makes_no_more_keys(new_tenant: NewTenant) -> None:
    from tenants.apikeys import apikey_end, apikey_issue, apikey_rotate

    tenant = new_tenant(max_api_keys=1)
    given: Any = {"tenant": tenant, "actor": actor(tenant), "now": NOW}
    first, _ = apikey_issue(**given, name="first", role="viewer")
    second, _ = apikey_rotate(**given, key_id=first.pk)
    error = refused(lambda: apikey_rotate(**given, key_id=second.pk))
    assert (error.extra["quota"], error.extra["use"]) == ("max_api_keys", 1)
    third, _ = apikey_rotate(**given, key_id=second.pk, overlap=timedelta(0))
    apikey_end(**given, key_id=first.pk)
    apikey_rotate(**given, key_id=third.pk)


def test_a_smaller_plan_keeps_what_there_is_and_refuses_more(new_tenant: NewTenant, conn: Conn) -> None:
    from tenants.models import Plan

    tenant = new_tenant(max_jobs=5)
    for _ in range(4):
        make_job(tenant)
    assert count(conn, "SELECT level FROM usage_notice WHERE quota = 'max_jobs'") == 80
    Plan.objects.filter(pk=tenant.plan_id).update(max_jobs=2)
    error = refused(lambda: make_job(tenant))
    assert error.extra["limit"] == 2
    Plan.objects.filter(pk=tenant.plan_id).update(max_jobs=5)
    make_job(tenant)
    assert count(conn, "SELECT sum(level) FROM usage_notice WHERE quota = 'max_jobs'") == 180
