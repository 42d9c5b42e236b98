"""max_runs_per_min: at most burst + rate * t releases in any time t, over all pools; what does not fit waits."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from hypothesis import given
from hypothesis import strategies as st

from apps.tickets import buckets, filling
from apps.tickets.values import WHOLE_TENANT, Rate
from apps.usage import rates
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
    found = service._release(service._line.get(), term, now)
    return 0 if found is None else found[2]


def _release_of(services: list[ReleaseService], now: datetime, number: int) -> int:
    return release_at(services[number], now + number * SECOND)


def stocked(tenant: Tenant, number: int, *, now: datetime = NOW, **job: Any) -> None:
    made = make_job(tenant, now=now, **job)
    for _ in range(number):
        make_ticket(tenant, made, now=now)


def test_a_burst_goes_at_once_and_the_rest_as_tokens_come_back(
    releaser: Make, conn: Conn, registry: Registry, new_tenant: NewTenant
) -> None:
    tenant = new_tenant(max_runs_per_min=30, runs_burst=3)  # a token each two seconds
    stocked(tenant, 20)
    live_worker(conn, slots=50, queues=[queue_of(registry, tenant)])
    service = releaser()
    assert [release_at(service, NOW + s * SECOND) for s in (0, 0, 1, 2, 3, 4, 10, 100)] == [3, 0, 0, 1, 0, 1, 3, 3]
    assert release_at(service, NOW + 101 * SECOND) == 0
    assert rates.used(conn, tenant.pk, 30, 3, now=NOW + 101 * SECOND) == 30, "all of it: the next run has to wait"
    assert service._held_until == NOW + 102 * SECOND and service._wait_s(NOW + 101 * SECOND) is not None
    assert count(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'ready'") == 9
    assert release_at(service, NOW + 70 * SECOND) == 0, "a clock that goes back brings no tokens"


def test_one_tenants_rate_is_not_anothers(
    releaser: Make, conn: Conn, registry: Registry, new_tenant: NewTenant, acme: Tenant
) -> None:
    slow = new_tenant(max_runs_per_min=1, runs_burst=1)
    stocked(slow, 5)
    stocked(acme, 5)
    live_worker(conn, slots=50, queues=[queue_of(registry, slow), queue_of(registry, acme)])
    assert release_at(releaser(), NOW) == 6


def test_two_pools_at_once_share_a_rate(
    releaser: Make, conn: Conn, second: Conn, registry: Registry, new_tenant: NewTenant
) -> None:
    tenant = new_tenant(max_runs_per_min=4, runs_burst=4)
    for pool in ("python", "http"):
        live_worker(conn, slots=50, queues=[queue_of(registry, tenant, pool)], pool=pool)
    services = [releaser("python"), releaser("http", on=second)]
    for turn in range(6):
        now = NOW + turn * 2 * MINUTE
        stocked(tenant, 5, now=now)
        stocked(tenant, 5, now=now, kind="http", target={"url": "https://example.com/"})
        # One of them may have read its clock a second before the other.
        done = in_parallel(2, partial(_release_of, services, now))
        assert sum(done) == 4, done


def test_fifty_consumers_never_lease_more_than_the_burst(new_tenant: NewTenant, conn: Conn) -> None:
    from apps.dispatch.pull import lease

    tenant = new_tenant(max_runs_per_min=7, runs_burst=7)
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

    tenant = new_tenant(max_runs_per_min=60, runs_burst=2)
    stocked(tenant, 20)
    live_worker(conn, slots=50, queues=[queue_of(registry, tenant)])
    service, released = releaser(), []
    for second, (limit, burst) in enumerate([(60, 2), (120, 3), (60, 1), (60, 10), (None, None)]):
        Plan.objects.filter(pk=tenant.plan_id).update(max_runs_per_min=limit, runs_burst=burst)
        released.append(release_at(service, NOW + second * SECOND))
    assert released == [2, 1, 1, 1, 15], "a larger burst fills up; it is not there at once"


def test_a_clock_that_steps_back_and_forth_gives_nothing_twice(
    releaser: Make, conn: Conn, registry: Registry, new_tenant: NewTenant
) -> None:
    tenant = new_tenant(max_runs_per_min=60, runs_burst=3)  # a token a second
    live_worker(conn, slots=50, queues=[queue_of(registry, tenant)])
    service, released = releaser(), []
    for second, wanted in ((0, 3), (10, 1), (5, 1), (10, 20)):
        stocked(tenant, wanted)
        released.append(release_at(service, NOW + second * SECOND))
    assert released == [3, 1, 1, 1], "of the burst at second 10"
    assert release_at(service, NOW - 100 * SECOND) == 3, "a row that is far ahead was written by a wrong clock"
    conn.execute("UPDATE tickets_bucket SET at = clock_timestamp() + interval '30 s', tokens = 0")
    filling.put(conn, tenant.pk, [filling.Rate(WHOLE_TENANT, 2.0, 3)])
    assert count(conn, "SELECT count(*) FROM tickets_bucket WHERE at > clock_timestamp() + interval '20 s'") == 1


@given(
    per_s=st.floats(0.01, 1_000), burst=st.integers(1, 50),
    asked=st.lists(st.tuples(st.floats(0, 30), st.integers(0, 60)), min_size=1, max_size=40),
)  # fmt: skip
def test_never_more_than_burst_and_rate_times_time(
    per_s: float, burst: int, asked: list[tuple[float, int]]
) -> None:  # fmt: skip
    """In any window, whatever is asked when: each start of a window counts."""
    bucket, at, went = Rate(per_s, burst, float(burst)), NOW, list[tuple[float, int]]()
    for wait_s, wants in asked:
        now = at + timedelta(seconds=wait_s)
        bucket, at = buckets.refilled(bucket, at, now), now
        count = min(wants, math.floor(bucket.tokens))
        bucket = bucket._replace(tokens=bucket.tokens - count)
        went.append(((at - NOW).total_seconds(), count))
    for begin, (start_s, _) in enumerate(went):
        total = 0
        for end_s, count in went[begin:]:
            total += count
            assert total <= burst + per_s * (end_s - start_s) + 1e-3
