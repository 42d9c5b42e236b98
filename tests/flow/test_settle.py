"""Settle: an attempt ends once, under its fence, and what follows from it is in the same transaction."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apps.dispatch.reconcile import end_lost
from apps.executions import store as executions
from apps.outcomes.cancel import execution_cancel
from apps.outcomes.replay import deadletter_replay
from apps.outcomes.settle import settle
from apps.schedules.definitions import Definitions
from apps.tickets.values import Started
from kernel.errors import Conflict
from tenants import door
from tenants.models import Tenant
from tenants.registry import Registry
from tests.executors.works import case
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    assert_exactly_one_outcome,
    at_every_crash,
    at_once,
    attempts_of,
    count,
    ended_at,
    entry_of,
    execution_of,
    executions_of,
    fire_all,
    make_job,
    make_schedule,
    make_ticket,
    rows_of,
    settle_as,
    settlement,
    started_now,
    ticket_of,
)

Conn = psycopg.Connection[Any]
WORKER, OTHER = UUID(int=1), UUID(int=2)


def running(conn: Conn, tenant: Tenant, job: UUID | None = None, **more: Any) -> Started:
    """A run of a job that has begun."""
    [one] = started_now(conn, [make_ticket(tenant, job, **more)], WORKER)
    return one


# --- outcomes ---


def test_success_ends_the_run_with_its_result(conn: Conn, registry: Registry, acme: Tenant) -> None:
    one = running(conn, acme)
    done = settle_as(conn, registry, [one], result='{"rows": 3}')
    assert dict(done.counts) == {"succeeded": 1} and done.failed == []
    found = assert_exactly_one_outcome(conn, acme, one.run_key, state="succeeded")
    assert found["result"] == {"rows": 3} and found["error"] is None
    assert found["queued_at"] == one.first_queued_at and found["started_at"] == one.first_started_at
    assert found["finished_at"] == ended_at(one)
    [attempt] = attempts_of(conn, acme, one.execution_id)
    assert (attempt["state"], attempt["fence"], attempt["number"]) == ("succeeded", one.fence, 1)


@pytest.mark.parametrize("outcome", ["failed", "timed_out", "lost"])
def test_a_failure_is_tried_again_after_the_policys_wait(
    conn: Conn, registry: Registry, acme: Tenant, outcome: str
) -> None:
    job = make_job(acme, retry={"max_attempts": 4, "base_s": 10, "factor": 3, "max_s": 60})
    one = running(conn, acme, job)
    for failures, wait_s in ((1, 10), (2, 30), (3, 60)):
        finished = ended_at(one)
        assert dict(settle_as(conn, registry, [one], outcome).counts) == {"retry": 1}
        ticket = ticket_of(conn, one.execution_id)
        assert (ticket["state"], ticket["failures"], ticket["worker_id"]) == ("ready", failures, None)
        assert ticket["available_at"] == finished + timedelta(seconds=wait_s)
        assert ticket["rank"] is None, "it waits for its time"
        assert attempts_of(conn, acme, one.execution_id)[-1]["retry_at"] == ticket["available_at"]
        [one] = started_now(conn, [one.execution_id], WORKER)
    settle_as(conn, registry, [one], outcome)
    found = assert_exactly_one_outcome(conn, acme, one.run_key, state="dead")
    assert (found["reason"], found["attempt_count"]) == ("attempts_used_up", 4)


@pytest.mark.parametrize("jitter", ["full", "equal"])
def test_a_jittered_wait_stays_within_the_policy(conn: Conn, registry: Registry, acme: Tenant, jitter: str) -> None:
    job = make_job(acme, retry={"max_attempts": 5, "base_s": 8, "jitter": jitter})
    waits = set()
    for _ in range(8):
        one = running(conn, acme, job)
        settle_as(conn, registry, [one], "failed")
        waits.add((ticket_of(conn, one.execution_id)["available_at"] - ended_at(one)).total_seconds())
    assert len(waits) > 1
    assert all((4 if jitter == "equal" else 0.05) <= wait <= 8 for wait in waits)


@pytest.mark.parametrize(("asked_s", "wait_s"), [(90, 90), (1, 2), (10**9, 86_400), (0, 2)])
def test_what_the_receiver_asks_for_is_honoured(
    conn: Conn, registry: Registry, acme: Tenant, asked_s: float, wait_s: float
) -> None:
    one = running(conn, acme)
    settle_as(conn, registry, [one], "failed", retry_after_s=asked_s)
    assert ticket_of(conn, one.execution_id)["available_at"] - ended_at(one) == timedelta(seconds=wait_s)


def test_what_can_not_be_retried_is_dead_at_once(conn: Conn, registry: Registry, acme: Tenant) -> None:
    one = running(conn, acme)
    settle_as(conn, registry, [one], "failed", retryable=False)
    assert assert_exactly_one_outcome(conn, acme, one.run_key, state="dead")["reason"] == "not_retryable"


@pytest.mark.parametrize(
    ("retry", "error", "again"),
    [
        ({"never_on": ["http_503"]}, {"class": "http", "status": 503}, False),
        ({"never_on": ["http_5xx"]}, {"class": "http", "status": 503}, False),
        ({"never_on": ["http_5xx"]}, {"class": "http", "status": 404}, True),
        ({"never_on": ["failed"]}, {"class": "http"}, False),
        ({"retry_on": ["connect_failed"]}, {"class": "connect_failed"}, True),
        ({"retry_on": ["connect_failed"]}, {"class": "http", "status": 500}, False),
        ({"retry_on": ["http_5xx"], "never_on": ["http_501"]}, {"class": "http", "status": 501}, False),
        ({"max_attempts": 1}, {"class": "connect_failed"}, False),
    ],
)
def test_the_jobs_policy_says_what_is_tried_again(
    conn: Conn, registry: Registry, acme: Tenant, retry: dict[str, Any], error: dict[str, Any], again: bool
) -> None:
    one = running(conn, acme, make_job(acme, retry=retry))
    settle_as(conn, registry, [one], "failed", error={"message": "no", **error})
    assert (ticket_of(conn, one.execution_id) is not None) == again
    assert execution_of(conn, acme, one.execution_id)["state"] == ("ready" if again else "dead")


@pytest.mark.parametrize(
    ("retry_on", "unknown", "requests"),
    [([], True, 1), (["http_503"], True, 1), (["timed_out"], True, 2), (["timeout"], True, 2), ([], False, 2)],
)
def test_a_maybe_is_repeated_only_where_the_policy_names_it_e17(
    conn: Conn, registry: Registry, acme: Tenant, retry_on: list[str], unknown: bool, requests: int
) -> None:
    """A time-out of POST or PATCH after the request was sent: the target may have acted."""
    expected = case("http", "E17")["expected"]
    one = running(conn, acme, make_job(acme, retry={"max_attempts": 2, "retry_on": retry_on}))
    error = {"class": "timeout", "message": "no answer", **({"outcome_unknown": True} if unknown else {})}
    settle_as(conn, registry, [one], "timed_out", error=error)
    assert requests in expected["requests"]
    if requests == 1:
        found = assert_exactly_one_outcome(conn, acme, one.run_key, state="dead")
        if not retry_on:
            assert found["reason"] == "outcome_unknown"
        # What the case calls its state is the attempt's here; the execution's is "dead" (design, section 8).
        (attempt,) = attempts_of(conn, acme, one.execution_id)
        assert attempt["state"] in expected["state_when_off"]
        return
    [again] = started_now(conn, [one.execution_id], WORKER)
    assert again.run_key == one.run_key
    settle_as(conn, registry, [again], "timed_out", error=error)
    assert assert_exactly_one_outcome(conn, acme, one.run_key, state="dead")["reason"] == "attempts_used_up"


def test_what_was_returned_uses_up_no_attempt_of_the_policy(conn: Conn, registry: Registry, acme: Tenant) -> None:
    one = running(conn, acme, make_job(acme, retry={"max_attempts": 2}))
    for _ in range(4):
        settle_as(conn, registry, [one], "returned")
        ticket = ticket_of(conn, one.execution_id)
        assert (ticket["state"], ticket["failures"]) == ("ready", 0)
        [one] = started_now(conn, [one.execution_id], WORKER)
    settle_as(conn, registry, [one])
    found = assert_exactly_one_outcome(conn, acme, one.run_key, state="succeeded")
    assert found["attempt_count"] == 5
    assert [each["state"] for each in attempts_of(conn, acme, one.execution_id)] == ["returned"] * 4 + ["succeeded"]


def test_a_cancelled_attempt_cancels_the_run(conn: Conn, registry: Registry, acme: Tenant) -> None:
    one = running(conn, acme)
    settle_as(conn, registry, [one], "cancelled")
    found = assert_exactly_one_outcome(conn, acme, one.run_key, state="cancelled")
    assert found["reason"] == "cancelled"


@pytest.mark.parametrize(
    ("outcome", "state"),
    [("succeeded", "succeeded"), ("failed", "cancelled"), ("timed_out", "cancelled"), ("returned", "cancelled")],
)
def test_a_request_to_cancel_decides_over_everything_but_success(
    conn: Conn, registry: Registry, acme: Tenant, outcome: str, state: str
) -> None:
    one = running(conn, acme)
    done = execution_cancel(tenant=acme, actor=actor(acme), execution_id=one.execution_id, now=NOW)
    assert done.outcome == "requested"
    settle_as(conn, registry, [one], outcome)
    assert_exactly_one_outcome(conn, acme, one.run_key, state=state)


# --- once ---


def test_a_stale_settlement_after_a_takeover_changes_nothing(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """The worker was given up; another one runs it; then the first one comes back with its result."""
    old = running(conn, acme)
    settle_as(conn, registry, [old], "lost")
    [new] = started_now(conn, [old.execution_id], OTHER)
    before = ticket_of(conn, old.execution_id)
    for outcome in ("succeeded", "failed", "returned", "cancelled"):
        assert dict(settle_as(conn, registry, [old], outcome).counts) == {"stale": 1}
        assert ticket_of(conn, old.execution_id) == before
    settle_as(conn, registry, [new], result='"new"')
    assert dict(settle_as(conn, registry, [old], result='"old"').counts) == {"stale": 1}
    found = assert_exactly_one_outcome(conn, acme, old.run_key, state="succeeded")
    assert found["result"] == "new"
    assert [each["state"] for each in attempts_of(conn, acme, old.execution_id)] == ["lost", "succeeded"]


def test_the_same_attempt_twice_in_a_batch_counts_once(conn: Conn, registry: Registry, acme: Tenant) -> None:
    one = running(conn, acme)
    first = settlement(conn, registry, one, result='"first"')
    done = settle(conn, registry, [first, settlement(conn, registry, one, "failed"), first])
    assert dict(done.counts) == {"succeeded": 1, "stale": 2}
    assert assert_exactly_one_outcome(conn, acme, one.run_key, state="succeeded")["result"] == "first"


def test_two_settlements_at_a_barrier_are_one(conn: Conn, second: Conn, registry: Registry, acme: Tenant) -> None:
    """Two who believe that the attempt is theirs to end: the worker and the reconciler."""
    job = make_job(acme)
    for _ in range(15):
        some = [running(conn, acme, job) for _ in range(3)]
        mine, theirs = at_once(
            partial(settle_as, conn, registry, some),
            partial(settle_as, second, registry, some[::-1], "failed", retryable=False),
        )
        assert mine.counts["succeeded"] + theirs.counts["dead"] == 3
        assert mine.counts["stale"] + theirs.counts["stale"] == 3
        for one in some:
            assert_exactly_one_outcome(conn, acme, one.run_key)


def test_cancel_and_finish_take_turns(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """In both orders and at a barrier: one outcome, and whoever asked was told the truth."""
    job = make_job(acme)
    for outcome in ("succeeded", "failed") * 10:
        one = running(conn, acme, job)
        cancel = partial(execution_cancel, tenant=acme, actor=actor(acme), execution_id=one.execution_id, now=NOW)
        answers: list[Any] = [None, None]

        def ask(cancel: Any = cancel, answers: list[Any] = answers) -> None:
            try:
                answers[1] = cancel().outcome
            except Conflict:
                answers[1] = "ended before"

        at_once(partial(settle_as, conn, registry, [one], outcome), ask)
        state = execution_of(conn, acme, one.execution_id)["state"]
        if outcome == "succeeded":
            assert (state, answers[1]) in {("succeeded", "requested"), ("succeeded", "ended before")}
        else:
            assert (state, answers[1]) in {("cancelled", "requested"), ("cancelled", "done")}
        assert_exactly_one_outcome(conn, acme, one.run_key)


def test_a_crash_at_every_round_trip_of_a_settlement_is_one_outcome(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    """The buffer tries again what was not answered; what had been committed is stale then."""
    jobs = {tenant.pk: make_job(tenant, retry={"max_attempts": 1}) for tenant in (acme, globex)}
    current: list[tuple[Tenant, Started, str]] = []

    def batch(connection: Conn) -> dict[str, int]:
        items = [settlement(conn, registry, one, outcome) for _, one, outcome in current]
        return dict(settle(connection, registry, items).counts)

    def work(fragile: Conn) -> None:
        if not current:
            for tenant, outcome in ((acme, "succeeded"), (acme, "failed"), (acme, "returned"), (globex, "cancelled")):
                current.append((tenant, running(conn, tenant, jobs[tenant.pk]), outcome))
        batch(fragile)

    def check(where: str) -> None:
        batch(conn)
        for tenant, one, outcome in current:
            if outcome == "returned":
                assert ticket_of(conn, one.execution_id)["state"] == "ready", where
                settle_as(conn, registry, started_now(conn, [one.execution_id], WORKER))
            state = {"failed": "dead", "returned": "succeeded"}.get(outcome, outcome)
            found = assert_exactly_one_outcome(conn, tenant, one.run_key, state=state)
            assert found["attempt_count"] == (2 if outcome == "returned" else 1), where
        current.clear()

    assert at_every_crash(work, check) >= 8


# --- dead letters, pauses ---


def test_a_dead_run_has_one_open_letter_and_causes_are_grouped(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme, retry={"max_attempts": 1})
    messages = ["row 17 of 0x7ffe1234 failed", "row 99 of 0x7ffe9999 failed", "the disk is full"]
    for message in messages:
        one = running(conn, acme, job)
        settle_as(conn, registry, [one], "failed", error={"class": "ValueError", "message": message})
    letters = rows_of(conn, acme, "deadletters_deadletter")
    assert len(letters) == 3
    assert len({letter["fingerprint"] for letter in letters}) == 2, "the varying parts do not count"
    assert {letter["job_id"] for letter in letters} == {job}
    assert all(letter["attempts"] == 1 and letter["resolved_at"] is None for letter in letters)


def test_a_replayed_run_that_dies_again_has_a_new_letter(conn: Conn, registry: Registry, acme: Tenant) -> None:
    one = running(conn, acme, make_job(acme, retry={"max_attempts": 2}))
    settle_as(conn, registry, [one], "failed", retryable=False)
    [letter] = rows_of(conn, acme, "deadletters_deadletter")
    deadletter_replay(tenant=acme, actor=actor(acme), letter_id=letter["id"], now=NOW)
    [again] = started_now(conn, [one.execution_id], WORKER)
    assert (again.attempt, again.failures) == (2, 0), "attempts go on, the policy starts anew"
    settle_as(conn, registry, [again], "failed", retryable=False)
    letters = rows_of(conn, acme, "deadletters_deadletter")
    assert sorted(each["resolution"] for each in letters) == ["", "replayed"]
    assert assert_exactly_one_outcome(conn, acme, one.run_key, state="dead")["attempt_count"] == 2


def test_a_settlement_of_before_a_replay_is_stale(conn: Conn, registry: Registry, acme: Tenant) -> None:
    old = running(conn, acme)
    settle_as(conn, registry, [old], "failed", retryable=False)
    [letter] = rows_of(conn, acme, "deadletters_deadletter")
    deadletter_replay(tenant=acme, actor=actor(acme), letter_id=letter["id"], now=NOW)
    [new] = started_now(conn, [old.execution_id], WORKER)
    assert dict(settle_as(conn, registry, [old]).counts) == {"stale": 1}
    settle_as(conn, registry, [new])
    assert_exactly_one_outcome(conn, acme, old.run_key, state="succeeded")


def test_gone_pauses_the_schedule_with_a_trace(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """410: the schedule stops, its due entry goes, the trail says who and why, and nothing owed is forgotten."""
    schedule = make_schedule(acme)
    fire_all(conn, registry, now=NOW + MINUTE)
    [run] = executions_of(conn, acme, schedule)
    [one] = started_now(conn, [run["id"]], WORKER)
    audit = (
        "SELECT count(*) FROM audit_auditevent WHERE action = 'schedule.pause' AND object_id = %s AND actor = 'system'"
    )
    settle_as(conn, registry, [one], "failed", retryable=False, pause_schedule=True)
    assert_exactly_one_outcome(conn, acme, one.run_key, state="dead")
    assert entry_of(conn, schedule) is None
    row = conn.execute(
        f"SELECT status, paused_reason, revision FROM {acme.schema_name}.schedules_schedule WHERE id = %s", [schedule]
    ).fetchone()
    assert row is not None
    assert (row[0], row[2]) == ("paused", 2) and "410" in row[1]
    assert count(conn, audit, str(schedule)) == 1
    owed = [each for each in executions_of(conn, acme, schedule) if each["state"] == "skipped"]
    assert [(each["nominal_at"], each["reason"]) for each in owed] == [(NOW + 2 * MINUTE, "schedule_paused")]
    assert owed[0]["count"] > 1000, "all that had come due by then"


def test_gone_twice_pauses_once(conn: Conn, registry: Registry, acme: Tenant) -> None:
    schedule = make_schedule(acme)
    for minute in (1, 2):
        fire_all(conn, registry, now=NOW + minute * MINUTE)
    runs = [each["id"] for each in executions_of(conn, acme, schedule)]
    started = started_now(conn, runs, WORKER)
    settle_as(conn, registry, started, "failed", retryable=False, pause_schedule=True)
    audit = "SELECT count(*) FROM audit_auditevent WHERE action = 'schedule.pause' AND object_id = %s"
    assert count(conn, audit, str(schedule)) == 1


def test_gone_of_a_run_without_schedule_pauses_nothing(conn: Conn, registry: Registry, acme: Tenant) -> None:
    one = running(conn, acme)
    settle_as(conn, registry, [one], "failed", retryable=False, pause_schedule=True)
    assert_exactly_one_outcome(conn, acme, one.run_key, state="dead")


# --- clocks, clean-ups, cost ---


@pytest.mark.parametrize("off", [timedelta(minutes=-5), timedelta(minutes=90)])
def test_a_workers_wrong_clock_moves_neither_the_end_nor_the_retry(
    conn: Conn, registry: Registry, acme: Tenant, off: timedelta
) -> None:
    """Case B30 on the other side: the attempt ends between its start and now, and a retry waits from then."""
    job = make_job(acme)
    ended, again = running(conn, acme, job), running(conn, acme, job)
    for one, outcome in ((ended, "succeeded"), (again, "failed")):
        settle_as(conn, registry, [one], outcome, started_at=one.started_at + off, finished_at=one.started_at + off)
    found = assert_exactly_one_outcome(conn, acme, ended.run_key, state="succeeded")
    [attempt] = attempts_of(conn, acme, ended.execution_id)
    near = timedelta(seconds=20)
    assert found["started_at"] <= found["finished_at"] <= found["started_at"] + near
    assert attempt["started_at"] <= attempt["finished_at"] <= attempt["started_at"] + near
    wait = ticket_of(conn, again.execution_id)["available_at"] - again.started_at
    assert timedelta(seconds=2) <= wait < near


def test_two_clean_ups_of_one_crash_are_one(conn: Conn, registry: Registry, acme: Tenant) -> None:
    """Case C25: the second one acts on an old list, when the retry has succeeded already."""
    old = running(conn, acme)  # by a worker that has no lease
    stale_list = [settlement(conn, registry, old, "lost")]
    assert end_lost(conn, registry, Definitions()).counts["lost"] == 1
    settle_as(conn, registry, started_now(conn, [old.execution_id], OTHER))
    assert dict(settle(conn, registry, stale_list).counts) == {"stale": 1}
    assert_exactly_one_outcome(conn, acme, old.run_key, state="succeeded")


def test_the_work_of_a_settlement_does_not_grow_with_the_history(
    conn: Conn, registry: Registry, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that travel as JSON are taken to be a hundred: for so many all of a small table would be read each time."""
    one, schema = running(conn, acme), acme.schema_name
    conn.execute(
        f"INSERT INTO {schema}.executions_execution"
        " SELECT (jsonb_populate_record(e, jsonb_build_object('id', gen_random_uuid(), 'run_key', n::text))).*"
        f" FROM {schema}.executions_execution e, generate_series(1, 3000) n"
    )
    with closing(door.connect("test", owner=True)) as owner:
        owner.execute(f"ANALYZE {schema}.executions_execution")
    monkeypatch.setattr(executions, "_SETTLE", f"EXPLAIN {executions._SETTLE}")
    plans: list[str] = []
    explain = executions.run_in

    def explained(conn: Conn, query: str, schema: str, parameters: Any) -> Any:
        found = explain(conn, query, schema, parameters)
        plans.extend(row[0] for row in found)
        return found

    monkeypatch.setattr(executions, "run_in", explained)
    settle_as(conn, registry, [one])
    assert plans and not any("Seq Scan on executions_execution" in line for line in plans), plans
