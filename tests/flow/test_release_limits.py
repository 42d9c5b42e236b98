"""Limits that several admit against at once, lanes, reserves, and what held late runs back."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg

from apps.dispatch.causes import Causes
from apps.tickets import filling, holds
from apps.tickets.values import HoldRow
from tests.fixtures_api import in_parallel
from tests.fixtures_flow import (
    NOW,
    count,
    execution_of,
    live_worker,
    make_job,
    make_ticket,
    queue_of,
    release,
    settle_as,
    start,
)

if TYPE_CHECKING:
    from apps.dispatch.release import ReleaseService
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
Make = Callable[..., "ReleaseService"]
SECOND = timedelta(seconds=1)
IN_FLIGHT = "SELECT count(*) FROM tickets_ticket WHERE state IN ('queued', 'running')"


def test_two_pools_and_a_pull_queue_at_once_stay_within_a_tenants_limit(
    releaser: Make, conn: Conn, second: Conn, registry: Registry, new_tenant: Callable[..., Tenant]
) -> None:
    from apps.dispatch.pull import lease

    tenant = new_tenant(max_running=5)
    jobs = [
        make_job(tenant), make_job(tenant, kind="http", target={"url": "https://example.com/"}),
        make_job(tenant, kind="pull", target={}, queue="work"),
    ]  # fmt: skip
    for pool in ("python", "http"):
        live_worker(conn, slots=50, queues=[queue_of(registry, tenant, pool)], pool=pool)
    services = [releaser("python"), releaser("http", on=second)]
    ask = partial(lease, tenant=tenant, queue="work", most=4, lease_s=60, holder="one", now=NOW)
    for _ in range(4):
        for job in jobs:
            for _ in range(4):
                make_ticket(tenant, job)
        in_parallel(3, lambda number: ask() if number == 2 else release(services[number]))
        assert count(conn, IN_FLIGHT) == 5
        conn.execute("DELETE FROM tickets_ticket")


def test_a_jobs_rate_lets_a_burst_go_and_queues_the_rest(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    job, free = make_job(acme), make_job(acme)
    for one in (job, free):
        for _ in range(6):
            make_ticket(acme, one)
    filling.put(conn, acme.pk, [filling.Rate(job, 0.001, 2)])
    live_worker(conn, queues=[queue_of(registry, acme)])
    service = releaser()
    release(service, passes=2)
    service._holds_at = float("-inf")
    release(service)
    rows = conn.execute("SELECT job_id FROM tickets_ticket WHERE state = 'queued'").fetchall()
    assert Counter(row[0] for row in rows) == {job: 2, free: 6}
    assert service._held_until is not None, "it looks again when a token has come back"
    assert count(conn, "SELECT count(*) FROM tickets_hold WHERE code = 'job_rate' AND flow = %s", job) == 1
    assert count(conn, "SELECT count(*) FROM tickets_bucket WHERE owner = %s AND tokens < 1", job) == 1


def test_live_work_goes_before_catch_up_and_backfill_which_never_starve(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    for tenant, lane in ((acme, 0), (globex, 1), (acme, 2)):
        ids = [make_ticket(tenant, job) for job in [make_job(tenant)] for _ in range(60)]
        conn.execute("UPDATE tickets_ticket SET lane = %s WHERE execution_id = ANY(%s)", [lane, ids])
    live_worker(conn, slots=16, queues=[queue_of(registry, tenant) for tenant in (acme, globex)])
    lanes = Counter[int]()
    service = releaser()
    for _ in range(2):
        release(service)
        lanes.update(row[0] for row in conn.execute("SELECT lane FROM tickets_ticket WHERE state = 'queued'"))
        conn.execute("DELETE FROM tickets_ticket WHERE state = 'queued'")
    assert lanes.total() == 64 and lanes[0] >= 58 and lanes[1] + lanes[2] >= 3
    conn.execute("DELETE FROM tickets_ticket WHERE lane = 0")
    release(service)
    assert count(conn, IN_FLIGHT) == 12, "three quarters of the slots: live work that comes finds the others free"


def test_an_owner_gets_its_reserve_from_the_next_free_slots(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, new_tenant: Callable[..., Tenant]
) -> None:
    from tenants.models import PlanPool

    owner = new_tenant(weight=1)  # a plan of its own
    PlanPool.objects.create(plan_id=owner.plan_id, pool="python", reserved_slots=6)
    job = make_job(acme)
    for _ in range(60):
        make_ticket(acme, job)
    worker = live_worker(conn, slots=5, queues=[queue_of(registry, tenant) for tenant in (acme, owner)])
    service = releaser()
    begun = start(conn, release(service, passes=2), worker)
    assert len(begun) == 10, "what nobody else wants is lent"
    theirs = make_job(owner)
    for _ in range(20):
        make_ticket(owner, theirs)
    settle_as(conn, registry, begun[:6])
    service._registry.refresh(force=True)
    release(service, passes=2)  # as a newcomer, then in the round that follows at once
    rows = conn.execute("SELECT tenant_id FROM tickets_ticket WHERE state = 'queued'").fetchall()
    assert Counter(row[0] for row in rows) == {owner.pk: 6}


def test_a_late_runs_delays_say_what_held_it_and_for_how_long(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    job = make_job(acme, max_concurrency=1)
    now: datetime = conn.execute("SELECT clock_timestamp()").fetchone()[0]  # type: ignore[index]  # always one row
    first, late = (make_ticket(acme, job, now=now) for _ in range(2))
    worker = live_worker(conn, queues=[queue_of(registry, acme)])
    service = releaser()
    begun = start(conn, release(service, passes=2), worker)
    assert [one.execution_id for one in begun] == [first]
    for (_, flow), [span] in service._memory.causes.spans.items():  # as if it had begun some seconds earlier
        assert (flow, span.code, span.limit, span.use) == (job, "job_concurrency", 1, 1)
        span.since -= 4 * SECOND
    conn.execute(
        "UPDATE tickets_ticket SET available_at = available_at - interval '5 s' WHERE execution_id = %s", [late]
    )
    settle_as(conn, registry, begun)
    settle_as(conn, registry, start(conn, release(service), worker))
    assert execution_of(conn, acme, first)["delays"] is None, "it was in time"
    [delay] = execution_of(conn, acme, late)["delays"]
    assert delay["code"] == "job_concurrency" and 3.9 <= delay["s"] <= 9


def test_what_a_plan_or_a_tenant_is_changed_to_holds_from_the_next_pass_on(
    releaser: Make, conn: Conn, registry: Registry, new_tenant: Callable[..., Tenant]
) -> None:
    from tenants.models import Plan, PlanPool, Tenant

    tenant = new_tenant(weight=1)  # a plan of its own
    live_worker(conn, queues=[queue_of(registry, tenant)])
    job, service = make_job(tenant), releaser()
    make_ticket(tenant, job)
    assert len(release(service)) == 1, "it knows the tenant"
    for _ in range(9):
        make_ticket(tenant, job)

    def held() -> int:
        service._registry._not_before = float("-inf")  # as if the last reading were long ago
        release(service)
        return count(conn, IN_FLIGHT)

    plan = Plan.objects.filter(pk=tenant.plan_id)
    plan.update(max_running=3)
    assert held() == 3
    plan.update(max_running=None, max_runs_per_min=1, runs_burst=1)
    assert held() == 4
    plan.update(max_runs_per_min=None, runs_burst=None)
    PlanPool.objects.create(plan_id=tenant.plan_id, pool="python", max_slots=6)
    assert held() == 6
    PlanPool.objects.filter(plan_id=tenant.plan_id).delete()
    Tenant.objects.filter(pk=tenant.pk).update(dispatch_paused=True)
    assert held() == 6
    Tenant.objects.filter(pk=tenant.pk).update(dispatch_paused=False)
    assert held() == 10


def test_without_workers_each_tenant_is_told_its_own_cause_and_until_when(
    releaser: Make, conn: Conn, acme: Tenant, globex: Tenant
) -> None:
    for tenant in (acme, globex):
        make_ticket(tenant)
    type(acme).objects.filter(pk=acme.pk).update(dispatch_paused=True)
    service, held = releaser(), "SELECT tenant_id, code FROM tickets_hold ORDER BY 1"
    release(service, passes=2)
    told = conn.execute(held).fetchall()
    assert told == sorted([(acme.pk, "dispatch_paused"), (globex.pk, "no_workers")])
    conn.execute("UPDATE tickets_hold SET seen_at = seen_at - interval '10 s'")
    conn.execute("DELETE FROM tickets_ticket")
    service._holds_at = float("-inf")
    release(service)
    late = "SELECT count(*) FROM tickets_hold WHERE seen_at < clock_timestamp() - interval '9 s'"
    assert count(conn, late) == 0, "nothing is ready any more, and it is written until when it lasted"
    rows = "SELECT * FROM tickets_hold ORDER BY tenant_id"
    before = conn.execute(rows).fetchall()
    holds.write(conn, "python", [HoldRow(globex.pk, None, "no_workers", NOW, NOW, None, None)])
    assert conn.execute(rows).fetchall() == before, "of one who has lost the lease"


def test_of_two_causes_the_one_that_began_last_counts_and_gaps_count_for_none() -> None:
    causes, flow = Causes(), uuid.uuid4()
    note = partial(causes.note, 1, limit=1, use=1)
    for second in range(41):
        at = NOW + second * SECOND
        if second <= 20:
            note(flow, "job_rate", now=at)
        if 5 <= second <= 10 or second >= 30:
            note(None, "fair_share", now=at)
    told = causes.delays(1, flow, since=NOW, now=NOW + 40 * SECOND)
    assert told is not None
    import orjson

    seconds = {one["code"]: one["s"] for one in orjson.loads(told)}
    assert set(seconds) == {"job_rate", "fair_share"}
    assert abs(seconds["job_rate"] - 15) <= 1 and abs(seconds["fair_share"] - 16) <= 2
    assert causes.delays(1, UUID(int=1), since=NOW + 12 * SECOND, now=NOW + 25 * SECOND) is None
    assert causes.delays(1, flow, since=NOW, now=NOW + SECOND) is None, "that is not late"
