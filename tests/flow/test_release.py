"""Release: what is ready goes to workers that can take it, fairly, within every limit, and comes back when lost."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest

from apps.audit.services import Actor
from apps.dispatch.capacity import MESSAGE_MAX, Message, capacity_of, leave_to_others, messages_of
from apps.dispatch.keeper import Keeper
from apps.dispatch.release import ReleaseService
from apps.outcomes.cancel import execution_cancel
from apps.schedules.services import job_pause, job_resume, job_update
from apps.tickets import releasing, workers
from apps.tickets.store import AGING
from apps.tickets.values import LIVE, Candidate, InFlight, LiveWorker
from kernel.clock import utc_now
from kernel.pools import POOL_NUMBER
from tenants import door
from tenants.models import Plan, Tenant
from tenants.pauses import dispatch_pause, dispatch_resume
from tenants.registry import Registry
from tests.conftest import wait_until
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    Noted,
    actor,
    assert_exactly_one_outcome,
    at_every_crash,
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
from tests.schedules.cases import case

OPERATOR = Actor("operator", "admin")
Conn = psycopg.Connection[Any]
Make = Callable[..., ReleaseService]
JOB = UUID(int=5)


def ids_of(messages: list[Message]) -> list[UUID]:
    return [one for message in messages for one in message.ids]


def tickets(tenant: Tenant, number: int, job: UUID | None = None, **more: Any) -> list[UUID]:
    job = job or make_job(tenant)
    return [make_ticket(tenant, job, **more) for _ in range(number)]


def states(conn: Conn) -> Counter[str]:
    return Counter(row[0] for row in conn.execute("SELECT state FROM tickets_ticket"))


# --- capacity ---


def test_capacity_is_slots_times_prefetch_less_what_is_taken() -> None:
    live = [LiveWorker(UUID(int=1), 10, ["a", "b"]), LiveWorker(UUID(int=2), 4, ["b"])]
    job, flow, other = UUID(int=9), UUID(int=8), UUID(int=7)
    rows = [
        taken("a", 3, job=other),
        taken("b", 5, 1, job=job, flow=flow, tenant=2),
        taken("gone", 2, job=job, tenant=2),
    ]
    room = capacity_of(live, [*rows, taken("", 4, job=job, tenant=2)], prefetch=2.0)
    group = room.groups[""]
    assert (group.slots, group.capacity, group.free, group.held) == (14, 28, 18, [10, 0, 0])
    assert room.by_queue == {"a": 17, "b": 23}
    assert room.by_tenant == {1: 3, 2: 11} and room.held == {1: 3, 2: 7}, "outside takes no slot"
    assert room.by_job == {other: 3, job: 11}
    assert room.by_flow == {other: 3, flow: 5, job: 6}
    assert room.message_max == {"a": 5, "b": 2}, "half of the smallest worker that may get it"


@pytest.mark.parametrize(
    ("pool", "queued", "running", "left"),
    [
        ("http", 0, 0, 190),  # of 100 slots, twice as many with prefetch: ten are for the others
        ("http", 100, 50, 40),
        ("http", 170, 25, -5),
        ("http", 0, 90, 0),  # all that it may have running is taken by slow runs: no more to wait
        ("python", 0, 0, 200),
        ("python", 100, 100, 0),
    ],
)
def test_a_queue_leaves_room_to_the_others(pool: str, queued: int, running: int, left: int) -> None:
    rows = [taken("a", queued), taken("a", running, running)]
    room = capacity_of([LiveWorker(UUID(int=1), 100, ["a", "b"])], rows, prefetch=2.0)
    leave_to_others(room, pool)
    assert room.by_queue == {"a": left, "b": 190 if pool == "http" else 200}


def test_more_than_there_is_room_for_is_never_a_negative_room() -> None:
    room = capacity_of([LiveWorker(UUID(int=1), 1, ["a"])], [taken("a", 50)], prefetch=2.0)
    assert room.groups[""].free < 0 and room.free == 0


def test_groups_of_workers_have_capacity_of_their_own() -> None:
    gold = "python.own.acme@gold"
    live = [LiveWorker(UUID(int=1), 10, ["a"]), LiveWorker(UUID(int=2), 4, [gold], "gold")]
    room = capacity_of(live, [taken("a", 3), taken(gold, 5)], prefetch=2.0)
    assert {name: (group.slots, group.free) for name, group in room.groups.items()} == {"": (10, 17), "gold": (4, 3)}
    by_hand = capacity_of([LiveWorker(UUID(int=1), 10, ["a", gold])], [taken(gold, 5)], prefetch=2.0)
    assert (by_hand.whose[gold], by_hand.groups[""].free) == ("", 15), "who listens to a queue has its slots taken"


def test_released_is_what_workers_can_take_and_no_more(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    made = tickets(acme, 30)
    worker = live_worker(conn, slots=5, queues=[queue_of(registry, acme)])
    service = releaser()
    first = release(service, passes=3)
    assert len(ids_of(first)) == 10, "slots times a prefetch of two"
    assert states(conn) == {"queued": 10, "ready": 20}
    started = start(conn, first, worker)
    assert release(service) == [], "what runs takes its slot too"
    settle_as(conn, registry, started[:4])
    assert len(ids_of(release(service))) == 4
    live_worker(conn, slots=5, queues=[queue_of(registry, acme)])
    assert len(ids_of(release(service))) == 10
    assert set(made) == set(ids_of(first)) | {row[0] for row in conn.execute("SELECT execution_id FROM tickets_ticket")}


def test_a_queue_without_consumer_gets_nothing(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    tickets(acme, 3)
    mine = tickets(globex, 3)
    live_worker(conn, slots=50, queues=[queue_of(registry, globex)])
    assert sorted(ids_of(release(releaser()))) == sorted(mine)
    assert states(conn) == {"queued": 3, "ready": 3}


@pytest.mark.parametrize("why", ["none", "expired", "draining", "another pool", "no queues"])
def test_without_a_worker_that_serves_it_nothing_is_released(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, why: str
) -> None:
    tickets(acme, 2)
    queue = queue_of(registry, acme)
    if why == "expired":
        live_worker(conn, queues=[queue], ttl_s=-1)
    elif why == "draining":
        live_worker(conn, queues=[queue], draining=True)
    elif why == "another pool":
        live_worker(conn, queues=[queue], pool="http")
    elif why == "no queues":
        live_worker(conn, queues=[])
    assert release(releaser()) == []
    assert states(conn) == {"ready": 2}


def test_what_was_queued_for_a_consumer_that_is_gone_comes_back(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    [one] = tickets(acme, 1)
    worker = live_worker(conn, queues=[queue_of(registry, acme)])
    service = releaser()
    [lost] = release(service)
    workers.remove(conn, worker)
    aged(conn, one)
    assert release(service) == []
    assert ticket_of(conn, one)["state"] == "ready"
    another = live_worker(conn, queues=[queue_of(registry, acme)])
    [found] = release(service, passes=2)
    assert found.ids == [one] and found.release != lost.release
    assert start(conn, [lost], another) == [], "the lost message finds nothing when it turns up"
    assert [each.execution_id for each in start(conn, [found], another)] == [one]


def test_messages_are_bounded_and_for_one_queue(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    for tenant in (acme, globex):
        tickets(tenant, 12)
    live_worker(conn, slots=10, queues=[queue_of(registry, acme), queue_of(registry, globex)])
    messages = release(releaser(), passes=2)
    assert len(ids_of(messages)) == 20
    assert all(len(message.ids) <= 5 for message in messages)
    for message in messages:
        tenants = {ticket_of(conn, one)["tenant_id"] for one in message.ids}
        assert len(tenants) == 1
        assert message.queue == queue_of(registry, acme if tenants == {acme.pk} else globex)
        assert {ticket_of(conn, one)["release"] for one in message.ids} == {message.release}


def test_a_message_holds_at_most_a_hundred() -> None:
    chosen = [candidate("a") for _ in range(250)]
    sizes = [len(message.ids) for message in messages_of(chosen, 1, {"a": MESSAGE_MAX})]
    assert sizes == [100, 100, 50]


def test_a_worker_with_one_slot_gets_messages_of_one(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    tickets(acme, 3)
    live_worker(conn, slots=1, queues=[queue_of(registry, acme)])
    assert [len(message.ids) for message in release(releaser())] == [1, 1]


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


# --- faults ---


def test_a_lease_that_was_lost_releases_nothing(
    releaser: Make, leader: Keeper, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    """The keeper does not know yet; the row of the lease does."""
    tickets(acme, 2)
    live_worker(conn, queues=[queue_of(registry, acme)])
    service = releaser()
    term = leader.held("release")[POOL_NUMBER["python"]]
    service._keeper = cast(Keeper, Former(leader, term - 1))
    assert release(service) == []
    assert states(conn) == {"ready": 2}


def test_a_broker_that_is_away_loses_nothing(releaser: Make, conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Committed, not published: released again under a new number after a short while, later each time."""
    [one] = tickets(acme, 1)
    worker = live_worker(conn, queues=[queue_of(registry, acme)])
    service = releaser()
    publisher = service._publisher
    assert isinstance(publisher, Noted)
    publisher.fails = True
    numbers, waits = set(), []
    for turn in range(4):
        with pytest.raises(ConnectionError):
            release(service)
        ticket = ticket_of(conn, one)
        assert (ticket["state"], ticket["releases"]) == ("queued", turn + 1)
        numbers.add(ticket["release"])
        aged(conn, one)
        release_again(conn)
        ticket = ticket_of(conn, one)
        assert ticket["state"] == "ready"
        waits.append((ticket["available_at"] - database_now(conn)).total_seconds())
        conn.execute("UPDATE tickets_ticket SET available_at = clock_timestamp()")
    assert len(numbers) == 4
    assert waits[0] <= 0 < waits[1] < waits[2] < waits[3] < 300
    publisher.fails = False
    [message] = release(service)
    settle_as(conn, registry, start(conn, [message], worker))
    assert_exactly_one_outcome(conn, acme, one.hex, state="succeeded")


def test_a_crash_at_every_round_trip_of_a_release_loses_and_doubles_nothing(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    job = make_job(acme)
    worker = live_worker(conn, queues=[queue_of(registry, acme)])
    current: list[UUID] = []
    messages: list[Message] = []

    def work(fragile: Conn) -> None:
        if not current:
            current.extend(tickets(acme, 2, job))
        service = releaser(on=fragile)
        service._registry.by_id = registry.by_id
        service.run_once()
        assert isinstance(service._publisher, Noted)
        messages.extend(service._publisher.taken())

    def check(where: str) -> None:
        for one in current:
            aged(conn, one)
        found = release(releaser(), passes=2)
        started = start(conn, [*messages, *found], worker)
        assert sorted(one.execution_id for one in started) == sorted(current), where
        settle_as(conn, registry, started)
        for one in current:
            assert_exactly_one_outcome(conn, acme, one.hex, state="succeeded")
        current.clear()
        messages.clear()

    assert at_every_crash(work, check) >= 10


def test_a_cancelled_run_in_the_queue_is_not_started(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    """Case C10: whoever restarts, the row is gone."""
    [one] = tickets(acme, 1)
    worker = live_worker(conn, queues=[queue_of(registry, acme)])
    messages = release(releaser())
    execution_cancel(tenant=acme, actor=actor(acme), execution_id=one, now=NOW)
    assert start(conn, messages, worker) == []
    assert_exactly_one_outcome(conn, acme, one.hex, state="cancelled")


def test_a_delayed_backlog_is_not_sent_early(releaser: Make, conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Cases C09 and C12: what waits for its time waits in the database."""
    job = make_job(acme)
    now = database_now(conn)
    for _ in range(30):
        make_ticket(acme, job, delay_s=60, now=now)
    live_worker(conn, slots=100, queues=[queue_of(registry, acme)])
    assert release(releaser()) == []
    assert count(conn, "SELECT count(*) FROM tickets_ticket") == 0


def test_what_waits_for_something_else_than_slots_does_not_make_the_loop_spin(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    job = make_job(acme)
    tickets(acme, 2, job)
    service = releaser()
    assert service.run_once().wait_s is None, "no worker"
    live_worker(conn, queues=[queue_of(registry, acme)])
    job_pause(tenant=acme, actor=actor(acme), job_id=job, now=NOW)
    assert service.run_once().wait_s is None, "paused"
    job_resume(tenant=acme, actor=actor(acme), job_id=job, now=NOW)
    Tenant.objects.filter(pk=acme.pk).update(dispatch_paused=True)
    service._registry.refresh(force=True)
    assert service.run_once().wait_s is None, "nothing of this tenant may go"


def test_the_loop_serves_while_it_holds_the_lease(releaser: Make, conn: Conn, registry: Registry, acme: Tenant) -> None:
    """As a process runs it: in a loop, woken or not, until all that fits is out."""
    from kernel.service import Loop

    live_worker(conn, slots=3, queues=[queue_of(registry, acme)])
    tickets(acme, 4)
    with door.connect("test loop") as own:
        service = releaser(on=own)
        loop = Loop(service)
        loop.start()
        wait_until(lambda: states(conn) == {"queued": 4}, "all to be queued")
        loop.stop()
        assert loop.join(10)


class Former:
    """The keeper of a process that does not know yet that its lease was taken over."""

    def __init__(self, real: Keeper, term: int) -> None:
        self.id, self._term = real.id, term

    def held(self, kind: str) -> dict[int, int]:
        return {POOL_NUMBER["python"]: self._term}


class Counting:
    """A line whose connection counts a statement."""

    def __init__(self, conn: Conn, statement: str) -> None:
        self.conn, self.statement, self.seen = conn, statement, 0

    def get(self) -> Any:
        return self

    def add_notify_handler(self, heard: Callable[..., None]) -> None:
        self.conn.add_notify_handler(heard)

    def execute(self, query: Any, *more: Any) -> Any:
        self.seen += query == self.statement
        return self.conn.execute(query, *more)


def candidate(queue: str) -> Candidate:
    return Candidate(uuid.uuid4(), 1, JOB, JOB, queue, NOW, NOW, NOW, None)


def taken(
    queue: str, count: int, running: int = 0, *, job: UUID = JOB, flow: UUID | None = None, tenant: int = 1
) -> InFlight:
    return InFlight(tenant, queue, LIVE, flow or job, job, count, running)


def aged(conn: Conn, *ids: UUID) -> None:
    """As if these had been queued for longer than a worker may take to start them."""
    conn.execute(
        "UPDATE tickets_ticket SET queued_at = queued_at - interval '1 hour' WHERE execution_id = ANY(%s)", [list(ids)]
    )


def release_again(conn: Conn) -> None:
    releasing.release_again(conn, pools=["python"], now=database_now(conn), bound_s=10, limit=100)


def database_now(conn: Conn) -> datetime:
    row = conn.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    found: datetime = row[0]
    return found
