"""Release: what is ready goes to workers in order, within every limit, and fairly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, cast

import psycopg
import pytest

from apps.audit.services import Actor
from apps.dispatch.keeper import Keeper
from apps.dispatch.release import ReleaseService
from apps.schedules.services import job_pause, job_resume, job_update
from apps.tickets import waiting
from apps.tickets.store import AGING
from kernel.clock import utc_now
from kernel.pools import POOL_NUMBER
from tenants import door
from tenants.models import Plan, Tenant
from tenants.pauses import dispatch_pause, dispatch_resume
from tenants.registry import Registry
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    at_once,
    count,
    fire_all,
    live_worker,
    make_job,
    make_schedule,
    make_ticket,
    queue_of,
    release,
    settle_as,
    start,
    started_now,
    ticket_of,
)
from tests.flow.releasing import Former, ids_of, states, tickets
from tests.schedules.cases import case

OPERATOR = Actor("operator", "admin")
Conn = psycopg.Connection[Any]
Make = Callable[..., ReleaseService]

# --- order ---


def test_high_priority_goes_first(releaser: Make, conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Case C14, through release and start: nine is high."""
    given = case("worker.jsonl", "C14")
    names = {make_ticket(acme, priority=one["p"]): one["id"] for one in given["input"]["enqueue"]}
    worker = live_worker(conn, slots=1, queues=[queue_of(registry, acme)])
    order: list[str] = []
    service = releaser()
    while len(order) < len(names):
        started = start(conn, release(service), worker)
        order += [names[one.execution_id] for one in started]
        settle_as(conn, registry, started)
    assert order == given["expected"]["order"]


def test_a_step_of_priority_is_worth_a_minute_of_waiting(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    job = make_job(acme)
    old_low = make_ticket(acme, job, priority=0, now=NOW)
    just_too_late = make_ticket(acme, job, priority=9, now=NOW + 9 * AGING + timedelta(seconds=1))
    just_in_time = make_ticket(acme, job, priority=9, now=NOW + 9 * AGING - timedelta(seconds=1))
    live_worker(conn, slots=1, queues=[queue_of(registry, acme)])
    service = releaser()
    order = ids_of(release(service))
    conn.execute("DELETE FROM tickets_ticket WHERE state = 'queued'")
    order += ids_of(release(service))
    assert order == [just_in_time, old_low, just_too_late]


def test_older_comes_first_among_equals(releaser: Make, conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme)
    made = [make_ticket(acme, job, now=NOW + number * MINUTE) for number in (3, 1, 2)]
    live_worker(conn, slots=50, queues=[queue_of(registry, acme)])
    assert ids_of(release(releaser())) == [made[1], made[2], made[0]]


def test_a_retry_is_released_when_its_time_has_come(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    [one] = tickets(acme, 1)
    worker = live_worker(conn, queues=[queue_of(registry, acme)])
    service = releaser()
    settle_as(conn, registry, start(conn, release(service), worker), "failed")
    assert ticket_of(conn, one)["rank"] is None
    assert release(service) == []
    conn.execute("UPDATE tickets_ticket SET available_at = clock_timestamp()")
    assert ids_of(release(service)) == [one]


# --- limits ---


def test_a_jobs_limit_holds_over_many_passes(releaser: Make, conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme, max_concurrency=3)
    tickets(acme, 12, job)
    worker = live_worker(conn, slots=50, queues=[queue_of(registry, acme)])
    service, done = releaser(), 0
    while done < 12:
        started = start(conn, release(service, passes=3), worker)
        assert count(conn, "SELECT count(*) FROM tickets_ticket WHERE state IN ('queued', 'running')") == 3
        settle_as(conn, registry, started[:2])
        settle_as(conn, registry, started[2:], "failed")
        conn.execute("UPDATE tickets_ticket SET available_at = now() WHERE state = 'ready'")
        done = 12 - count(conn, "SELECT count(*) FROM tickets_ticket")
        if done >= 9:
            break


def test_two_releases_at_once_do_not_exceed_a_limit(
    releaser: Make, leader: Keeper, conn: Conn, second: Conn, registry: Registry, acme: Tenant
) -> None:
    """As when a lease was taken over in the middle: the row of the lease decides whose sums count."""
    job = make_job(acme, max_concurrency=2)
    live_worker(conn, slots=50, queues=[queue_of(registry, acme)])
    mine, stale = releaser(), releaser(on=second)
    for _ in range(10):
        tickets(acme, 4, job)
        term = leader.held("release")[POOL_NUMBER["python"]]
        stale._keeper = cast(Keeper, Former(leader, term - 1))
        at_once(partial(release, mine), partial(release, stale))
        assert count(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'queued'") == 2
        conn.execute("DELETE FROM tickets_ticket")


def test_a_full_job_does_not_hold_up_the_tenants_other_jobs(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    """Neither the other jobs nor the slots: what waits for its own job takes no part of the share."""
    full = make_job(acme, max_concurrency=1)
    waiting = tickets(acme, 30, full, priority=9)
    others = tickets(acme, 8, now=NOW + timedelta(hours=1))
    live_worker(conn, slots=5, queues=[queue_of(registry, acme)])
    released = ids_of(release(releaser()))
    assert set(released) - set(waiting) == set(others)
    assert len(set(released) & set(waiting)) == 1


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_a_tenant_that_can_use_nothing_does_not_take_the_others_turns(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, globex: Tenant, slots: int
) -> None:
    """A small pool, and a tenant whose work waits behind its own full job: the other one gets every slot."""
    full = make_job(acme, max_concurrency=1)
    running = tickets(acme, 1, full)
    worker = live_worker(conn, slots=slots, queues=[queue_of(registry, acme), queue_of(registry, globex)])
    started_now(conn, running, worker)
    tickets(acme, 20, full)
    job = make_job(globex)
    service, served = releaser(), 0
    for _ in range(10):
        tickets(globex, 2 * slots, job)
        started = start(conn, release(service), worker)
        assert len(started) == 2 * slots - 1, "each free slot, in each pass"
        served += len(started)
        settle_as(conn, registry, started)
    assert served == 10 * (2 * slots - 1)


def test_a_paused_jobs_tickets_wait_and_come_back_from_the_queue(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    job = make_job(acme)
    made = tickets(acme, 4, job)
    worker = live_worker(conn, slots=1, queues=[queue_of(registry, acme)])
    service = releaser()
    messages = release(service)
    job_pause(tenant=acme, actor=actor(acme), job_id=job, now=NOW)
    assert states(conn) == {"ready": 4}
    assert start(conn, messages, worker) == [], "its messages find nothing"
    assert release(service) == []
    job_resume(tenant=acme, actor=actor(acme), job_id=job, now=NOW)
    assert set(ids_of(release(service))) <= set(made)


def test_a_new_limit_holds_for_what_waits(releaser: Make, conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme)
    tickets(acme, 6, job)
    live_worker(conn, slots=50, queues=[queue_of(registry, acme)])
    for limit, most in ((2, 2), (4, 4), (None, 6)):
        job_update(tenant=acme, actor=actor(acme), job_id=job, patch={"max_concurrency": limit}, now=NOW)
        release(service := releaser())
        assert count(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'queued'") == most
        assert release(service) == []


def test_a_tenants_limit_spans_its_pools(
    releaser: Make, conn: Conn, registry: Registry, new_tenant: Callable[..., Tenant]
) -> None:
    tenant = new_tenant(max_running=3)
    http = make_job(tenant, kind="http", target={"url": "https://example.com/"})
    tickets(tenant, 5)
    tickets(tenant, 5, http)
    for pool in ("python", "http"):
        live_worker(conn, slots=50, queues=[queue_of(registry, tenant, pool)], pool=pool)
    assert len(ids_of(release(releaser("python")))) == 3
    assert release(releaser("http")) == []


def test_two_pools_at_once_do_not_exceed_a_tenants_limit(
    releaser: Make, conn: Conn, second: Conn, registry: Registry, new_tenant: Callable[..., Tenant]
) -> None:
    tenant = new_tenant(max_running=4)
    jobs = [make_job(tenant), make_job(tenant, kind="http", target={"url": "https://example.com/"})]
    for pool in ("python", "http"):
        live_worker(conn, slots=50, queues=[queue_of(registry, tenant, pool)], pool=pool)
    services = [releaser("python"), releaser("http", on=second)]
    for _ in range(10):
        for job in jobs:
            tickets(tenant, 5, job)
        at_once(*(partial(release, service) for service in services))
        assert count(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'queued'") == 4
        conn.execute("DELETE FROM tickets_ticket")


def test_a_pass_that_fire_rang_for_needs_no_look(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_worker(conn, queues=[queue_of(registry, acme)])
    service = releaser()
    release(service)
    monkeypatch.setattr(waiting, "look", None)
    made = tickets(acme, 2)
    service.rung, service._again_at = True, float("inf")
    service.run_once()
    assert sorted(ids_of(service._publisher.taken())) == sorted(made)  # type: ignore[attr-defined]  # it is a Noted
    late = conn.execute("SELECT max(queued_at - clock_timestamp()) FROM tickets_ticket").fetchone()
    assert late is not None and timedelta(seconds=-20) < late[0] <= timedelta(seconds=0.1), "by the database's clock"
    monkeypatch.undo()
    conn.execute("UPDATE tickets_ticket SET state = 'ready', rank = NULL, available_at = clock_timestamp()")
    service.rung = True
    service.run_once()
    assert states(conn) == {"ready": 2}, "what is ready is all that it is rung for"
    service.rung, service._again_at = True, float("-inf")
    service.run_once()
    assert states(conn) == {"queued": 2}, "but now and then it looks, though it is rung for all the time"


@pytest.mark.parametrize("how", ["suspended", "dispatch_paused", "pool"])
def test_a_suspended_tenants_work_waits(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, globex: Tenant, how: str
) -> None:
    """Case D23: at the latest when the tenants are read again, every few seconds."""
    tickets(acme, 2)
    theirs = tickets(globex, 2)
    live_worker(conn, slots=50, queues=[queue_of(registry, tenant) for tenant in (acme, globex)])
    if how == "pool":
        dispatch_pause(pool="python", tenant_id=acme.pk, actor=OPERATOR, now=utc_now())
        dispatch_pause(pool="http", actor=OPERATOR, now=utc_now())
    else:
        Tenant.objects.filter(pk=acme.pk).update(**({"status": how} if how == "suspended" else {how: True}))
    service = releaser()
    assert sorted(ids_of(release(service, passes=3))) == sorted(theirs)
    Tenant.objects.filter(pk=acme.pk).update(status="active", dispatch_paused=False)
    if how == "pool":
        dispatch_pause(actor=OPERATOR, now=utc_now())
        dispatch_resume(pool="python", tenant_id=acme.pk, actor=OPERATOR, now=utc_now())
        assert ids_of(release(service, passes=2)) == [], "all pools of all tenants are"
        dispatch_resume(actor=OPERATOR, now=utc_now())
    service._registry.refresh(force=True)
    assert len(ids_of(release(service))) == 2


def test_tenants_are_not_read_for_each_run(releaser: Make, conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Case D23: the other half."""
    from tenants.registry import SELECT_TENANTS

    live_worker(conn, slots=500, queues=[queue_of(registry, acme)])
    service = releaser()
    job, reads = make_job(acme), 0
    line = service._registry._line
    counted = Counting(line.get(), SELECT_TENANTS)
    service._registry._line = counted  # type: ignore[assignment]  # it stands for a line
    for _ in range(20):
        tickets(acme, 3, job)
        release(service)
    reads = counted.seen
    assert reads <= 2


def test_a_plan_that_moves_a_tenant_to_shared_queues_moves_what_waits(
    releaser: Make, conn: Conn, registry: Registry, new_tenant: Callable[..., Tenant]
) -> None:
    """Tickets and due entries name a queue from when they were made: nobody may listen to it any more."""
    tenant = new_tenant(own_queue=True)
    old = queue_of(registry, tenant)
    [waits] = tickets(tenant, 1)
    make_schedule(tenant)
    Plan.objects.filter(pk=tenant.plan_id).update(own_queue=False)
    registry.refresh(force=True)
    new = queue_of(registry, tenant)
    assert new != old
    fire_all(conn, registry, now=NOW + MINUTE)
    worker = live_worker(conn, slots=50, queues=[new])
    service = releaser()
    [message] = release(service)
    assert message.queue == new and len(message.ids) == 2
    assert waits in message.ids
    assert {ticket_of(conn, one)["queue"] for one in message.ids} == {new}
    assert release(service) == []
    assert len(start(conn, [message], worker)) == 2


# --- fairness ---


def test_tenants_share_by_weight(
    releaser: Make, conn: Conn, registry: Registry, new_tenant: Callable[..., Tenant]
) -> None:
    light, heavy = new_tenant(weight=1), new_tenant(weight=3)
    queues = [queue_of(registry, tenant) for tenant in (light, heavy)]
    worker = live_worker(conn, slots=20, queues=queues)
    for tenant in (light, heavy):
        tickets(tenant, 100)
    service, served = releaser(), Counter[int]()
    for _ in range(3):
        started = start(conn, release(service), worker)
        served.update(one.tenant_id for one in started)
        settle_as(conn, registry, started)
    assert served.total() == 120
    assert 2.2 <= served[heavy.pk] / served[light.pk] <= 4


def test_a_flood_does_not_hold_up_a_small_tenant(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    worker = live_worker(conn, slots=10, queues=[queue_of(registry, tenant) for tenant in (acme, globex)])
    flood = make_job(acme)
    with door.inside(acme):
        tickets(acme, 150, flood, priority=9)
    service = releaser()
    settle_as(conn, registry, start(conn, release(service), worker))
    mine = tickets(globex, 5, priority=0)
    started = start(conn, release(service), worker)
    assert set(mine) <= {one.execution_id for one in started}


def test_a_room_that_others_do_not_want_is_lent(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    live_worker(conn, slots=10, queues=[queue_of(registry, tenant) for tenant in (acme, globex)])
    tickets(acme, 40)
    tickets(globex, 1)
    assert len(ids_of(release(releaser()))) == 20


def test_a_serial_schedule_that_runs_does_not_hold_up_what_is_behind_it(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    """buffer_one: its next run waits until the first has ended, and takes nobody's place meanwhile."""
    job = make_job(acme, priority=9)
    for _ in range(12):
        make_schedule(acme, job, overlap="buffer_one")
    fire_all(conn, registry, now=NOW + MINUTE)
    worker = live_worker(conn, slots=10, queues=[queue_of(registry, tenant) for tenant in (acme, globex)])
    service = releaser()
    first = start(conn, release(service, passes=2), worker)
    assert len(first) == 12
    fire_all(conn, registry, now=NOW + 2 * MINUTE)
    plain = tickets(acme, 4, now=NOW + timedelta(hours=1), priority=0)
    theirs = tickets(globex, 4, now=NOW + timedelta(hours=1), priority=0)
    assert sorted(ids_of(release(service, passes=2))) == sorted(plain + theirs)
    settle_as(conn, registry, first)
    assert len(ids_of(release(service, passes=2))) == 12


class Counting:
    """A line whose connection counts a statement."""

    def __init__(self, conn: Conn, statement: str) -> None:
        self.conn, self.statement, self.seen, self.info = conn, statement, 0, conn.info

    def get(self) -> Any:
        return self

    def add_notify_handler(self, heard: Callable[..., None]) -> None:
        self.conn.add_notify_handler(heard)

    def execute(self, query: Any, *more: Any) -> Any:
        self.seen += query == self.statement
        return self.conn.execute(query, *more)
