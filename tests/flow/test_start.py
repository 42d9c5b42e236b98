"""Start: one UPDATE claims what still waits under a release number; everybody else gets nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.release import ReleaseService
from apps.outcomes.cancel import execution_cancel
from apps.tickets import holding, releasing, store
from apps.tickets.holding import DEADLINE_GRACE_S
from kernel.errors import Conflict
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import (
    NOW,
    actor,
    assert_exactly_one_outcome,
    at_every_crash,
    at_once,
    attempts_of,
    count,
    live_worker,
    make_job,
    make_ticket,
    queue_of,
    release,
    settle_as,
    start,
    started_now,
    ticket_of,
)

Conn = psycopg.Connection[Any]
WORKER, OTHER = UUID(int=1), UUID(int=2)


def queued(conn: Conn, tenant: Tenant, number: int, job: UUID | None = None) -> tuple[list[UUID], int]:
    """So many tickets that were released together, and their release number."""
    job = job or make_job(tenant)
    ids = sorted(make_ticket(tenant, job) for _ in range(number))
    release_number = releasing.next_release(conn)
    assert sorted(releasing.release(conn, ids, release=release_number, now=NOW)) == ids
    return ids, release_number


def test_a_start_is_an_attempt_with_a_fence_and_a_deadline(conn: Conn, acme: Tenant) -> None:
    ids, number = queued(conn, acme, 1, make_job(acme, timeout_s=42))
    [one] = holding.start(conn, ids, release=number, worker=WORKER, limit=1)
    ticket = ticket_of(conn, ids[0])
    assert (ticket["state"], ticket["attempt"], ticket["worker_id"]) == ("running", 1, WORKER)
    assert ticket["fence"] == one.fence and one.attempt == 1
    assert round((ticket["deadline"] - ticket["started_at"]).total_seconds()) == 42 + DEADLINE_GRACE_S
    assert ticket["started_at"] == one.started_at


def test_two_workers_with_the_same_message_start_each_run_once(conn: Conn, second: Conn, acme: Tenant) -> None:
    """A doubled message, delivered to both at the same moment."""
    job = make_job(acme)
    for _ in range(20):
        ids, number = queued(conn, acme, 6, job)
        mine, theirs = at_once(
            partial(holding.start, conn, ids, release=number, worker=WORKER, limit=6),
            partial(holding.start, second, ids, release=number, worker=OTHER, limit=6),
        )
        assert sorted([one.execution_id for one in mine] + [one.execution_id for one in theirs]) == ids
        assert len({one.fence for one in mine + theirs}) == 6
        conn.execute("DELETE FROM tickets_ticket")


def test_a_message_that_comes_again_later_starts_nothing(conn: Conn, acme: Tenant) -> None:
    ids, number = queued(conn, acme, 3)
    assert len(holding.start(conn, ids, release=number, worker=WORKER, limit=3)) == 3
    assert holding.start(conn, ids, release=number, worker=OTHER, limit=3) == []


def test_an_old_release_number_starts_nothing(conn: Conn, acme: Tenant) -> None:
    ids, number = queued(conn, acme, 2)
    holding.put_back(conn, ids, release=number, now=NOW)
    newer = releasing.next_release(conn)
    releasing.release(conn, ids, release=newer, now=NOW)
    assert holding.start(conn, ids, release=number, worker=WORKER, limit=2) == []
    assert len(holding.start(conn, ids, release=newer, worker=WORKER, limit=2)) == 2


def test_no_more_than_the_limit_is_started(conn: Conn, acme: Tenant) -> None:
    ids, number = queued(conn, acme, 5)
    first = holding.start(conn, ids, release=number, worker=WORKER, limit=2)
    assert sorted(one.execution_id for one in first) == ids[:2]
    assert count(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'queued'") == 3


def test_what_is_put_back_is_ready_at_once_and_keeps_its_place(conn: Conn, acme: Tenant) -> None:
    ids, number = queued(conn, acme, 3)
    holding.start(conn, ids[:1], release=number, worker=WORKER, limit=1)
    assert holding.put_back(conn, ids, release=number, now=NOW) == 2, "what runs is not put back"
    ticket = ticket_of(conn, ids[1])
    assert (ticket["state"], ticket["available_at"]) == ("ready", NOW)
    assert ticket["rank"] == store.new_rank(NOW, ticket["priority"])
    assert holding.put_back(conn, ids, release=number, now=NOW) == 0


def test_putting_back_names_the_release(conn: Conn, acme: Tenant) -> None:
    ids, number = queued(conn, acme, 1)
    assert holding.put_back(conn, ids, release=number - 1, now=NOW) == 0
    assert ticket_of(conn, ids[0])["state"] == "queued"


def test_start_and_release_again_take_turns(conn: Conn, second: Conn, acme: Tenant) -> None:
    """A message that comes exactly when its tickets are given up: either it starts them or they are ready."""
    job = make_job(acme)
    for _ in range(20):
        ids, number = queued(conn, acme, 4, job)
        started, _ = at_once(
            partial(holding.start, conn, ids, release=number, worker=WORKER, limit=4),
            partial(
                releasing.release_again, second, pools=["python"], now=NOW + timedelta(hours=1), bound_s=10, limit=100
            ),
        )
        running = count(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'running'")
        ready = count(conn, "SELECT count(*) FROM tickets_ticket WHERE state = 'ready'")
        assert (running, running + ready) == (len(started), 4)
        conn.execute("DELETE FROM tickets_ticket")


def test_start_and_cancel_take_turns(conn: Conn, acme: Tenant) -> None:
    job = make_job(acme)
    for _ in range(15):
        ids, number = queued(conn, acme, 1, job)
        cancel = partial(execution_cancel, tenant=acme, actor=actor(acme), execution_id=ids[0], now=NOW)
        started, cancelled = at_once(partial(holding.start, conn, ids, release=number, worker=WORKER, limit=1), cancel)
        ticket = ticket_of(conn, ids[0])
        if started:
            assert cancelled.outcome == "requested" and ticket["cancel_requested"]
            conn.execute("DELETE FROM tickets_ticket")
        else:
            assert cancelled.outcome == "done" and ticket is None


def test_attempts_go_on_over_retries(conn: Conn, registry: Registry, acme: Tenant) -> None:
    execution = make_ticket(acme)
    fences = set()
    for number in (1, 2, 3):
        [one] = started_now(conn, [execution], WORKER)
        assert one.attempt == number
        fences.add(one.fence)
        settle_as(conn, registry, [one], "failed" if number < 3 else "succeeded")
    assert len(fences) == 3
    assert_exactly_one_outcome(conn, acme, execution.hex, state="succeeded")
    assert [one["state"] for one in attempts_of(conn, acme, execution)] == ["failed", "failed", "succeeded"]


def test_a_crash_at_every_round_trip_of_a_start_is_one_outcome(
    releaser: Callable[..., ReleaseService], conn: Conn, registry: Registry, acme: Tenant
) -> None:
    """Started without an answer is lost with its worker, and tried again."""
    from apps.dispatch.reconcile import end_lost
    from apps.schedules.definitions import Definitions

    job = make_job(acme)
    alive = live_worker(conn, queues=[queue_of(registry, acme)])
    current: list[UUID] = []
    messages: list[Any] = []

    def work(fragile: Conn) -> None:
        if not current:
            current.extend([make_ticket(acme, job), make_ticket(acme, job)])
            messages.extend(release(releaser()))
        started = start(fragile, messages, uuid.uuid4())
        settle_as(conn, registry, started)

    def check(where: str) -> None:
        end_lost(conn, registry, Definitions())
        conn.execute("UPDATE tickets_ticket SET available_at = now() - interval '1 s', queued_at = '2000-01-01'")
        settle_as(conn, registry, start(conn, release(releaser(), passes=2), alive))
        for one in current:
            found = assert_exactly_one_outcome(conn, acme, one.hex, state="succeeded")
            assert found["attempt_count"] == (2 if "after" in where else 1), where
        current.clear()
        messages.clear()

    assert at_every_crash(work, check) == 2


def test_cancelling_twice_is_cancelling_once(conn: Conn, registry: Registry, acme: Tenant) -> None:
    execution = make_ticket(acme)
    for _ in range(2):
        done = execution_cancel(tenant=acme, actor=actor(acme), execution_id=execution, now=NOW)
        assert done.outcome == "done"
    assert_exactly_one_outcome(conn, acme, execution.hex, state="cancelled")


def test_cancelling_what_ended_otherwise_is_a_conflict(conn: Conn, registry: Registry, acme: Tenant) -> None:
    execution = make_ticket(acme)
    settle_as(conn, registry, started_now(conn, [execution], WORKER))
    with pytest.raises(Conflict, match="succeeded"):
        execution_cancel(tenant=acme, actor=actor(acme), execution_id=execution, now=NOW)


def test_cancelling_between_retries_keeps_the_count(conn: Conn, registry: Registry, acme: Tenant) -> None:
    execution = make_ticket(acme)
    settle_as(conn, registry, started_now(conn, [execution], WORKER), "failed")
    assert execution_cancel(tenant=acme, actor=actor(acme), execution_id=execution, now=NOW).outcome == "done"
    found = assert_exactly_one_outcome(conn, acme, execution.hex, state="cancelled")
    assert found["attempt_count"] == 1 and found["started_at"] is not None


def test_cancel_and_fire_of_a_delayed_run_take_turns(conn: Conn, registry: Registry, acme: Tenant) -> None:
    from tests.fixtures_flow import entry_of, execution_of, fire_all

    job = make_job(acme)
    for _ in range(10):
        execution = make_ticket(acme, job, delay_s=60)
        cancel = partial(execution_cancel, tenant=acme, actor=actor(acme), execution_id=execution, now=NOW)
        at_once(partial(fire_all, conn, registry, now=NOW + timedelta(seconds=60)), cancel)
        assert (entry_of(conn, execution), ticket_of(conn, execution)) == (None, None)
        assert execution_of(conn, acme, execution)["state"] == "cancelled"
