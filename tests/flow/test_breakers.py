"""Circuit breakers between processes: states in one table, one trial at a time, runs that wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from apps.tickets import breakers
from apps.tickets.resetting import breaker_reset
from kernel.errors import Conflict, NotFound
from tenants.models import Tenant
from tenants.registry import Registry
from tests.executors.receiver import Receiver
from tests.executors.works import LOOPBACK, Results, make_work
from tests.fixtures_flow import (
    NOW,
    actor,
    assert_exactly_one_outcome,
    at_once,
    attempts_of,
    make_job,
    make_ticket,
    settle_as,
    started_now,
    ticket_of,
)
from workers.breakers import BreakerDesk
from workers.executors.http import HttpExecutor

Conn = psycopg.Connection[Any]
WORKER = UUID(int=1)
BOUNDS = {"open_s": 10.0, "max_s": 300.0}
HOST = "hooks.example.test:443"


def opened(conn: Conn, tenant: Tenant, destination: str = HOST, **more: Any) -> bool:
    given = {"failures": 10, "reason": "The target answered 503.", **BOUNDS, **more}
    return breakers.open_(conn, tenant_id=tenant.pk, destination=destination, **given)


def state_of(conn: Conn, tenant: Tenant, destination: str = HOST) -> Any:
    row = conn.execute(
        "SELECT state, openings, round(extract(epoch FROM retry_at - changed_at))::int, probe FROM tickets_breaker"
        " WHERE tenant_id = %s AND destination = %s",
        [tenant.pk, destination],
    ).fetchone()
    return row


def pass_time(conn: Conn, seconds: int) -> None:
    conn.execute(
        "UPDATE tickets_breaker SET retry_at = retry_at - %(s)s * interval '1 s',"
        " probe_until = probe_until - %(s)s * interval '1 s', changed_at = changed_at - %(s)s * interval '1 s'",
        {"s": seconds},
    )


def claimed(conn: Conn, tenant: Tenant, probe: UUID) -> bool:
    return breakers.claim(conn, tenant_id=tenant.pk, destination=HOST, probe=probe, lease_s=20)


# --- states ---


def test_it_stays_open_for_longer_each_time_up_to_a_bound(conn: Conn, acme: Tenant) -> None:
    assert opened(conn, acme)
    waits = []
    for _ in range(8):
        waits.append(state_of(conn, acme)[2])
        pass_time(conn, 301)
        assert claimed(conn, acme, probe := uuid4())
        assert breakers.reopen(conn, tenant_id=acme.pk, destination=HOST, probe=probe, reason="still 503", **BOUNDS)
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300]


def test_opening_again_soon_after_closing_goes_on_and_after_calm_starts_anew(conn: Conn, acme: Tenant) -> None:
    for seconds, wait_s in ((0, 10), (60, 20), (60, 40), (601, 10)):
        pass_time(conn, seconds)
        assert opened(conn, acme)
        assert state_of(conn, acme)[2] == wait_s
        pass_time(conn, 301)
        assert claimed(conn, acme, probe := uuid4())
        assert breakers.close(conn, tenant_id=acme.pk, destination=HOST, probe=probe)


def test_only_what_is_closed_opens_and_only_who_tries_closes(conn: Conn, acme: Tenant, globex: Tenant) -> None:
    assert opened(conn, acme) and not opened(conn, acme)
    assert opened(conn, globex), "each tenant has its own"
    assert not claimed(conn, acme, uuid4()), "its time has not come"
    pass_time(conn, 10)
    assert claimed(conn, acme, probe := uuid4())
    assert not claimed(conn, acme, uuid4()), "one at a time"
    assert not breakers.close(conn, tenant_id=acme.pk, destination=HOST, probe=uuid4())
    assert breakers.close(conn, tenant_id=acme.pk, destination=HOST, probe=probe)
    assert not breakers.close(conn, tenant_id=acme.pk, destination=HOST, probe=probe)
    assert [one.tenant_id for one in breakers.read_shut(conn)] == [globex.pk]


def test_a_trial_that_never_comes_back_is_given_to_another(conn: Conn, acme: Tenant) -> None:
    opened(conn, acme)
    pass_time(conn, 10)
    assert claimed(conn, acme, lost := uuid4())
    pass_time(conn, 20)
    assert claimed(conn, acme, uuid4())
    assert not breakers.close(conn, tenant_id=acme.pk, destination=HOST, probe=lost)


def test_a_trial_that_says_nothing_lets_the_next_one_try(conn: Conn, acme: Tenant) -> None:
    opened(conn, acme)
    pass_time(conn, 10)
    assert claimed(conn, acme, probe := uuid4())
    assert breakers.reopen(conn, tenant_id=acme.pk, destination=HOST, probe=probe, reason=None, **BOUNDS)
    assert state_of(conn, acme)[:2] == ("open", 1)
    assert claimed(conn, acme, uuid4())


def test_many_at_once_open_it_once_and_one_of_them_tries(database: None, conn: Conn, acme: Tenant) -> None:
    from tenants import door

    def work(step: Callable[[Conn], bool]) -> bool:
        with door.connect("test breakers") as own:
            return step(own)

    assert sorted(at_once(*[partial(work, lambda own: opened(own, acme))] * 8)) == [False] * 7 + [True]
    pass_time(conn, 10)
    assert sorted(at_once(*[partial(work, lambda own: claimed(own, acme, uuid4()))] * 8)) == [False] * 7 + [True]


# --- runs that wait ---


def deferred(conn: Conn, registry: Registry, tenant: Tenant, destination: str = HOST, job: UUID | None = None) -> Any:
    [one] = started_now(conn, [make_ticket(tenant, job)], WORKER)
    error = {"class": "breaker_open", "message": "put off", "destination": destination}
    settle_as(conn, registry, [one], "returned", error=error, retry_after_s=100)
    return one


def test_a_run_that_is_put_off_says_why_and_keeps_its_tries(conn: Conn, registry: Registry, acme: Tenant) -> None:
    one = deferred(conn, registry, acme, job=make_job(acme, retry={"max_attempts": 1}))
    ticket = ticket_of(conn, one.execution_id)
    assert (ticket["state"], ticket["failures"], ticket["wait_reason"]) == ("ready", 0, f"breaker_open {HOST}")
    (attempt,) = attempts_of(conn, acme, one.execution_id)
    assert (attempt["state"], attempt["error"]["class"]) == ("returned", "breaker_open")
    [again] = started_now(conn, [one.execution_id], WORKER)
    settle_as(conn, registry, [again])
    assert_exactly_one_outcome(conn, acme, one.run_key, state="succeeded")


def test_closing_lets_go_what_waits_for_it_and_nothing_else(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    mine, other = deferred(conn, registry, acme), deferred(conn, registry, acme, "other.example.test:443")
    theirs = deferred(conn, registry, globex)
    [failed] = started_now(conn, [make_ticket(acme)], WORKER)
    settle_as(conn, registry, [failed], "failed")
    before = {one: ticket_of(conn, one.execution_id) for one in (mine, other, theirs, failed)}
    assert before[failed]["wait_reason"] == "retry"
    opened(conn, acme)
    pass_time(conn, 10)
    claimed(conn, acme, probe := uuid4())
    breakers.close(conn, tenant_id=acme.pk, destination=HOST, probe=probe)
    assert ticket_of(conn, mine.execution_id)["available_at"] < before[mine]["available_at"]
    for one in (other, theirs, failed):
        assert ticket_of(conn, one.execution_id) == before[one]


def test_a_person_resets_it(conn: Conn, registry: Registry, acme: Tenant, globex: Tenant) -> None:
    one = deferred(conn, registry, acme)
    opened(conn, acme)
    ((found,),) = conn.execute("SELECT id FROM tickets_breaker").fetchall()
    with pytest.raises(NotFound):
        breaker_reset(actor=actor(globex), breaker_id=found, now=NOW, tenant_id=globex.pk)
    assert breaker_reset(actor=actor(acme), breaker_id=found, now=NOW, tenant_id=acme.pk).state == "closed"
    assert ticket_of(conn, one.execution_id)["wait_reason"] is None
    with pytest.raises(Conflict):
        breaker_reset(actor=actor(acme), breaker_id=found, now=NOW)
    rows = conn.execute("SELECT action, before FROM audit_auditevent WHERE object_id = %s", [str(found)]).fetchall()
    assert rows == [("breaker.reset", {"state": "open", "destination": HOST})]


def test_old_ones_are_forgotten(conn: Conn, acme: Tenant) -> None:
    opened(conn, acme)
    assert breakers.prune(conn, older_than_s=60) == 0
    pass_time(conn, 100)
    assert breakers.prune(conn, older_than_s=60) == 1


# --- two processes ---


@pytest.fixture
def executor(desks: Any) -> Iterator[Callable[[BreakerDesk], HttpExecutor]]:
    """Starts executors on desks."""
    started: list[HttpExecutor] = []

    def make(desk: BreakerDesk) -> HttpExecutor:
        made = HttpExecutor(slots=50, breakers=desk.breakers)
        made.start()
        started.append(made)
        return made

    yield make
    for one in started:
        one.stop(0)


@pytest.fixture
def desks(database: None) -> Iterator[Callable[[], BreakerDesk]]:
    """Desks as in worker processes of their own, whose loops run."""
    started: list[BreakerDesk] = []

    def make() -> BreakerDesk:
        desk = BreakerDesk()
        desk.loop.start()
        started.append(desk)
        return desk

    yield make
    for desk in started:
        desk.loop.stop()
        assert desk.loop.join(10)


def test_what_one_process_saw_the_others_know_and_one_of_them_tries(
    desks: Any, executor: Any, conn: Conn, acme: Tenant, receiver: Receiver, wait_for: Any
) -> None:
    first, second = desks(), desks()
    executors, results = [executor(first), executor(second)], Results()
    destination = f"127.0.0.1:{receiver.port}"

    def call(executor: HttpExecutor, path: str, count: int = 1) -> list[str]:
        target = {"url": receiver.url(path)}
        works = [make_work("http", target, tenant_id=acme.pk, network=LOOPBACK) for _ in range(count)]
        executor.submit(works, results)
        return [result.outcome for result in results.all_of(works)]

    assert call(executors[0], "/status/500", 10) == ["failed"] * 10
    wait_for(lambda: first.breakers.shut, "the process to have counted what it told")
    assert call(executors[0], "/ok") == ["returned"]
    wait_for(lambda: second.breakers.shut, "the other process to know")
    assert call(executors[1], "/ok") == ["returned"]
    came = len(receiver.requests)
    # Its time has come: of all calls in both processes one tries, and fails.
    conn.execute("UPDATE tickets_breaker SET retry_at = clock_timestamp()")
    wait_for(lambda: {one for each in executors for one in call(each, "/status/500", 5)} == {"returned", "failed"})
    wait_for(lambda: (state_of(conn, acme, destination) or ("",))[:2] == ("open", 2), "it to stay open")
    assert len(receiver.requests) == came + 1
    # The next one works.
    conn.execute("UPDATE tickets_breaker SET retry_at = clock_timestamp()")
    wait_for(lambda: "succeeded" in call(executors[1], "/ok", 3))
    wait_for(lambda: not first.breakers.shut and not second.breakers.shut, "both to know")
    assert call(executors[0], "/ok") == ["succeeded"]
    assert state_of(conn, acme, destination)[0] == "closed"


def test_nothing_is_written_while_all_is_well(
    desks: Any, executor: Any, conn: Conn, acme: Tenant, receiver: Receiver
) -> None:
    desk, results = desks(), Results()
    paths = ["/ok"] * 200 + ["/status/500"] * 5
    works = [make_work("http", {"url": receiver.url(path)}, tenant_id=acme.pk) for path in paths]
    executor(desk).submit(works, results)
    results.all_of(works)
    assert desk.loop.totals.get("asked", 0) == 0
    assert conn.execute("SELECT count(*) FROM tickets_breaker").fetchone() == (0,)


def test_a_lost_connection_costs_no_change(desks: Any, conn: Conn, acme: Tenant, wait_for: Any) -> None:
    desk = desks()
    wait_for(lambda: desk.loop.passes)
    conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%worker breakers'"
    )
    desk.open((acme.pk, HOST), failures=10, reason="503")
    wait_for(lambda: (acme.pk, HOST) in desk.breakers.shut)
