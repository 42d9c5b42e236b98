"""The total time-out: from the first start over all attempts and waits. No attempt is begun after it or outlives it."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.outcomes.expire import expire_batch
from apps.outcomes.replay import deadletter_replay
from apps.outcomes.verdict import TOTAL_TIMEOUT, Report, judge
from apps.schedules.retry import retry_from_json
from apps.tickets import holding
from apps.tickets.holding import DEADLINE_GRACE_S
from apps.tickets.values import Started
from tenants.models import Tenant
from tenants.registry import Registry
from tenants.work import database_now
from tests.fixtures_flow import (
    MINUTE,
    NOW,
    actor,
    assert_exactly_one_outcome,
    at_every_crash,
    at_once,
    attempts_of,
    ended_at,
    execution_of,
    executions_of,
    fire_all,
    make_job,
    make_schedule,
    make_ticket,
    rows_of,
    settle_as,
    started_now,
    ticket_of,
)

Conn = psycopg.Connection[Any]
WORKER = UUID(int=1)
SECOND = timedelta(seconds=1)


def running(conn: Conn, tenant: Tenant, **job: Any) -> Started:
    [one] = started_now(conn, [make_ticket(tenant, make_job(tenant, **job))], WORKER)
    return one


def waits_for_its_next_try(conn: Conn, registry: Registry, tenant: Tenant, job: UUID) -> Started:
    """A run that has failed once and has 90 s left."""
    [one] = started_now(conn, [make_ticket(tenant, job)], WORKER)
    error = {"class": "connect_failed", "message": "nobody there"}
    settle_as(conn, registry, [one], "failed", error=error)
    assert ticket_of(conn, one.execution_id)["start_by"] == one.give_up_at
    return one


# --- the decision ---


@given(
    st.sampled_from(["succeeded", "failed", "timed_out", "lost", "cancelled", "returned"]), st.integers(0, 5),
    st.booleans(), st.booleans(), st.integers(0, 300), st.none() | st.integers(0, 300),
)  # fmt: skip
def test_what_follows_never_begins_too_late(
    outcome: str, failures: int, retryable: bool, cancel: bool, finished_s: int, total_s: int | None
) -> None:
    policy = retry_from_json({"max_attempts": 4, "base_s": 30, "jitter": "none", "max_s": 60})
    report = Report(outcome, NOW, NOW + finished_s * SECOND, retryable=retryable)
    plain = judge(report, policy=policy, failures=failures, cancel_requested=cancel)
    limit = None if total_s is None else NOW + total_s * SECOND
    limited = judge(report, policy=policy, failures=failures, cancel_requested=cancel, give_up_at=limit)
    if limited.kind == "again":
        assert limited == plain and (limit is None or limited.at is None or limited.at < limit)
    elif limited != plain:
        assert limit is not None and (limited.state, limited.reason) == ("dead", TOTAL_TIMEOUT)
        assert plain.kind == "again" or (plain.reason == "attempts_used_up" and report.finished_at >= limit)
    if outcome == "succeeded":
        assert limited.state == "succeeded", "a result that came in stands"
    assert limited.failures == plain.failures


@pytest.mark.parametrize(
    ("total_s", "base_s", "outcome", "reason"),
    [
        (61, 60, "failed", None),
        (60, 60, "failed", TOTAL_TIMEOUT),
        (60, 600, "timed_out", TOTAL_TIMEOUT),
        (60, 600, "lost", TOTAL_TIMEOUT),
        (None, 600, "failed", None),
    ],
)
def test_no_retry_is_begun_that_could_not_start_in_time(
    conn: Conn, registry: Registry, acme: Tenant, total_s: int | None, base_s: int, outcome: str, reason: str | None
) -> None:
    one = running(conn, acme, timeout_s=30, total_timeout_s=total_s, retry={"base_s": base_s, "max_s": 600})
    error = {"class": "http_status", "status": 503, "message": "busy"}
    settle_as(conn, registry, [one], outcome, error=error)
    if reason is None:
        assert ticket_of(conn, one.execution_id)["start_by"] == one.give_up_at
        return
    found = assert_exactly_one_outcome(conn, acme, one.run_key, state="dead")
    assert (found["reason"], found["error"]["class"], found["error"]["last"]) == (reason, reason, error)
    assert "total time-out of 60 s" in found["error"]["message"]
    [attempt] = attempts_of(conn, acme, one.execution_id)
    assert (attempt["state"], attempt["error"], attempt["retry_at"]) == (outcome, error, None)
    [letter] = rows_of(conn, acme, "deadletters_deadletter")
    assert letter["error"] == found["error"]


def test_what_is_handed_back_after_the_end_is_dead(conn: Conn, registry: Registry, acme: Tenant) -> None:
    one = running(conn, acme, timeout_s=30, total_timeout_s=60)
    settle_as(conn, registry, [one], "returned", retry_after_s=60.0)
    assert assert_exactly_one_outcome(conn, acme, one.run_key, state="dead")["reason"] == TOTAL_TIMEOUT


def test_an_attempt_that_the_end_cut_short_says_so_though_it_was_the_last(
    conn: Conn, registry: Registry, acme: Tenant
) -> None:
    one = running(conn, acme, timeout_s=30, total_timeout_s=60, retry={"max_attempts": 1})
    early = one._replace(first_started_at=one.first_started_at - 60 * SECOND)
    settle_as(conn, registry, [early], "timed_out", error={"class": "timeout", "message": "too slow"})
    assert assert_exactly_one_outcome(conn, acme, one.run_key, state="dead")["reason"] == TOTAL_TIMEOUT


# --- what runs ---


@pytest.mark.parametrize(
    ("timeout_s", "total_s", "gone_s", "deadline_s"), [(30, None, 0, 30), (30, 100, 0, 30), (30, 100, 80, 20)]
)
def test_the_deadline_of_an_attempt_is_bounded(
    conn: Conn, registry: Registry, acme: Tenant, timeout_s: int, total_s: int | None, gone_s: int, deadline_s: int
) -> None:
    from workers.runtime import _timeout_s

    one = running(conn, acme, timeout_s=timeout_s, total_timeout_s=total_s)
    if gone_s:
        settle_as(conn, registry, [one], "failed")
        conn.execute(
            "UPDATE tickets_ticket SET first_started_at = first_started_at - %(gone)s, start_by = start_by - %(gone)s",
            {"gone": gone_s * SECOND},
        )
        [one] = started_now(conn, [one.execution_id], WORKER)
    definition: Any = type("Defined", (), {"kind": "http", "timeout_s": timeout_s})()
    assert round(_timeout_s(one, definition)) == deadline_s
    for extended in (False, True):
        if extended:
            holding.extend(conn, [(one.execution_id, one.fence)])
        ticket = ticket_of(conn, one.execution_id)
        left_s = (ticket["deadline"] - ticket["started_at"]).total_seconds() - DEADLINE_GRACE_S
        assert round(left_s) == deadline_s


# --- what waits ---


def test_a_run_that_waits_past_its_end_for_the_next_try_is_dead(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme, timeout_s=30, total_timeout_s=90)
    one = waits_for_its_next_try(conn, registry, acme, job)
    assert one.give_up_at is not None
    assert expire_batch(conn, registry, now=one.give_up_at, limit=10)["given_up"] == 0
    assert expire_batch(conn, registry, now=one.give_up_at + SECOND, limit=10) == {"expired": 0, "given_up": 1}
    found = assert_exactly_one_outcome(conn, acme, one.run_key, state="dead")
    assert (found["reason"], found["attempt_count"], found["started_at"]) == (TOTAL_TIMEOUT, 1, one.first_started_at)
    assert found["error"]["last"]["class"] == "connect_failed"
    [letter] = rows_of(conn, acme, "deadletters_deadletter")
    assert (letter["error"], letter["job_id"], letter["attempts"]) == (found["error"], job, 1)


def test_it_pauses_a_schedule_that_asks_for_it(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme, timeout_s=30, total_timeout_s=90)
    schedule = make_schedule(acme, job, pause_after_failures=1)
    fire_all(conn, registry, now=NOW + MINUTE)
    [run] = executions_of(conn, acme, schedule)
    [one] = started_now(conn, [run["id"]], WORKER)
    settle_as(conn, registry, [one], "failed")
    expire_batch(conn, registry, now=ended_at(one) + timedelta(hours=1), limit=10)
    [row] = rows_of(conn, acme, "schedules_schedule")
    assert (row["status"], row["paused_reason"]) == ("paused", "A run has died.")


def test_a_replay_has_its_whole_time_again(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme, timeout_s=30, total_timeout_s=90, max_queue_age_s=600)
    execution = make_ticket(acme, job, now=database_now(conn))
    [one] = started_now(conn, [execution], WORKER)
    settle_as(conn, registry, [one], "failed", retryable=False)
    [letter] = rows_of(conn, acme, "deadletters_deadletter")
    deadletter_replay(tenant=acme, actor=actor(acme), letter_id=letter["id"], now=NOW)
    assert ticket_of(conn, execution)["start_by"] is None, "it has had its first start"
    [again] = started_now(conn, [execution], WORKER)
    assert again.give_up_at is not None and one.give_up_at is not None and again.give_up_at > one.give_up_at


def test_the_next_start_and_giving_up_take_turns(conn: Conn, second: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme, timeout_s=30, total_timeout_s=90)
    for _ in range(15):
        one = waits_for_its_next_try(conn, registry, acme, job)
        started, ended = at_once(
            partial(started_now, conn, [one.execution_id], WORKER),
            partial(expire_batch, second, registry, now=ended_at(one) + timedelta(hours=1), limit=10),
        )
        assert len(started) + ended["given_up"] == 1
        settle_as(conn, registry, started)
        assert_exactly_one_outcome(conn, acme, one.run_key, state="succeeded" if started else "dead")


def test_a_crash_at_every_round_trip_of_giving_up_is_one_outcome(conn: Conn, registry: Registry, acme: Tenant) -> None:
    job = make_job(acme, timeout_s=30, total_timeout_s=90)
    current: list[Started] = []

    def give_up(connection: Conn) -> None:
        expire_batch(connection, registry, now=ended_at(current[0]) + timedelta(hours=1), limit=10)

    def work(fragile: Conn) -> None:
        if not current:
            current.append(waits_for_its_next_try(conn, registry, acme, job))
        give_up(fragile)

    def check(where: str) -> None:
        give_up(conn)
        assert_exactly_one_outcome(conn, acme, current[0].run_key, state="dead")
        current.clear()

    assert at_every_crash(work, check) >= 8


def test_runs_keep_what_their_job_said_when_they_were_made(conn: Conn, acme: Tenant) -> None:
    from apps.schedules.services import job_update

    job = make_job(acme, timeout_s=30, total_timeout_s=90)
    before = make_ticket(acme, job)
    job_update(tenant=acme, actor=actor(acme), job_id=job, patch={"total_timeout_s": 60}, now=NOW)
    after = make_ticket(acme, job)
    assert [ticket_of(conn, one)["total_timeout_s"] for one in (before, after)] == [90, 60]
    assert execution_of(conn, acme, before)["job_version"] + 1 == execution_of(conn, acme, after)["job_version"]
