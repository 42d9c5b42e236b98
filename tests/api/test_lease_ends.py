"""Leases of pull queues: the four ends, heartbeats, cancels, and what a token that is over may do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.api.makers import instant
from tests.api.pulling import RETRY, end, expire, lease, lease_one
from tests.fixtures_api import Answer, Api, in_parallel
from tests.fixtures_flow import assert_exactly_one_outcome, attempts_of

Conn = psycopg.Connection[Any]


# --- the ends of a lease ---


def test_complete_ends_the_run_and_says_it_again(pull: Any, worker: Api, api: Api, acme: Any, conn: Conn) -> None:
    run = pull()
    item = lease_one(worker)
    done = end(worker, item, "complete", {"result": {"pages": 3}})
    assert done.body == {
        "execution": run["id"], "attempt": 1, "attempt_state": "succeeded", "execution_state": "succeeded",
        "retry_at": None,
    }  # fmt: skip
    again = end(worker, item, "complete", {"result": {"pages": 3}})
    assert (again.status, again.body) == (200, done.body)
    for how, body in (
        ("complete", {"result": {"pages": 4}}),
        ("complete", None),
        ("fail", {"error": {"message": "no"}}),
        ("release", None),
        ("heartbeat", None),
    ):
        stale = end(worker, item, how, body)
        assert (stale.status, stale.code) == (409, "lease_over"), how
    assert api.get(f"executions/{run['id']}").body["result"] == {"pages": 3}
    assert_exactly_one_outcome(conn, acme, run["run_key"], state="succeeded")


def test_fail_follows_the_retry_policy(pull: Any, worker: Api, api: Api, acme: Any, conn: Conn) -> None:
    run = pull()
    error = {"message": "no paper", "class": "PaperJam", "details": {"tray": 2}}
    for attempt in (1, 2, 3):
        item = lease_one(worker, wait_s=10)
        assert item["attempt"] == attempt
        body = {"error": error}
        failed = end(worker, item, "fail", body)
        assert failed.body["execution_state"] == ("dead" if attempt == 3 else "ready")
        assert end(worker, item, "fail", body).body == failed.body, "said again"
    [letter] = api.get("dead-letters").body["items"]
    assert letter["error"] == error
    assert_exactly_one_outcome(conn, acme, run["run_key"], state="dead")


def test_fail_for_good_and_fail_for_later(pull: Any, worker: Api) -> None:
    pull()
    item = lease_one(worker)
    body = {"error": {"message": "broken for ever"}, "retryable": False}
    assert end(worker, item, "fail", body).body["execution_state"] == "dead"
    pull()
    item = lease_one(worker)
    failed = end(worker, item, "fail", {"error": {"message": "busy"}, "retry_after_s": 600})
    assert instant(failed.body["retry_at"]) - instant(item["started_at"]) > timedelta(seconds=599)
    assert lease(worker) == []


def test_the_retry_policy_may_name_the_workers_own_classes(pull: Any, worker: Api) -> None:
    pull(job={"retry": {**RETRY, "never_on": ["PaperJam"]}})
    item = lease_one(worker)
    body = {"error": {"message": "x", "class": "PaperJam"}}
    assert end(worker, item, "fail", body).body["execution_state"] == "dead"


def test_release_uses_up_no_attempt(pull: Any, worker: Api, conn: Conn, acme: Any) -> None:
    run = pull(job={"retry": {**RETRY, "max_attempts": 1}})
    for _ in range(3):
        item = lease_one(worker)
        released = end(worker, item, "release")
        assert (released.body["attempt_state"], released.body["execution_state"]) == ("returned", "ready")
        assert end(worker, item, "release").body == released.body
    later = lease_one(worker)
    end(worker, later, "release", {"delay_s": 60})
    assert lease(worker) == []
    conn.execute("UPDATE tickets_ticket SET available_at = clock_timestamp() WHERE execution_id = %s", [run["id"]])
    end(worker, lease_one(worker), "complete")
    assert_exactly_one_outcome(conn, acme, run["run_key"], state="succeeded")


def test_bounds_of_what_is_said(pull: Any, worker: Api) -> None:
    pull()
    item = lease_one(worker)
    assert end(worker, item, "complete", {"result": "x" * 65_535}).faults == {"/result": "too_large"}
    assert end(worker, item, "heartbeat", {"progress": "x" * 2_048}).faults == {"/progress": "too_large"}
    assert end(worker, item, "complete", {"result": "nul \0"}).faults == {"/result": "invalid_character"}
    assert end(worker, item, "fail", {}).faults == {"/error": "required"}
    refused = end(worker, item, "fail", {"error": {"message": "", "why": 1}, "retryable": 1, "retry_after_s": -1})
    assert refused.faults == {
        "/error/message": "type", "/error/why": "unknown_field", "/retryable": "type", "/retry_after_s": "range",
    }  # fmt: skip
    big = {"message": "m" * 500, "class": "c" * 100, "details": "d" * 2_000}
    assert end(worker, item, "fail", {"error": big}).status == 200


def test_hostile_words_are_kept_as_they_are(pull: Any, worker: Api, api: Api) -> None:
    run = pull()
    result = {"<script>": "\\u0000 \u202e </td>", "n": 10**18, "deep": [[[[[]]]]]}
    end(worker, lease_one(worker), "complete", {"result": result})
    assert api.get(f"executions/{run['id']}").body["result"] == result


# --- heartbeats, leases that run out, cancels ---


def test_heartbeats_move_the_lease_up_to_the_time_out(pull: Any, worker: Api, api: Api, conn: Conn) -> None:
    run = pull(job={"timeout_s": 100})
    item = lease_one(worker, lease_s=10)
    alive = end(worker, item, "heartbeat", {"lease_s": 50, "progress": {"done": 0.5}}).body
    assert alive["cancel_requested"] is False
    assert instant(alive["lease_until"]) - instant(item["started_at"]) >= timedelta(seconds=50)
    assert alive["deadline"] == item["deadline"]
    far = end(worker, item, "heartbeat", {"lease_s": 900}).body
    assert far["lease_until"] == item["deadline"]
    assert api.get(f"executions/{run['id']}").body["progress"] == {"done": 0.5}


@pytest.mark.parametrize("timed_out", [False, True])
def test_a_lease_that_runs_out_is_an_attempt(
    pull: Any, worker: Api, conn: Conn, acme: Any, reconcile: Any, timed_out: bool
) -> None:
    """C27, C19: a worker that was killed; nothing but the lease says so, and the next may start."""
    run = pull(job={"max_concurrency": 1})
    item = lease_one(worker)
    assert reconcile() == {}
    expire(conn, run["id"], timed_out=timed_out)
    assert reconcile()["lost"] == 1
    [attempt] = attempts_of(conn, acme, UUID(run["id"]))
    expected = ("timed_out", "timeout") if timed_out else ("lost", "lease_expired")
    assert (attempt["state"], attempt["error"]["class"]) == expected
    for how, body in (("complete", {"result": 1}), ("fail", {"error": {"message": "x"}}), ("heartbeat", None)):
        assert end(worker, item, how, body).code == "lease_over"
    again = lease_one(worker, wait_s=10)
    assert again["attempt"] == 2
    end(worker, again, "complete")
    assert_exactly_one_outcome(conn, acme, run["run_key"], state="succeeded")


def test_a_late_heartbeat_saves_a_lease_that_nobody_missed(pull: Any, worker: Api, conn: Conn, reconcile: Any) -> None:
    run = pull()
    item = lease_one(worker)
    expire(conn, run["id"])
    assert end(worker, item, "heartbeat").status == 200
    assert reconcile() == {}
    expire(conn, run["id"], timed_out=True)
    assert end(worker, item, "heartbeat").code == "lease_over", "the time-out is final"


@pytest.mark.parametrize(
    ("how", "body"),
    [("complete", {"result": 1}), ("fail", {"error": {"message": "x"}, "retryable": False}), ("release", None)],
)
def test_the_time_out_is_final_also_while_no_dispatcher_lives(
    pull: Any, worker: Api, conn: Conn, acme: Any, how: str, body: Any
) -> None:
    run = pull()
    item = lease_one(worker)
    expire(conn, run["id"], timed_out=True)
    for _ in range(2):
        late = end(worker, item, how, body)
        assert (late.code, late.body["attempt_state"], late.body["execution_state"]) == (
            "lease_over", "timed_out", "ready",
        )  # fmt: skip
    [attempt] = attempts_of(conn, acme, UUID(run["id"]))
    assert (attempt["state"], attempt["error"]["class"]) == ("timed_out", "timeout")
    end(worker, lease_one(worker, wait_s=10), "complete")
    assert_exactly_one_outcome(conn, acme, run["run_key"], state="succeeded")


def test_no_worker_row_is_needed_to_live(pull: Any, worker: Api, conn: Conn, reconcile: Any) -> None:
    """C02: however long it takes, one copy; a remote holder has no process of ours."""
    pull(job={"timeout_s": 1000})
    lease_one(worker)
    assert conn.execute("SELECT count(*) FROM tickets_worker").fetchone() == (0,)
    assert reconcile() == {}
    assert lease(worker) == []


def test_cancel_while_waiting(pull: Any, worker: Api, api: Api) -> None:
    run = pull()
    assert api.post(f"executions/{run['id']}/cancel").status == 200
    assert lease(worker) == []


def test_cancel_while_leased_is_told_and_then_enforced(
    pull: Any, worker: Api, api: Api, conn: Conn, acme: Any, reconcile: Any
) -> None:
    run, other = pull(), pull()
    items = {item["execution"]: item for item in lease(worker, max=2, lease_s=900)}
    for one in (run, other):
        assert api.post(f"executions/{one['id']}/cancel").status == 202
        told = end(worker, items[one["id"]], "heartbeat", {"lease_s": 900}).body
        assert told["cancel_requested"] is True
        left = conn.execute(
            "SELECT extract(epoch FROM deadline - clock_timestamp()) FROM tickets_ticket WHERE execution_id = %s",
            [one["id"]],
        ).fetchone()
        assert left is not None
        assert left[0] < 11, "a moment to stop"
    stopped = end(worker, items[run["id"]], "fail", {"error": {"message": "stopped"}})
    assert stopped.body["execution_state"] == "cancelled"
    expire(conn, other["id"])
    reconcile()
    [attempt] = attempts_of(conn, acme, UUID(other["id"]))
    assert (attempt["state"], attempt["error"]["class"]) == ("cancelled", "cancelled")
    for one in (run, other):
        assert_exactly_one_outcome(conn, acme, one["run_key"], state="cancelled")


def test_a_result_that_comes_before_the_cancel_is_heard_of_counts(
    pull: Any, worker: Api, api: Api, conn: Conn, acme: Any
) -> None:
    run = pull()
    item = lease_one(worker)
    api.post(f"executions/{run['id']}/cancel")
    assert end(worker, item, "complete", {"result": 1}).body["execution_state"] == "succeeded"
    assert_exactly_one_outcome(conn, acme, run["run_key"], state="succeeded")


# --- races ---


@pytest.mark.parametrize("number", range(3))
def test_several_ends_at_once_are_one_end(
    pull: Any, worker: Api, conn: Conn, acme: Any, reconcile: Any, number: int
) -> None:
    run = pull(job={"retry": {**RETRY, "max_attempts": 1}})
    item = lease_one(worker)
    expire(conn, run["id"])
    works: list[Callable[[], Any]] = [
        lambda: end(Api(worker.key), item, "complete", {"result": 1}),
        lambda: end(Api(worker.key), item, "complete", {"result": 2}),
        lambda: end(Api(worker.key), item, "fail", {"error": {"message": "x"}, "retryable": False}),
        reconcile,
    ]
    answers = in_parallel(4, lambda at: works[(at + number) % 4]())
    said = [one for one in answers if isinstance(one, Answer)]
    won = [one for one in said if one.status == 200]
    assert len(said) == 3
    assert len(won) <= 1
    assert all(one.code == "lease_over" for one in said if one.status != 200)
    ended = assert_exactly_one_outcome(conn, acme, run["run_key"])
    assert ended["state"] == (won[0].body["execution_state"] if won else "dead")


def test_the_same_end_many_times_at_once_is_answered_alike(pull: Any, worker: Api, conn: Conn, acme: Any) -> None:
    run = pull()
    item = lease_one(worker)
    answers = in_parallel(6, lambda _: end(Api(worker.key), item, "complete", {"result": [1]}))
    assert {one.status for one in answers} == {200}
    assert_exactly_one_outcome(conn, acme, run["run_key"], state="succeeded")


# --- many at once ---


def test_settle_ends_many_and_answers_for_each(pull: Any, worker: Api, conn: Conn, acme: Any) -> None:
    runs = [pull() for _ in range(4)]
    items = lease(worker, max=4)
    tokens = {item["execution"]: item["token"] for item in items}
    one, two, three, four = (tokens[run["id"]] for run in runs)
    body = {
        "items": [
            {"token": one, "result": {"n": 1}},
            {"token": two, "end": "fail", "error": {"message": "x"}, "retryable": False},
            {"token": three, "end": "release"},
            {"token": four, "result": "x" * 70_000},
            {"token": "sbl_nothing"},
            {"token": one, "result": {"n": 1}},
            {"token": one, "result": {"n": 2}},
        ]
    }
    answer = worker.post("queues/leases/settle", body)
    found = [(item["status"], item["code"], item["execution_state"]) for item in answer.body["items"]]
    assert found == [
        (200, None, "succeeded"), (200, None, "dead"), (200, None, "ready"), (400, "invalid", None),
        (404, "not_found", None), (200, None, "succeeded"), (409, "lease_over", "succeeded"),
    ]  # fmt: skip
    assert answer.body["items"][3]["errors"][0]["pointer"] == "/result"
    assert worker.post("queues/leases/settle", {"items": []}).faults == {"/items": "type"}


def test_an_item_that_is_none_costs_no_other_its_answer() -> None:
    from apps.api.leases_read import read_items
    from apps.outcomes.remote import Said
    from kernel.errors import InvalidInput
    from kernel.runtokens import RunToken

    token = RunToken(1, UUID(int=1), 1, 1)
    items = [{"token": "a", "end": "explode"}, 7, {}, {"token": 7}, {"token": "a", "delay_s": 1}, {"token": "a"}]
    read = read_items({"items": items}, lambda text: token)
    assert [isinstance(one, InvalidInput) for one in read] == [True] * 5 + [False]
    assert read[-1] == Said(token, "succeeded")


# --- who may, and when ---


def test_tokens_are_of_one_tenant_and_one_kind(pull: Any, worker: Api, other_api: Api, api: Api, conn: Conn) -> None:
    pull()
    item = lease_one(worker)
    token = item["token"]
    swapped = token[:-1] + ("A" if token[-1] != "A" else "B")
    for caller, text in ((other_api, token), (worker, swapped), (worker, "sbl_" + "A" * 64), (worker, "x")):
        for how in ("heartbeat", "complete", "release"):
            assert caller.post(f"queues/leases/{text}/{how}", {}).status == 404
    as_completion = "sbc_" + token[4:]
    refused = Api(as_completion).post(f"executions/{item['execution']}/complete", {})
    assert (refused.status, refused.code) == (401, "invalid_key")
    assert Api(None).post(f"queues/leases/{token}/complete", {}).status == 401
    assert end(worker, item, "complete").status == 200


def test_what_is_leased_of_a_suspended_tenant_may_be_ended(make: Any, worker: Api, conn: Conn) -> None:
    job = make.job(kind="pull", target={}, queue="invoices")
    ids = [make.execution(job=job["id"])["id"] for _ in range(3)]
    items = [lease_one(worker) for _ in range(2)]
    conn.execute("UPDATE tenants_tenant SET status = 'suspended' WHERE slug = 'acme'")
    assert worker.post("queues/invoices/lease", {}).code == "tenant_not_active"
    assert end(worker, items[0], "heartbeat").status == 200
    assert [end(worker, one, how).status for one, how in zip(items, ("complete", "release"), strict=True)] == [200, 200]
    states = dict(conn.execute("SELECT execution_id::text, state FROM tickets_ticket").fetchall())
    assert states == dict.fromkeys(ids[1:], "ready")
