"""A worker process from inside, as it lives: its heartbeat, outages of the database, and its end."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.reconcile import end_lost
from apps.outcomes.cancel import execution_cancel
from apps.schedules.definitions import Definitions
from apps.tickets import holding, workers
from kernel.clock import utc_now
from kernel.errors import Conflict
from tenants.models import Tenant
from tenants.registry import Registry
from tests.conftest import wait_until
from tests.fixtures_flow import (
    NOW,
    actor,
    assert_exactly_one_outcome,
    attempts_of,
    count,
    end_backend,
    make_job,
    rows_of,
    settle_as,
    started_now,
    ticket_of,
)
from tests.flow.hands import Hands
from tests.flow.running import QUEUES, as_lost, queued, release_now, settled, take
from workers.runtime import Runtime

Conn = psycopg.Connection[Any]
Make = Callable[..., Runtime]

# --- heartbeat ---


def test_the_lease_says_what_the_worker_offers(runtime: Runtime, conn: Conn) -> None:
    row = conn.execute(
        "SELECT pools, slots, queues, draining, expires_at > clock_timestamp() FROM tickets_worker WHERE id = %s",
        [runtime.id],
    ).fetchone()
    assert row == (["python"], {"python": 4}, QUEUES, False, True)


def test_a_worker_stands_back_when_operators_say_so(runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant) -> None:
    """It is handed nothing more and hands back what comes; what it runs goes on. Then it takes work again."""
    from apps.tickets.commanding import worker_drain

    told: dict[str, Any] = {"worker_id": runtime.id, "actor": actor(acme), "now": NOW}
    (running,), number = queued(conn, acme)
    take(runtime, [running], number)
    worker_drain(wanted=True, **told)
    with pytest.raises(Conflict):
        worker_drain(wanted=True, **told)
    assert workers.live(conn, "python") == [], "release counts it out at once"
    runtime.heartbeat._renewed_at = float("-inf")
    wait_until(lambda: runtime.stands_back, "the worker to hear of it")
    assert workers.live(conn, "python") == []
    ids, number = queued(conn, acme)
    assert runtime.take("python", ids, number) == {"started": 0, "put_back": 1}
    hands.end_all()
    wait_until(lambda: settled(conn, acme, running), "what runs to end")
    worker_drain(wanted=False, **told)
    runtime.heartbeat._renewed_at = float("-inf")
    wait_until(lambda: not runtime.stands_back and workers.live(conn, "python"), "the worker to hear of it")


def test_a_request_to_cancel_reaches_the_executor(runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant) -> None:
    ids, number = queued(conn, acme, 2)
    take(runtime, ids, number)
    done = execution_cancel(tenant=acme, actor=actor(acme), execution_id=ids[0], now=NOW)
    assert done.outcome == "requested"
    wait_until(lambda: hands.cancelled, "the executor to be asked")
    assert {key[0] for key in hands.cancelled} == {ids[0]}
    hands.end(hands.cancelled[0], "cancelled")
    wait_until(lambda: settled(conn, acme, ids[0]), "the settlement")
    assert_exactly_one_outcome(conn, acme, ids[0].hex, state="cancelled")


def test_what_the_executor_lost_is_given_up_and_tried_again(
    runtime: Runtime, hands: Hands, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    """A killed child whose end nobody saw: the database says that we run it, our executor does not hold it."""
    ids, number = queued(conn, acme, 2)
    take(runtime, ids, number)
    [lost, kept] = [(one, hands.work_of(one).fence) for one in ids]
    hands.drop(lost)
    runtime.heartbeat._compare()
    assert ticket_of(conn, ids[0])["deadline"] > utc_now(), "once may be on its way"
    runtime.heartbeat._compare()
    as_lost(conn, registry)
    assert ticket_of(conn, ids[0])["state"] == "ready"
    assert ticket_of(conn, ids[1])["state"] == "running"
    take(runtime, [ids[0]], release_now(conn, [ids[0]]))
    hands.end_all()
    for one, attempts in ((lost, 2), (kept, 1)):
        wait_until(partial(settled, conn, acme, one[0]), "the settlement")
        assert assert_exactly_one_outcome(conn, acme, one[0].hex, state="succeeded")["attempt_count"] == attempts


def test_a_late_result_of_something_given_up_is_dropped(
    runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant
) -> None:
    ids, number = queued(conn, acme)
    take(runtime, ids, number)
    key = (ids[0], hands.work_of(ids[0]).fence)
    runtime.forget([key])
    hands.end(key)
    assert runtime.holds() == set()
    assert ticket_of(conn, ids[0])["state"] == "running", "the reconciler finds it"


def test_what_is_not_ours_any_more_is_stopped(
    runtime: Runtime, hands: Hands, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    ids, number = queued(conn, acme)
    take(runtime, ids, number)
    key = (ids[0], hands.work_of(ids[0]).fence)
    conn.execute("UPDATE tickets_ticket SET deadline = clock_timestamp() - interval '1 s'")
    as_lost(conn, registry)
    [theirs] = started_now(conn, ids, UUID(int=2))
    runtime.heartbeat._compare()
    assert hands.cancelled == [key]
    hands.end(key)
    wait_until(lambda: runtime.holds() == set(), "the stale settlement")
    assert ticket_of(conn, ids[0])["fence"] == theirs.fence, "which changed nothing"
    settle_as(conn, registry, [theirs])
    assert_exactly_one_outcome(conn, acme, ids[0].hex, state="succeeded")


def test_a_run_that_is_held_does_not_run_out(runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant) -> None:
    ids, number = queued(conn, acme, 2)
    take(runtime, ids, number)
    conn.execute(
        "UPDATE tickets_ticket SET deadline = clock_timestamp() + interval '3 s' WHERE execution_id = %s", [ids[0]]
    )
    other = ticket_of(conn, ids[1])["deadline"]
    runtime.heartbeat._compare()
    assert ticket_of(conn, ids[0])["deadline"] > utc_now() + timedelta(seconds=60)
    assert ticket_of(conn, ids[1])["deadline"] == other, "only what is near its end"


# --- the database goes away ---


def sessions(conn: Conn, name: str) -> list[int]:
    query = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"
    return [row[0] for row in conn.execute(query, [f"shardbeat {name}"])]


def test_an_outage_while_settling_loses_nothing(runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant) -> None:
    """The sessions of the worker end again and again while its attempts do."""
    job = make_job(acme)
    ids: list[UUID] = []
    for _ in range(6):
        some, number = queued(conn, acme, 3, job)
        take(runtime, some, number)
        ids += some
        for pid in sessions(conn, "worker settle"):
            end_backend(pid)
        hands.end_all(result={"n": len(ids)})
    for one in ids:
        wait_until(partial(settled, conn, acme, one), "the settlement")
        assert_exactly_one_outcome(conn, acme, one.hex, state="succeeded")
    wait_until(lambda: runtime.holds() == set(), "nothing to be held")


def test_the_lease_survives_the_loss_of_its_connection(runtime: Runtime, conn: Conn) -> None:
    query = "SELECT expires_at FROM tickets_worker WHERE id = %s"
    before = conn.execute(query, [runtime.id]).fetchone()
    for pid in sessions(conn, "worker heartbeat"):
        end_backend(pid)
    runtime.heartbeat._renewed_at = float("-inf")
    runtime.heartbeat.loop.wake()
    wait_until(lambda: conn.execute(query, [runtime.id]).fetchone() != before, "the lease to be renewed")


def test_a_start_on_a_lost_connection_is_made_on_a_new_one(
    runtime: Runtime, hands: Hands, conn: Conn, acme: Tenant
) -> None:
    ids, number = queued(conn, acme, 2)
    runtime._line.get()
    for pid in sessions(conn, "worker start"):
        end_backend(pid)
    assert runtime.take("python", ids, number) == {"started": 2, "put_back": 0}
    assert len(hands.held()) == 2


# --- stopping ---


def test_stopping_hands_back_without_using_up_an_attempt(
    runtime: Runtime, hands: Hands, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    ids, number = queued(conn, acme, 3, make_job(acme, retry={"max_attempts": 1}))
    take(runtime, ids, number)
    hands.end((ids[0], hands.work_of(ids[0]).fence))
    runtime.stop(0.1)
    assert count(conn, "SELECT count(*) FROM tickets_worker") == 0
    assert_exactly_one_outcome(conn, acme, ids[0].hex, state="succeeded")
    for one in ids[1:]:
        ticket = ticket_of(conn, one)
        assert (ticket["state"], ticket["failures"]) == ("ready", 0)
    settle_as(conn, registry, started_now(conn, ids[1:], UUID(int=2)))
    for one in ids[1:]:
        found = assert_exactly_one_outcome(conn, acme, one.hex, state="succeeded")
        assert [each["state"] for each in attempts_of(conn, acme, one)] == ["returned", "succeeded"]
        assert found["attempt_count"] == 2


def test_the_lease_is_the_last_thing_to_stop(
    runtime: Runtime, hands: Hands, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    """Case C23: while the work drains the lease is renewed, so that nobody starts it a second time."""
    ids, number = queued(conn, acme)
    take(runtime, ids, number)
    hands.may_stop.clear()
    stopping = threading.Thread(target=runtime.stop, args=(10.0,))
    stopping.start()
    assert hands.stopping.wait(30)
    query = "SELECT expires_at FROM tickets_worker WHERE id = %s AND draining"
    wait_until(lambda: conn.execute(query, [runtime.id]).fetchone(), "the others to be told")
    before = conn.execute(query, [runtime.id]).fetchone()
    runtime.heartbeat._renewed_at = float("-inf")
    runtime.heartbeat.loop.wake()
    wait_until(lambda: conn.execute(query, [runtime.id]).fetchone() != before, "the lease to be renewed")
    assert end_lost(conn, registry, Definitions()).counts == {}
    hands.end_all()
    hands.may_stop.set()
    stopping.join()
    assert_exactly_one_outcome(conn, acme, ids[0].hex, state="succeeded")
    assert count(conn, "SELECT count(*) FROM tickets_worker") == 0


def test_a_dead_workers_runs_are_tried_again_by_another(
    runtimes: Make, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    """Cases C05 and C27: killed twice in the middle, and the third one ends it."""
    job = make_job(acme, retry={"max_attempts": 5})
    ids, number = queued(conn, acme, 1, job)
    for _ in range(2):
        dead = uuid.uuid4()
        assert len(holding.start(conn, ids, release=number, worker=dead, limit=1)) == 1
        as_lost(conn, registry)
        number = release_now(conn, ids)
    hands = Hands()
    take(runtimes(hands), ids, number)
    hands.end_all()
    wait_until(lambda: settled(conn, acme, ids[0]), "the settlement")
    assert assert_exactly_one_outcome(conn, acme, ids[0].hex, state="succeeded")["attempt_count"] == 3
    assert rows_of(conn, acme, "deadletters_deadletter") == []


def test_a_work_of_hours_has_a_lease_of_minutes_that_its_worker_extends(
    conn: Conn, acme: Tenant, runtime: Runtime, hands: Hands
) -> None:
    ids, number = queued(conn, acme, job=make_job(acme, timeout_s=7_200))
    take(runtime, ids, number)
    wait_until(lambda: hands.works)
    (work,) = hands.works
    ticket = ticket_of(conn, ids[0])
    assert (work.timeout_s, work.deadline - ticket["started_at"]) == (7_200, timedelta(seconds=7_230))
    assert ticket["deadline"] - ticket["started_at"] == timedelta(seconds=930)
    conn.execute("UPDATE tickets_ticket SET deadline = clock_timestamp() + interval '5 seconds'")
    runtime.heartbeat._compared_at = float("-inf")
    runtime.heartbeat.loop.wake()
    wait_until(lambda: ticket_of(conn, ids[0])["deadline"] - utc_now() > timedelta(seconds=900))


def test_what_a_work_tells_of_itself_stands_on_its_ticket(
    conn: Conn, acme: Tenant, runtime: Runtime, hands: Hands
) -> None:
    ids, number = queued(conn, acme)
    take(runtime, ids, number)
    wait_until(lambda: hands.works)
    (work,) = hands.works
    for done in range(3):
        runtime.progress.report((work.execution_id, work.fence), {"done": done})
    runtime.progress.report((work.execution_id, work.fence - 1), {"done": "by an earlier attempt"})
    wait_until(lambda: ticket_of(conn, ids[0])["progress"] == {"done": 2})
    hands.end((work.execution_id, work.fence), "failed")
    wait_until(lambda: ticket_of(conn, ids[0])["state"] == "ready")
    assert ticket_of(conn, ids[0])["progress"] is None
