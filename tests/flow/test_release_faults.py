"""Release when something fails: a lost lease, a broker that is away, a crash; and the loop around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.capacity import Message
from apps.dispatch.keeper import Keeper
from apps.dispatch.release import ReleaseService
from apps.outcomes.cancel import execution_cancel
from apps.schedules.services import job_pause, job_resume
from kernel.pools import POOL_NUMBER
from tenants import door
from tenants.models import Tenant
from tenants.registry import Registry
from tests.conftest import wait_until
from tests.fixtures_flow import (
    NOW,
    Noted,
    actor,
    assert_exactly_one_outcome,
    at_every_crash,
    count,
    live_worker,
    make_job,
    make_ticket,
    queue_of,
    release,
    settle_as,
    start,
    ticket_of,
)
from tests.flow.releasing import Former, aged, database_now, release_again, states, tickets

Conn = psycopg.Connection[Any]
Make = Callable[..., ReleaseService]


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
