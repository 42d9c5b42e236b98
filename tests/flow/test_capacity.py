"""How much is released: what live workers can take, in bounded messages, and what comes back from none."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.capacity import MESSAGE_MAX, capacity_of, leave_to_others, messages_of
from apps.dispatch.release import ReleaseService
from apps.tickets import workers
from apps.tickets.values import LIVE, Candidate, InFlight, LiveWorker
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import NOW, live_worker, queue_of, release, settle_as, start, ticket_of
from tests.flow.releasing import aged, ids_of, states, tickets

Conn = psycopg.Connection[Any]
Make = Callable[..., ReleaseService]
JOB = UUID(int=5)


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


def candidate(queue: str) -> Candidate:
    return Candidate(uuid.uuid4(), 1, JOB, JOB, queue, NOW, NOW, NOW, None)


def taken(
    queue: str, count: int, running: int = 0, *, job: UUID = JOB, flow: UUID | None = None, tenant: int = 1
) -> InFlight:
    return InFlight(tenant, queue, LIVE, flow or job, job, count, running)
