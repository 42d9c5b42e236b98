"""max_runs_per_min: never more releases in a minute of the clock, over all pools; what does not fit waits."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from kernel.pools import POOL_NUMBER
from tests.fixtures_api import in_parallel
from tests.fixtures_flow import MINUTE, NOW, count, live_worker, make_job, make_ticket, queue_of
from tests.usage.test_admitting import NewTenant

if TYPE_CHECKING:
    from apps.dispatch.release import ReleaseService
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
Make = Callable[..., "ReleaseService"]
SECOND = timedelta(seconds=1)


def release_at(service: ReleaseService, now: datetime) -> int:
    """One pass at an instant; how many were released."""
    service._released_at = float("-inf")
    service._registry.refresh(force=True)
    term = service._keeper.held("release")[POOL_NUMBER[service.pool]]
    return service._release(service._line.get(), term, now)[1]


def _release_of(services: list[ReleaseService], now: datetime, number: int) -> int:
    return release_at(services[number], now + number * SECOND)


def stocked(tenant: Tenant, number: int, *, now: datetime = NOW, **job: Any) -> None:
    made = make_job(tenant, now=now, **job)
    for _ in range(number):
        make_ticket(tenant, made, now=now)


@pytest.mark.parametrize(
    "last", [NOW + 59 * SECOND, datetime(2025, 1, 31, 23, 59, 59, 999_999, UTC)], ids=["minute", "month"]
)
def test_a_minute_releases_so_many_and_the_rest_waits_for_the_next(
    releaser: Make, conn: Conn, registry: Registry, new_tenant: NewTenant, last: datetime
) -> None:
    tenant = new_tenant(max_runs_per_min=3)
    stocked(tenant, 8, now=last.replace(second=0, microsecond=0))
    live_worker(conn, slots=50, queues=[queue_of(registry, tenant)])
    service = releaser()
    first = last.replace(second=0, microsecond=0)
    assert [release_at(service, at) for at in (first, first + SECOND, last)] == [3, 0, 0]
    assert service._held_until == first + MINUTE and service._wait_s(last) is not None
    assert count(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'ready'") == 5
    assert [release_at(service, first + minute * MINUTE) for minute in (1, 2, 3)] == [3, 2, 0]


def test_one_tenants_rate_is_not_anothers(
    releaser: Make, conn: Conn, registry: Registry, new_tenant: NewTenant, acme: Tenant
) -> None:
    slow = new_tenant(max_runs_per_min=1)
    stocked(slow, 5)
    stocked(acme, 5)
    live_worker(conn, slots=50, queues=[queue_of(registry, slow), queue_of(registry, acme)])
    assert release_at(releaser(), NOW) == 6


def test_two_pools_at_once_share_a_rate(
    releaser: Make, conn: Conn, second: Conn, registry: Registry, new_tenant: NewTenant
) -> None:
    tenant = new_tenant(max_runs_per_min=4)
    for pool in ("python", "http"):
        live_worker(conn, slots=50, queues=[queue_of(registry, tenant, pool)], pool=pool)
    services = [releaser("python"), releaser("http", on=second)]
    for minute in range(6):
        now = NOW + minute * MINUTE
        stocked(tenant, 5, now=now)
        stocked(tenant, 5, now=now, kind="http", target={"url": "https://example.com/"})
        # One of them may have read its clock when the other is in the next minute: together they stay within both.
        done = in_parallel(2, partial(_release_of, services, now))
        assert sum(done) == 4, done


def test_a_slow_pass_of_the_former_minute_is_counted_in_the_present_one(conn: Conn, acme: Tenant) -> None:
    from apps.usage import rates

    limits = {acme.pk: 5}
    for now, more, use in ((NOW + MINUTE, 3, 3), (NOW + 59 * SECOND, 2, 5), (NOW + 2 * MINUTE, 1, 1)):
        before = rates.used(conn, [acme.pk], now=now)
        rates.take(conn, {acme.pk: more}, before=before, limits=limits, now=now)
        assert rates.used(conn, [acme.pk], now=now) == {acme.pk: use}
    rates.take(conn, {acme.pk: 4}, before={acme.pk: 0}, limits=limits, now=NOW + timedelta(days=1))
    assert rates.used(conn, [acme.pk], now=NOW) == {acme.pk: 0}  # a clock that was wrong holds nobody up
    rates.take(conn, {acme.pk: 2}, before={acme.pk: 0}, limits=limits, now=NOW)
    assert rates.used(conn, [acme.pk], now=NOW) == {acme.pk: 2}


def test_fifty_consumers_never_lease_more_than_a_minute_allows(new_tenant: NewTenant, conn: Conn) -> None:
    from apps.dispatch.pull import lease

    tenant = new_tenant(max_runs_per_min=7)
    stocked(tenant, 60, kind="pull", target={}, queue="work")
    ask = partial(lease, tenant=tenant, queue="work", most=3, lease_s=60, now=NOW)
    done = in_parallel(50, lambda number: len(ask(holder=f"one {number}")))
    assert sum(done) == 7
    assert len(ask(holder=uuid.uuid4().hex, now=NOW + MINUTE)) == 3
    assert count(conn, "SELECT sum(level) FROM usage_notice") == 180


def test_fifty_consumers_never_hold_more_than_may_run(new_tenant: NewTenant, conn: Conn) -> None:
    from apps.dispatch.pull import lease

    tenant = new_tenant(max_running=7)
    stocked(tenant, 60, kind="pull", target={}, queue="work")
    ask = partial(lease, tenant=tenant, queue="work", most=3, lease_s=60, now=NOW)
    done = in_parallel(50, lambda number: len(ask(holder=f"one {number}")))
    assert sum(done) == 7 == count(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'running'")


def test_a_plan_that_gets_a_rate_or_loses_it(
    releaser: Make, conn: Conn, registry: Registry, new_tenant: NewTenant
) -> None:
    from tenants.models import Plan

    tenant = new_tenant(max_runs_per_min=2)
    stocked(tenant, 20)
    live_worker(conn, slots=50, queues=[queue_of(registry, tenant)])
    service, released = releaser(), []
    for limit in (2, 3, 1, 10, None):
        Plan.objects.filter(pk=tenant.plan_id).update(max_runs_per_min=limit)
        released.append(release_at(service, NOW))
    assert released == [2, 1, 0, 7, 10]
