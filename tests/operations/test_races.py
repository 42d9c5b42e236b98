"""Dispatchers that work on one operation together, die in the middle of a chunk, or meet a person who changes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest

from tests.fixtures_flow import Fragile, actor, at_once, count, is_blocked, make_job, make_ticket, run_to_the_end
from tests.operations.fixtures import ask, passes, read, receipt, work_off, work_while_due

if TYPE_CHECKING:
    from apps.operations.models import Operation
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
MADE = "SELECT count(*) FROM t_acme.executions_execution WHERE replay_of IS NOT NULL"
ONCE = "SELECT count(DISTINCT replay_of) FROM t_acme.executions_execution"


@pytest.fixture
def reruns(acme: Tenant, conn: Conn, registry: Registry) -> Callable[[int], Operation]:
    """An operation that runs so many executions again."""

    def make(number: int) -> Operation:
        job = make_job(acme)
        for _ in range(number):
            make_ticket(acme, job)
        run_to_the_end(conn, registry, [acme])
        return ask(acme, "rerun", "executions", {"job": str(job)})

    return make


def test_two_dispatchers_do_no_item_twice(acme: Tenant, conn: Conn, reruns: Callable[[int], Operation]) -> None:
    one = reruns(30)
    other = ask(acme, "label", "jobs", {"all": True}, params={"labels": {"team": "x"}})
    at_once(work_while_due, work_while_due)
    assert (count(conn, MADE), count(conn, ONCE)) == (30, 30)
    assert read(acme, one.pk).running == 30
    assert read(acme, other.pk).state == "completed"


def test_a_person_waits_for_the_chunk_and_nothing_starts_after_a_cancel(
    acme: Tenant, conn: Conn, second: Conn, reruns: Callable[[int], Operation], wait_for: Callable[..., object]
) -> None:
    from apps.due import operations as due_operations
    from apps.operations.services import operation_cancel
    from tenants import door
    from tenants.work import database_now

    one = reruns(4)
    passes()  # planned
    pids: list[int] = []
    works = second.transaction(force_rollback=True)  # a dispatcher in the middle of a chunk
    works.__enter__()
    assert due_operations.take(second, now=database_now())
    assert passes() == {}, "the others pass it over"

    def cancels() -> None:
        pids.append(door.raw().info.backend_pid)
        operation_cancel(tenant=acme, actor=actor(acme), operation_id=one.pk, now=database_now())

    def ends() -> None:
        wait_for(lambda: pids and is_blocked(conn, pids[0]), "the cancel to wait for the chunk")
        works.__exit__(None, None, None)

    at_once(cancels, ends)
    assert count(conn, MADE) == 0
    assert work_off(acme, one.pk).state == "cancelled"


def test_an_item_that_somebody_holds_is_tried_again_and_then_given_up(
    acme: Tenant, conn: Conn, second: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.operations import loops

    monkeypatch.setattr(loops, "LOCK_TIMEOUT_MS", 20)
    job = make_job(acme)
    runs = [make_ticket(acme, job) for _ in range(3)]
    one = ask(acme, "cancel", "executions", {"job": str(job)})
    passes()
    with second.transaction(force_rollback=True):
        second.execute("SELECT FROM tickets_ticket WHERE execution_id = %s FOR UPDATE", [runs[1]])
        done = work_off(acme, one.pk)
    assert (done.state, done.failed, done.succeeded) == ("completed", 1, 2)
    assert receipt(acme, one.pk) == [(1, "succeeded", ""), (2, "failed", "busy"), (3, "succeeded", "")]


def test_an_operation_whose_turns_always_fail_has_failed(acme: Tenant, conn: Conn) -> None:
    from apps.due import operations as due_operations
    from apps.operations.loops import FAILURES_MAX

    seen: list[int] = []
    one = ask(acme, "cancel", "executions", {"all": True})
    conn.execute("UPDATE t_acme.operations_operation SET action = 'fly'")  # a kind that is there no more
    for _ in range(FAILURES_MAX):
        assert passes() == {"failures": 1}
        seen.append(due_operations.standing(conn).failing)
        conn.execute("UPDATE due_dueoperation SET due_at = '2000-01-01'")
    assert due_operations.standing(conn).failing == 0, "it has ended"
    done = work_off(acme, one.pk)
    assert done.state == "failed" and "There is no operation that does 'fly'" in done.error and done.finished_at
    assert count(conn, "SELECT count(*) FROM due_dueoperation") == 0
    assert seen[:3] == [0, 0, 1], "the doctor tells"


def test_a_dispatcher_that_dies_at_any_point_of_a_chunk_has_done_it_or_has_not(
    acme: Tenant, conn: Conn, reruns: Callable[[int], Operation]
) -> None:
    """The whole of it is in the long run; here each eleventh point."""
    crash_everywhere(acme, conn, reruns, every=11)


@pytest.mark.long
def test_a_dispatcher_that_dies_at_every_point_of_a_chunk(
    acme: Tenant, conn: Conn, reruns: Callable[[int], Operation]
) -> None:
    assert crash_everywhere(acme, conn, reruns, every=1) > 60


def crash_everywhere(acme: Tenant, conn: Conn, reruns: Callable[[int], Operation], *, every: int) -> int:
    """Chunks whose server process ends at one wait after the other; how many crashed."""
    crashes, at, after = 0, 2, False
    one = reruns(3)
    while True:
        conn.execute("UPDATE due_dueoperation SET due_at = '2000-01-01', failures = 0")
        before = read(acme, one.pk)
        crashed = not _pass_that_dies(at, after=after)
        crashes += crashed
        now = read(acme, one.pk)  # its counts are those of its items, or this fails
        made = count(conn, MADE)
        assert (made, count(conn, ONCE)) == (now.running, now.running)
        assert (now.planned, now.running) in ((before.planned, before.running), (3, 0), (3, 3))
        if not crashed and now.running:
            if after:
                return crashes
            after, at, one = True, 2, _again(acme, conn, reruns)
        elif crashed:
            at += every


def _again(acme: Tenant, conn: Conn, reruns: Callable[[int], Operation]) -> Operation:
    conn.execute("DELETE FROM t_acme.executions_execution; DELETE FROM tickets_ticket; DELETE FROM due_dueoperation")
    return reruns(3)


def _pass_that_dies(at: int, *, after: bool) -> bool:
    """One pass of the loop on a connection that ends at its wait number `at`; False when it did."""
    from django.db import connection

    from apps.operations.loops import OperationService

    connection.close()
    connection.ensure_connection()
    raw = cast("Any", connection.connection)
    raw.__class__ = Fragile
    raw.waits, raw.ends_at, raw.after = 0, at, after
    try:
        OperationService().run_once()
    except Exception:
        return False
    finally:
        connection.close()
    return True
