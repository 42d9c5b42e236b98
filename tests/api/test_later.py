"""Runs whose receiver answered 202: alive under their lease, ended over the API with the token of their attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.api.makers import TARGET, Makers, begin, instant, settle, ticket
from tests.api.pulling import expire
from tests.fixtures_api import Answer, Api, in_parallel
from tests.fixtures_flow import assert_exactly_one_outcome, attempts_of

Conn = psycopg.Connection[Any]
JOB = {"target": {**TARGET, "completion": "callback"}, "timeout_s": 3600, "retry": {"max_attempts": 2, "base_s": 0}}


@dataclass
class Later:
    """A run that one of our workers has begun, and the token that its receiver was sent."""

    run: dict[str, Any]
    started: Any
    token: str
    accept: Callable[[], None]

    @property
    def id(self) -> str:
        return str(self.run["id"])

    def say(self, how: str = "complete", body: Any = None, *, token: str | None = None) -> Answer:
        return Api(token or self.token).post(f"executions/{self.id}/{how}", {} if body is None else body)


@pytest.fixture
def later(make: Makers, conn: Conn, registry: Any) -> Callable[..., Later]:
    """Begins a run; `accept()` is the 202 of its receiver, settled by its worker."""
    from tenants.runtokens import runtoken_make

    def start(**members: Any) -> Later:
        run = make.execution(job=make.job(**{**JOB, **members})["id"])
        one = begin(conn, run["id"])
        token = runtoken_make(
            "completion", tenant_id=one.tenant_id, execution_id=one.execution_id, attempt=one.attempt, fence=one.fence
        )
        assert token is not None
        return Later(run, one, token, lambda: settle(conn, registry, one, "accepted"))

    return start


@pytest.fixture
def reconcile(conn: Conn, registry: Any) -> Callable[[], dict[str, int]]:
    from apps.dispatch.reconcile import end_lost
    from apps.schedules.definitions import Definitions

    return lambda: end_lost(conn, registry, Definitions()).counts


def test_the_run_stays_alive_without_a_worker_and_is_ended_with_its_token(
    later: Any, conn: Conn, acme: Any, reconcile: Any, api: Api
) -> None:
    one = later()
    one.accept()
    held = ticket(conn, one.id)
    assert held is not None
    assert (held["state"], held["remote"], held["worker_id"], held["holder"]) == ("running", True, None, "127.0.0.1")
    assert held["lease_s"] == 900
    assert reconcile() == {}, "no worker lives, and none is needed"
    done = one.say(body={"result": {"pages": 3}})
    assert (done.status, done.body["execution_state"]) == (200, "succeeded")
    assert one.say(body={"result": {"pages": 3}}).body == done.body, "said again"
    assert one.say(body={"result": {"pages": 4}}).code == "lease_over"
    assert one.say("heartbeat").code == "lease_over"
    assert api.get(f"executions/{one.id}").body["result"] == {"pages": 3}
    assert_exactly_one_outcome(conn, acme, one.run["run_key"], state="succeeded")


def test_concurrency_still_counts_it(later: Any, make: Makers, conn: Conn) -> None:
    from apps.dispatch.capacity import capacity_of
    from apps.tickets import waiting
    from apps.tickets.values import LiveWorker

    one = later(max_concurrency=1)
    one.accept()
    assert [(row.queue, row.tickets) for row in waiting.taken(conn, "http")] == [("", 1)]
    room = capacity_of([LiveWorker(UUID(int=1), 10, ["http.own.acme"])], waiting.taken(conn, "http"), prefetch=2)
    assert (room.free, room.by_queue) == (20, {"http.own.acme": 20}), "no slot is taken"
    assert list(room.by_job.values()) == [1]


def test_an_error_follows_the_retry_policy(later: Any, conn: Conn, acme: Any) -> None:
    one = later()
    one.accept()
    failed = one.say(body={"error": {"message": "no paper", "class": "PaperJam"}, "retry_after_s": 60})
    assert failed.body["execution_state"] == "ready"
    assert instant(failed.body["retry_at"]) > instant(one.run["created_at"]) + timedelta(seconds=59)
    [attempt] = attempts_of(conn, acme, UUID(one.id))
    assert (attempt["state"], attempt["error"]) == ("failed", {"class": "PaperJam", "message": "no paper"})
    assert one.say().code == "lease_over", "the token was for that attempt"


def test_heartbeats_carry_it_on_up_to_the_time_out(later: Any, conn: Conn, acme: Any, reconcile: Any) -> None:
    one = later(timeout_s=1200)
    one.accept()
    alive = one.say("heartbeat", {"lease_s": 100, "progress": {"page": 2}}).body
    assert instant(alive["lease_until"]) < instant(alive["deadline"])
    assert one.say("heartbeat", {"lease_s": 900}).body["deadline"] == alive["deadline"]
    expire(conn, one.id, timed_out=True)
    assert one.say("heartbeat").code == "lease_over"
    reconcile()
    [attempt] = attempts_of(conn, acme, UUID(one.id))
    assert attempt["state"] == "timed_out"


def test_a_lease_that_runs_out_is_a_lost_attempt(later: Any, conn: Conn, acme: Any, reconcile: Any) -> None:
    one = later()
    one.accept()
    expire(conn, one.id)
    assert reconcile()["lost"] == 1
    [attempt] = attempts_of(conn, acme, UUID(one.id))
    assert (attempt["state"], attempt["error"]["class"]) == ("lost", "lease_expired")
    assert one.say(body={"result": 1}).code == "lease_over"


@pytest.mark.parametrize("outcome", ["accepted", "succeeded", "failed"])
def test_a_completion_that_comes_before_the_answer_was_settled(
    later: Any, conn: Conn, registry: Any, acme: Any, outcome: str
) -> None:
    one = later()
    assert one.say("heartbeat").status == 200, "a worker of ours holds it: nothing to extend"
    done = one.say(body={"result": "early"})
    assert done.body["execution_state"] == "succeeded"
    settle(conn, registry, one.started, outcome)
    ended = assert_exactly_one_outcome(conn, acme, one.run["run_key"], state="succeeded")
    assert ended["result"] == "early"
    assert one.say(body={"result": "early"}).body == done.body


def test_a_cancel_gives_the_receiver_a_moment(later: Any, api: Api, conn: Conn, acme: Any, reconcile: Any) -> None:
    asked_before, asked_after, finished = later(), later(), later()
    api.post(f"executions/{asked_before.id}/cancel")
    for one in (asked_before, asked_after, finished):
        one.accept()
    api.post(f"executions/{asked_after.id}/cancel")
    api.post(f"executions/{finished.id}/cancel")
    for one in (asked_before, asked_after):
        assert one.say("heartbeat", {"lease_s": 900}).body["cancel_requested"] is True
        held = ticket(conn, one.id)
        assert held is not None
        row = conn.execute("SELECT clock_timestamp()").fetchone()
        assert row is not None
        assert held["deadline"] - row[0] < timedelta(seconds=11)
        expire(conn, one.id)
    assert finished.say(body={"result": 1}).body["execution_state"] == "succeeded", "it came in first"
    reconcile()
    for one, state in ((asked_before, "cancelled"), (asked_after, "cancelled"), (finished, "succeeded")):
        assert_exactly_one_outcome(conn, acme, one.run["run_key"], state=state)


@pytest.mark.parametrize("number", range(4))
def test_races_have_one_outcome(
    later: Any, api: Api, conn: Conn, second: Conn, registry: Any, acme: Any, number: int
) -> None:
    """Completion against the 202 itself, against the time-out, and against a cancel."""
    from apps.dispatch.reconcile import end_lost
    from apps.schedules.definitions import Definitions

    one = later(retry={"max_attempts": 1})
    if number % 2:
        one.accept()
        expire(conn, one.id, timed_out=True)
    works: list[Callable[[], Any]] = [
        lambda: one.say(body={"result": 1}),
        (lambda: end_lost(second, registry, Definitions())) if number % 2 else lambda: one.accept(),
        lambda: Api(api.key).post(f"executions/{one.id}/cancel"),
        lambda: one.say(body={"error": {"message": "x"}}),
    ]
    answers = in_parallel(4, lambda at: works[(at + number) % 4]())
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    won = [works_answer for works_answer in answers if isinstance(works_answer, Answer) and works_answer.status == 200]
    ended = assert_exactly_one_outcome(conn, acme, one.run["run_key"])
    states = {answer.body["execution_state"] for answer in won if "execution_state" in answer.body}
    assert states <= {ended["state"]}
    assert len([answer for answer in won if "execution_state" in answer.body]) <= 1


def test_who_may_end_a_run(later: Any, api: Api, other_api: Api, acme_people: Any, globex_people: Any) -> None:
    one, other = later(), later()
    for each in (one, other):
        each.accept()
    path = f"executions/{one.id}/complete"
    assert Api(None).post(path, {}).status == 401
    near = one.token[:-1] + ("A" if one.token[-1] != "A" else "B")
    assert one.say(token=near).code == "invalid_key"
    assert one.say(token=other.token).status == 404, "of another run"
    assert one.say(token="sbl_" + one.token[4:]).code == "invalid_key"
    assert Api(one.token, host=globex_people.host).post(path, {}).code == "invalid_key"
    for method, elsewhere in (
        ("GET", "jobs"),
        ("GET", f"executions/{one.id}"),
        ("POST", f"executions/{one.id}/cancel"),
    ):
        refused = Api(one.token).call(method, elsewhere)
        assert (refused.status, refused.code) == (403, "role_too_low"), elsewhere
    assert other_api.post(path, {"token": one.token}).status == 404
    assert api.post(path, {}).faults == {"/token": "required"}
    assert Api(acme_people.editor).post(path, {"token": one.token}).code == "role_too_low"
    assert api.post(f"executions/{uuid4()}/complete", {"token": one.token}).status == 404
    assert Api(acme_people.operator).post(path, {"token": one.token, "result": 1}).status == 200
    assert Api(other.token, host="acme.localhost").post(f"executions/{other.id}/complete", {}).status == 200


def test_a_key_before_the_present_one_still_reads_tokens(later: Any, settings: Any) -> None:
    one = later()
    one.accept()
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another", [settings.SECRET_KEY]
    assert one.say().status == 200


@pytest.mark.parametrize(
    ("members", "faults"),
    [
        ({"target": {**TARGET, "completion": "pigeon"}}, {"/target/completion": "choice"}),
        ({"target": TARGET, "timeout_s": 901}, {"/timeout_s": "range"}),
        ({"target": {**TARGET, "completion": "response"}, "timeout_s": 901}, {"/timeout_s": "range"}),
        ({"target": {**TARGET, "completion": "callback"}, "timeout_s": 28_801}, {"/timeout_s": "range"}),
    ],
)
def test_faults_of_jobs(api: Api, members: dict[str, Any], faults: dict[str, str]) -> None:
    assert api.post("jobs", {"name": "a", "kind": "http", **members}).faults == faults


def test_what_runs_of_a_suspended_tenant_may_be_ended(later: Any, conn: Conn, acme: Any, api: Api) -> None:
    """Else it would be lost, or run twice; nothing else is served, and nothing of a tenant that is being deleted."""
    one = later()
    one.accept()
    conn.execute("UPDATE tenants_tenant SET status = 'suspended' WHERE slug = 'acme'")
    assert one.say("heartbeat").status == 200
    assert api.get(f"executions/{one.id}").code == "tenant_not_active"
    conn.execute("UPDATE tenants_tenant SET status = 'deleting', delete_after = now() WHERE slug = 'acme'")
    assert one.say().code == "tenant_not_active"
    conn.execute("UPDATE tenants_tenant SET status = 'suspended', delete_after = NULL WHERE slug = 'acme'")
    assert one.say().status == 200
    assert_exactly_one_outcome(conn, acme, one.run["run_key"], state="succeeded")
