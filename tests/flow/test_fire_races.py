"""Fire against everybody else who may touch the same rows, on real connections, in both orders."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.submit import schedule_trigger
from apps.due import entries
from apps.outcomes.settle import settle
from apps.schedules import pausing
from apps.schedules.services import job_pause, schedule_delete, schedule_pause, schedule_resume, schedule_update
from tenants import door
from tenants.door import Line
from tenants.models import Tenant
from tenants.registry import Registry
from tests.conftest import wait_until
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    at_once,
    count,
    entry_of,
    executions_of,
    fire,
    fire_all,
    is_blocked,
    make_job,
    make_schedule,
    rows_of,
    settlement,
    started_now,
    ticket_of,
)

Conn = psycopg.Connection[Any]
ROUNDS = 15
WORKER = UUID(int=1)


def test_two_dispatchers_on_one_shard_fire_each_occurrence_once(conn: Conn, acme: Tenant, globex: Tenant) -> None:
    """As after a wrong lease: both believe that every shard is theirs, and start at one moment, again and again."""
    schedules = [(tenant, make_schedule(tenant, job)) for tenant in (acme, globex) for job in [make_job(tenant)] * 8]
    barrier = threading.Barrier(2)
    made = [0, 0]

    def dispatcher(number: int) -> None:
        line = Line(f"test race {number}")
        registry = Registry(line)
        registry.refresh()
        for turn in range(1, ROUNDS + 1):
            barrier.wait()
            while (counts := fire(line.get(), registry, now=NOW + turn * MINUTE, limit=5))["entries"]:
                made[number] += counts["fired"]
        line.close()

    at_once(partial(dispatcher, 0), partial(dispatcher, 1))
    # Rows that the other one held at the last moment are passed over, and come up again.
    with door.connect("test rest") as rest:
        line = Line("test race registry")
        registry = Registry(line)
        registry.refresh()
        late = fire_all(rest, registry, now=NOW + ROUNDS * MINUTE)
        line.close()
    assert sum(made) + late == len(schedules) * ROUNDS
    for tenant, schedule in schedules:
        runs = executions_of(conn, tenant, schedule)
        assert [one["nominal_at"] for one in runs] == [NOW + n * MINUTE for n in range(1, ROUNDS + 1)]
        assert all(ticket_of(conn, one["id"]) for one in runs)


def test_rows_that_somebody_holds_are_passed_over_and_fired_later(
    conn: Conn, second: Conn, registry: Registry, acme: Tenant
) -> None:
    job = make_job(acme)
    held, free = make_schedule(acme, job), make_schedule(acme, job)
    with second.transaction():
        entries.lock(second, [held])
        assert fire(conn, registry, now=NOW + MINUTE)["fired"] == 1
        assert [one["schedule_id"] for one in executions_of(conn, acme)] == [free]
        assert fire(conn, registry, now=NOW + MINUTE) == {"entries": 0}
    assert fire(conn, registry, now=NOW + MINUTE)["fired"] == 1


@pytest.mark.parametrize("first", ["fire", "other"])
@pytest.mark.parametrize("other", ["pause", "edit", "delete", "job pause"])
def test_fire_and_a_change_take_turns_on_the_entry(
    conn: Conn, second: Conn, registry: Registry, acme: Tenant, other: str, first: str
) -> None:
    """Whoever locks the entry first is first. Case B15: what was due before an edit is not fired after it."""
    job = make_job(acme)
    schedule = make_schedule(acme, job)
    at = NOW + MINUTE
    change = _change(acme, schedule, job, other, now=at)
    if first == "fire":
        counts, _ = _both(conn, second, lambda other_conn: fire(other_conn, registry, now=at), change)
        assert counts["fired"] == 1
        [run] = executions_of(conn, acme)
        assert (run["nominal_at"], run["state"]) == (at, "ready")
        assert ticket_of(conn, run["id"]) is not None, "what has fired runs"
    else:
        change()
        assert fire_all(conn, registry, now=at) == 0
        [run] = executions_of(conn, acme)
        reasons = {"pause": "schedule_paused", "edit": "schedule_changed", "delete": "schedule_deleted"}
        assert (run["nominal_at"], run["state"]) == (at, "skipped")
        assert run["reason"] == reasons.get(other, "job_paused")
        assert count(conn, "SELECT count(*) FROM tickets_ticket") == 0
    entry = entry_of(conn, schedule)
    assert (entry is not None) == (other == "edit")
    assert fire_all(conn, registry, now=at + MINUTE) == 0
    if other == "edit":
        assert entry.nominal_at == (NOW + timedelta(days=1)).replace(hour=5)


def test_a_change_in_its_transaction_is_passed_over_by_fire(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Fire never waits for a user: it skips the entry and finds the change when it is there."""
    schedule = make_schedule(acme)
    at = NOW + MINUTE
    paused, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        from django.db import transaction

        with transaction.atomic():
            schedule_pause(tenant=acme, actor=actor(acme), schedule_id=schedule, now=at)
            paused.set()
            assert go_on.wait(30)

    def dispatcher() -> int:
        assert paused.wait(30)
        try:
            return fire_all(conn, registry, now=at)
        finally:
            go_on.set()

    assert at_once(pause, dispatcher) == [None, 0]
    assert fire_all(conn, registry, now=at) == 0
    assert [one["state"] for one in executions_of(conn, acme)] == ["skipped"]


def test_pausing_and_firing_at_a_barrier_leave_one_row_for_each_occurrence(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    schedule = make_schedule(acme)
    at = NOW
    for _ in range(ROUNDS):
        at += MINUTE
        pause = partial(schedule_pause, tenant=acme, actor=actor(acme), schedule_id=schedule, now=at)
        fired, _ = at_once(partial(fire_all, conn, registry, now=at), pause)
        [run] = [one for one in executions_of(conn, acme, schedule) if one["nominal_at"] == at]
        assert (run["state"], ticket_of(conn, run["id"]) is not None) == (
            ("ready", True) if fired else ("skipped", False)
        )
        assert entry_of(conn, schedule) is None
        schedule_resume(tenant=acme, actor=actor(acme), schedule_id=schedule, now=at)
    assert len(executions_of(conn, acme)) == ROUNDS


def test_edits_and_firing_at_a_barrier_lose_no_occurrence_of_either_version(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    schedule = make_schedule(acme)
    at = NOW
    for turn in range(ROUNDS):
        at += MINUTE
        patch = {"trigger": {"cron": "* * * * *" if turn % 2 else "*/1 * * * *"}, "payload": {"turn": turn}}
        edit = partial(schedule_update, tenant=acme, actor=actor(acme), schedule_id=schedule, patch=patch, now=at)
        at_once(partial(fire_all, conn, registry, now=at), edit)
        fire_all(conn, registry, now=at)
        runs = [one for one in executions_of(conn, acme, schedule) if one["nominal_at"] == at]
        assert [one["state"] for one in runs] in (["ready"], ["skipped"])
        assert entry_of(conn, schedule).nominal_at == at + MINUTE
    assert [one["nominal_at"] for one in executions_of(conn, acme)] == [NOW + n * MINUTE for n in range(1, ROUNDS + 1)]


def test_saving_twenty_times_at_once_leaves_one_pending_slot(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Case B31."""
    schedule = make_schedule(acme)

    save = partial(schedule_update, tenant=acme, actor=actor(acme), schedule_id=schedule, now=NOW)
    at_once(*(partial(save, patch={"trigger": {"every_s": 60 + number}}) for number in range(20)))
    assert count(conn, "SELECT count(*) FROM due_dueentry") == 1
    query = f"SELECT version FROM {acme.schema_name}.schedules_schedule WHERE id = %s"
    assert entry_of(conn, schedule).version == count(conn, query, schedule)


def test_a_trigger_and_a_fire_under_skip_make_one_run(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Overlap is decided by one at a time, whoever makes the execution."""
    for turn in range(1, 8):
        schedule = make_schedule(acme, overlap="skip")
        trigger = partial(schedule_trigger, tenant=acme, actor=actor(acme), schedule_id=schedule, now=NOW + MINUTE)
        at_once(partial(fire_all, conn, registry, now=NOW + MINUTE), trigger)
        fire_all(conn, registry, now=NOW + MINUTE)
        runs = executions_of(conn, acme, schedule)
        assert sorted(one["state"] for one in runs) == ["ready", "skipped"], f"round {turn}"
        assert count(conn, "SELECT count(*) FROM tickets_ticket WHERE schedule_id = %s", schedule) == 1
        schedule_delete(tenant=acme, actor=actor(acme), schedule_id=schedule, now=NOW + MINUTE)


def test_delete_and_make_again_starts_anew(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Case B32: what happened to the deleted schedule of the same name does not stop the new one."""
    job = make_job(acme)
    old = make_schedule(acme, job, name="every three minutes", trigger={"every_s": 180})
    assert fire_all(conn, registry, now=NOW + 3 * MINUTE) == 1
    schedule_delete(tenant=acme, actor=actor(acme), schedule_id=old, now=NOW + 4 * MINUTE)
    made_at = NOW + 5 * MINUTE
    new = make_schedule(acme, job, name="every three minutes", trigger={"every_s": 180}, now=made_at)
    assert made_at < entry_of(conn, new).due_at <= made_at + 3 * MINUTE
    assert fire_all(conn, registry, now=entry_of(conn, new).due_at) == 1


def _change(tenant: Tenant, schedule: Any, job: Any, name: str, *, now: Any) -> Callable[[], Any]:
    given: dict[str, Any] = {"tenant": tenant, "actor": actor(tenant), "now": now}
    edit = {"trigger": {"cron": "0 5 * * *"}}
    changes: dict[str, Callable[[], Any]] = {
        "pause": lambda: schedule_pause(schedule_id=schedule, **given),
        "edit": lambda: schedule_update(schedule_id=schedule, patch=edit, **given),
        "delete": lambda: schedule_delete(schedule_id=schedule, **given),
        "job pause": lambda: job_pause(job_id=job, **given),
    }
    return changes[name]


def _both(conn: Conn, second: Conn, first: Callable[[Conn], Any], then: Callable[[], Any]) -> tuple[Any, Any]:
    """`first` runs in a transaction of `second` that stays open until `then`, in a thread, waits for it."""
    pids: list[int] = []
    results: list[Any] = [None]

    def other() -> None:
        from django.db import connection

        try:
            pids.append(door.raw().info.backend_pid)
            results[0] = then()
        finally:
            connection.close()

    thread = threading.Thread(target=other)
    with second.transaction():
        done = first(second)
        thread.start()
        wait_until(lambda: pids and is_blocked(conn, pids[0]), "the change to wait for fire")
    thread.join()
    return done, results[0]


def _dying_run(conn: Conn, registry: Registry, tenant: Tenant, overlap: str) -> tuple[Any, Any]:
    """A schedule that one failure pauses, and a settlement of its running run that is such a failure."""
    job = make_job(tenant, retry={"max_attempts": 1})
    schedule = make_schedule(tenant, job, overlap=overlap, pause_after_failures=1)
    assert fire_all(conn, registry, now=NOW + MINUTE) == 1
    [run] = executions_of(conn, tenant, schedule)
    [started] = started_now(conn, [run["id"]], WORKER)
    return schedule, settlement(conn, registry, started, "failed")


@pytest.mark.parametrize("overlap", ["replace_pending", "cancel_running"])
def test_settle_waits_for_fire_before_it_holds_what_fire_wants(
    conn: Conn, second: Conn, registry: Registry, acme: Tenant, overlap: str
) -> None:
    """Fire holds the entry and then asks for the run's ticket, while settle wants both."""
    schedule, ended = _dying_run(conn, registry, acme, overlap)
    with door.connect("test settle") as third:
        done: list[Any] = []
        thread = threading.Thread(target=lambda: done.append(settle(third, registry, [ended])))
        with second.transaction():
            second.execute("SET LOCAL lock_timeout = '400ms'")
            entries.lock(second, [schedule])
            thread.start()
            wait_until(lambda: is_blocked(conn, third.info.backend_pid), "settle to wait for fire")
            assert fire(second, registry, now=NOW + 2 * MINUTE)["fired"] == 1
        thread.join()
    assert not done[0].failed and done[0].counts["cancelled" if overlap == "cancel_running" else "dead"] == 1
    status = rows_of(conn, acme, "schedules_schedule")[0]["status"]
    assert status == ("active" if overlap == "cancel_running" else "paused"), "what was cancelled is no failure"
    second_run = executions_of(conn, acme, schedule)[1]
    assert (second_run["state"], second_run["nominal_at"]) == ("ready", NOW + 2 * MINUTE)


@pytest.mark.parametrize("overlap", ["replace_pending", "cancel_running"])
def test_fire_passes_over_what_settle_may_pause(
    conn: Conn, second: Conn, registry: Registry, acme: Tenant, globex: Tenant, overlap: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Settle holds the run's ticket and is about to pause; fire does not wait for it, and loses no other tenant."""
    schedule, ended = _dying_run(conn, registry, acme, overlap)
    other = make_schedule(globex, now=NOW + MINUTE)
    counts: list[dict[str, int]] = []
    real = pausing.failing

    def failing(*args: Any) -> Any:
        second.execute("SET lock_timeout = '400ms'")
        counts.append(fire(second, registry, now=NOW + 2 * MINUTE))
        return real(*args)

    monkeypatch.setattr(pausing, "failing", failing)
    settled = settle(conn, registry, [ended])
    assert (settled.counts["dead"], settled.failed) == (1, [])
    assert [(one["fired"], one["entries"]) for one in counts] == [(1, 1)], "the other tenant's"
    assert len(executions_of(conn, globex, other)) == 1
    assert fire_all(conn, registry, now=NOW + 2 * MINUTE) == 0 and entry_of(conn, schedule) is None
    assert rows_of(conn, acme, "schedules_schedule")[0]["status"] == "paused"


@pytest.mark.parametrize("overlap", ["replace_pending", "cancel_running"])
def test_fire_and_failures_at_a_barrier_wait_for_nobody_in_vain(
    conn: Conn, second: Conn, registry: Registry, acme: Tenant, overlap: str
) -> None:
    for _ in range(ROUNDS):
        schedule, ended = _dying_run(conn, registry, acme, overlap)
        fired, settled = at_once(
            partial(fire, second, registry, now=NOW + 2 * MINUTE), partial(settle, conn, registry, [ended])
        )
        assert not settled.failed and sum(settled.counts.values()) == 1
        paused = entry_of(conn, schedule) is None
        fire_all(second, registry, now=NOW + 2 * MINUTE)
        runs = executions_of(conn, acme, schedule)
        assert [one["nominal_at"] for one in runs[:2]] == [NOW + MINUTE, NOW + 2 * MINUTE]
        assert runs[1]["state"] == ("ready" if fired.get("fired") or not paused else "skipped")
        schedule_delete(tenant=acme, actor=actor(acme), schedule_id=schedule, now=NOW + 2 * MINUTE)
