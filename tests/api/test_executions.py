"""/executions and /attempts: submitting, reading history with live state, cancelling, running again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest
from django.http import QueryDict

from kernel import keyset
from tests.api.makers import NOWHERE, Makers, audit, begin, due, instant, kill, queue, settle, ticket, utc_now
from tests.fixtures_api import Api

if TYPE_CHECKING:
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]


def test_a_run_at_once(api: Api, make: Makers, conn: Conn) -> None:
    job = make.job(priority=3, timeout_s=9)
    submitted = api.post("executions", {"job": job["id"], "payload": {"x": 1}, "priority": 8, "labels": {"a": "b"}})
    run = submitted.body
    assert (submitted.status, submitted.headers["Location"]) == (202, f"/api/v1/executions/{run['id']}")
    wanted: dict[str, Any] = {
        "job": job["id"], "job_version": 1, "schedule": None, "state": "ready", "trigger": "api", "priority": 8,
        "nominal_at": None, "attempt_count": 0, "started_at": None, "finished_at": None, "result": None, "error": None,
        "replay_of": None, "labels": {"a": "b"}, "payload": {"x": 1}, "cancel_requested": False, "count": 1,
        "fired_by": "key:admin key (admin)",
    }  # fmt: skip
    assert {name: run[name] for name in wanted} == wanted
    made = ticket(conn, run["id"])
    assert made
    assert (made["state"], made["payload_from"], made["priority"], made["timeout_s"]) == ("ready", "execution", 8, 9)
    assert (made["pool"], made["queue"], made["run_key"]) == ("http", "http.own.acme", run["run_key"])
    assert made["rank"] == made["available_at"] - timedelta(minutes=8)
    read = api.get(f"executions/{run['id']}").body
    assert {**read, "as_of": None} == {**run, "as_of": None}
    assert audit(conn, run["id"]) == ["execution.submit"]


def test_a_run_without_a_payload_takes_the_jobs(api: Api, make: Makers, conn: Conn) -> None:
    run = make.execution(job=make.job(payload={"of": "job"}, priority=2)["id"])
    made = ticket(conn, run["id"])
    assert made and (made["payload_from"], made["priority"], run["payload"]) == ("job", 2, None)


@pytest.mark.parametrize("how", ["run_at", "delay_s"])
def test_a_run_for_later_waits_in_the_due_index(
    api: Api, make: Makers, conn: Conn, fire: Any, how: str, registry: Registry
) -> None:
    at = utc_now() + timedelta(hours=1)
    when = {"run_at": at.isoformat()} if how == "run_at" else {"delay_s": 3600}
    run = make.execution(**when, payload=[1])
    assert run["state"] == "scheduled"
    assert abs(instant(run["available_at"]) - at) < timedelta(seconds=5)
    entry = due(conn, run["id"])
    assert entry and (entry["kind"], entry["spec"], entry["own_payload"]) == ("execution", run["run_key"], True)
    assert ticket(conn, run["id"]) is None
    assert [one["id"] for one in api.get("executions?state=scheduled").body["items"]] == [run["id"]]
    fire(entry["due_at"])
    begun = api.get(f"executions/{run['id']}").body
    assert (begun["state"], begun["run_key"]) == ("ready", run["run_key"])
    assert api.get("executions?state=scheduled").body["items"] == []
    settle(conn, registry, begin(conn, run["id"]))
    assert api.get(f"executions/{run['id']}").body["state"] == "succeeded"


BAD = [
    ({"job": None}, "/job", "required"),
    ({"job": "me"}, "/job", "type"),
    ({"job": NOWHERE}, "/job", "not_found"),
    ({"run_at": "soon"}, "/run_at", "format"),
    ({"run_at": 5}, "/run_at", "type"),
    ({"run_at": "2020-01-01T00:00:00Z"}, "/run_at", "past"),
    ({"run_at": "2400-01-01T00:00:00Z"}, "/run_at", "range"),
    ({"delay_s": -1}, "/delay_s", "range"),
    ({"delay_s": 10**15}, "/delay_s", "range"),
    ({"delay_s": 1, "run_at": "2400-01-01T00:00:00Z"}, "/delay_s", "contradiction"),
    ({"priority": 11}, "/priority", "range"),
    ({"labels": {"a": None}}, "/labels/a", "type"),
    ({"depends_on": [NOWHERE]}, "/depends_on/0", "not_found"),
    ({"depends_on": NOWHERE}, "/depends_on", "type"),
    ({"depends_on": [5]}, "/depends_on/0", "type"),
    ({"depends_on": [{"execution": NOWHERE, "when": "succeeded"}]}, "/depends_on/0/when", "unknown_field"),
    ({"depends_on": [{"execution": NOWHERE, "on": "dead"}]}, "/depends_on/0/on", "choice"),
    ({"depends_on": [NOWHERE, NOWHERE]}, "/depends_on/1", "duplicate"),
    ({"depends_on": [NOWHERE] * 101}, "/depends_on", "too_many"),
    ({"depends_on": [NOWHERE], "condition": "well"}, "/condition", "choice"),
    ({"condition": "failed"}, "/condition", "contradiction"),
    ({"payload": "x" * 262_144}, "/payload", "too_large"),
    ({"schedule": NOWHERE}, "/schedule", "unknown_field"),
]


@pytest.mark.parametrize(("change", "pointer", "code"), BAD, ids=lambda value: str(value)[:40])
def test_bad_submissions_are_refused_with_their_place(
    api: Api, make: Makers, conn: Conn, change: dict[str, Any], pointer: str, code: str
) -> None:
    refused = api.post("executions", {"job": make.job()["id"], **change})
    assert (refused.status, refused.code) == (400, "invalid")
    assert refused.faults == {pointer: code}
    for table in ("t_acme.executions_execution", "tickets_ticket", "due_dueentry"):
        assert conn.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_a_run_time_just_past_runs_at_once(make: Makers) -> None:
    assert make.execution(run_at=(utc_now() - timedelta(seconds=30)).isoformat())["state"] == "ready"


def test_the_state_of_a_living_run_is_its_tickets(api: Api, make: Makers, conn: Conn, registry: Registry) -> None:
    run = make.execution(job=make.job(retry={"max_attempts": 2, "backoff": "fixed", "base_s": 60})["id"])
    path = f"executions/{run['id']}"
    queue_number = queue(conn, run["id"])
    assert api.get(path).body["state"] == "queued"
    from apps.tickets import holding

    (started,) = holding.start(conn, [UUID(run["id"])], release=queue_number, worker=UUID(int=7), limit=1)
    running = api.get(path).body
    assert (running["state"], running["attempt_count"]) == ("running", 1)
    assert running["started_at"] and running["queued_at"]
    (attempt,) = api.get(f"{path}/attempts").body["items"]
    assert (attempt["number"], attempt["state"], attempt["finished_at"]) == (1, "running", None)
    assert attempt["worker"] == str(UUID(int=7))

    settle(conn, registry, started, "failed", error={"class": "connection", "message": "no"})
    waiting = api.get(path).body
    assert (waiting["state"], waiting["attempt_count"]) == ("ready", 1)
    assert instant(waiting["available_at"]) > utc_now()
    (attempt,) = api.get(f"{path}/attempts").body["items"]
    assert (attempt["state"], attempt["error"]["class"]) == ("failed", "connection")
    assert attempt["retry_at"] == waiting["available_at"]

    conn.execute("UPDATE tickets_ticket SET rank = now()")
    settle(conn, registry, begin(conn, run["id"]), "succeeded", result='{"answer": 42}')
    done = api.get(path).body
    assert (done["state"], done["attempt_count"], done["result"]) == ("succeeded", 2, {"answer": 42})
    assert done["finished_at"] and done["available_at"] is None
    attempts = api.get(f"{path}/attempts").body["items"]
    assert [(one["number"], one["state"]) for one in attempts] == [(2, "succeeded"), (1, "failed")]
    assert {one["execution"] for one in attempts} == {run["id"]}


def test_lists_filter_by_live_and_final_states(api: Api, make: Makers, conn: Conn, registry: Registry) -> None:
    job = make.job()["id"]
    runs = {state: make.execution(job=job)["id"] for state in ("ready", "queued", "running", "succeeded", "dead")}
    queue(conn, runs["queued"])
    begin(conn, runs["running"])
    settle(conn, registry, begin(conn, runs["succeeded"]))
    kill(conn, registry, runs["dead"])
    for state, id in runs.items():
        assert [one["id"] for one in api.get(f"executions?state={state}").body["items"]] == [id], state
    both = api.get("executions?state=running,dead").body["items"]
    assert [one["id"] for one in both] == [runs["dead"], runs["running"]]
    live = api.get("executions?state=ready,queued,running").body["items"]
    assert {one["id"] for one in live} == {runs["ready"], runs["queued"], runs["running"]}
    assert len(api.get("executions").body["items"]) == 5


def test_lists_filter_by_everything_else(api: Api, make: Makers) -> None:
    job, other = make.job()["id"], make.job()["id"]
    schedule = make.schedule(job=job)["id"]
    mine = make.execution(job=job, labels={"team": "a", "x": "1"})
    theirs = make.execution(job=other, labels={"team": "b"})
    manual = api.post(f"schedules/{schedule}/trigger").body

    def ids(query: str) -> list[str]:
        return [one["id"] for one in api.get(f"executions?{query}").body["items"]]

    assert ids(f"job={job}") == [manual["id"], mine["id"]]
    assert ids(f"schedule={schedule}") == [manual["id"]]
    assert ids(f"schedule={NOWHERE}") == []
    assert ids("trigger=manual") == [manual["id"]]
    assert ids("trigger=manual,api") == [manual["id"], theirs["id"], mine["id"]]
    assert ids("label=team:a") == [mine["id"]]
    assert ids("label=team:a&label=x:2") == []
    assert ids(f"run_key={mine['run_key']}") == [mine["id"]]
    assert ids(f"created_after={theirs['created_at']}") == [manual["id"]]
    assert ids(f"created_before={theirs['created_at']}") == [mine["id"]]
    assert ids(f"replay_of={mine['id']}") == []


def test_a_schedule_that_moved_to_another_job_keeps_its_history(api: Api, make: Makers) -> None:
    schedule = make.schedule()
    first = api.post(f"schedules/{schedule['id']}/trigger").body["id"]
    api.patch(f"schedules/{schedule['id']}", {"job": make.job()["id"]}, If_Match="*")
    second = api.post(f"schedules/{schedule['id']}/trigger").body["id"]
    api.delete(f"schedules/{schedule['id']}", If_Match="*")
    listed = api.get(f"executions?schedule={schedule['id']}").body["items"]
    assert [one["id"] for one in listed] == [second, first]


def test_cancel_a_waiting_run(api: Api, make: Makers, conn: Conn, registry: Registry) -> None:
    run = make.execution()
    cancelled = api.post(f"executions/{run['id']}/cancel")
    assert (cancelled.status, cancelled.body["state"], cancelled.body["reason"]) == (200, "cancelled", "cancelled")
    assert cancelled.body["finished_at"]
    assert ticket(conn, run["id"]) is None
    again = api.post(f"executions/{run['id']}/cancel", {})
    assert (again.status, again.body["state"]) == (200, "cancelled")
    assert audit(conn, run["id"]) == ["execution.submit", "execution.cancel"]


def test_cancel_a_queued_run_whose_message_comes_later(api: Api, make: Makers, conn: Conn) -> None:
    from apps.tickets import holding

    run = make.execution()
    number = queue(conn, run["id"])
    assert api.post(f"executions/{run['id']}/cancel").body["state"] == "cancelled"
    assert holding.start(conn, [UUID(run["id"])], release=number, worker=UUID(int=1), limit=1) == []


@pytest.mark.parametrize(("outcome", "state"), [("cancelled", "cancelled"), ("succeeded", "succeeded")])
def test_cancel_a_running_run(api: Api, make: Makers, conn: Conn, registry: Registry, outcome: str, state: str) -> None:
    run = make.execution()
    started = begin(conn, run["id"])
    asked = api.post(f"executions/{run['id']}/cancel")
    assert (asked.status, asked.body["state"], asked.body["cancel_requested"]) == (202, "running", True)
    assert api.post(f"executions/{run['id']}/cancel").status == 202
    settle(conn, registry, started, outcome)
    assert api.get(f"executions/{run['id']}").body["state"] == state


def test_cancel_a_delayed_run(api: Api, make: Makers, conn: Conn, fire: Any) -> None:
    run = make.execution(delay_s=60)
    assert api.post(f"executions/{run['id']}/cancel").body["state"] == "cancelled"
    assert due(conn, run["id"]) is None
    fire(utc_now() + timedelta(hours=1))
    assert ticket(conn, run["id"]) is None


def test_cancel_a_finished_run(api: Api, make: Makers, conn: Conn, registry: Registry) -> None:
    run = make.execution()
    settle(conn, registry, begin(conn, run["id"]))
    refused = api.post(f"executions/{run['id']}/cancel")
    assert (refused.status, refused.code) == (409, "already_finished")


def test_rerun_makes_a_new_run_of_the_job_as_it_is_now(api: Api, make: Makers, conn: Conn, registry: Registry) -> None:
    job = make.job()
    run = make.execution(job=job["id"], payload={"x": 1}, labels={"a": "b"})
    refused = api.post(f"executions/{run['id']}/rerun")
    assert (refused.status, refused.code) == (409, "not_finished")
    settle(conn, registry, begin(conn, run["id"]))
    api.patch(f"jobs/{job['id']}", {"timeout_s": 3}, If_Match="*")
    again = api.post(f"executions/{run['id']}/rerun")
    assert again.status == 202
    new = again.body
    assert (new["replay_of"], new["trigger"], new["job_version"]) == (run["id"], "replay", 2)
    assert (new["payload"], new["labels"]) == ({"x": 1}, {"a": "b"})
    assert new["run_key"] != run["run_key"]
    made = ticket(conn, new["id"])
    assert made and (made["payload_from"], made["timeout_s"]) == ("execution", 3)
    assert api.get(f"executions?replay_of={run['id']}").body["items"][0]["id"] == new["id"]
    other = api.post(f"executions/{run['id']}/rerun", {"payload": {"x": 2}}, Idempotency_Key="k").body
    assert (other["payload"], other["labels"], other["replay_of"]) == ({"x": 2}, {"a": "b"}, run["id"])
    twice = api.post(f"executions/{run['id']}/rerun", {"payload": {"x": 3}}, Idempotency_Key="k")
    assert twice.code == "idempotency_key_reused", "the payload is a part of the request"
    of_job = api.post(f"executions/{run['id']}/rerun", {"payload": None}).body
    assert of_job["payload"] is None
    sources = [made["payload_from"] for one in (other, of_job) if (made := ticket(conn, one["id"]))]
    assert sources == ["execution", "job"]
    told = "SELECT after FROM audit_auditevent WHERE object_id = %s AND action = 'execution.rerun' ORDER BY id"
    assert [row[0].get("new_payload") for row in conn.execute(told, [run["id"]])] == [None, True, True]


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({"payload": "x" * 262_144}, {"/payload": "too_large"}),
        ({"payload": "\u0000"}, {"/payload": "invalid_character"}),
        ({"payloads": 1}, {"/payloads": "unknown_field"}),
        ([], {"": "not_an_object"}),
    ],
)
def test_what_a_rerun_can_not_be_given(
    api: Api, make: Makers, conn: Conn, registry: Registry, body: Any, faults: dict[str, str]
) -> None:
    run = make.execution()["id"]
    kill(conn, registry, run)
    assert api.post(f"executions/{run}/rerun", body).faults == faults


def test_rerun_of_a_schedules_run_keeps_its_payload_and_instant(
    api: Api, make: Makers, conn: Conn, registry: Registry, fire: Any
) -> None:
    schedule = make.schedule(payload={"of": "schedule"})
    fire(instant(schedule["next_at"]))
    (run,) = api.get(f"executions?schedule={schedule['id']}").body["items"]
    settle(conn, registry, begin(conn, run["id"]))
    new = api.post(f"executions/{run['id']}/rerun").body
    assert (new["schedule"], new["nominal_at"], new["payload"]) == (schedule["id"], run["nominal_at"], None)
    made = ticket(conn, new["id"])
    assert made and made["payload_from"] == "schedule"


def test_rerun_of_a_deleted_job(api: Api, make: Makers, conn: Conn, registry: Registry) -> None:
    job = make.job()
    run = make.execution(job=job["id"])
    settle(conn, registry, begin(conn, run["id"]))
    api.delete(f"jobs/{job['id']}", If_Match="*")
    assert api.post(f"executions/{run['id']}/rerun").status == 404
    assert api.get(f"executions/{run['id']}").status == 200, "its history stays"


def test_all_attempts_with_the_running_ones(
    api: Api, make: Makers, conn: Conn, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.api.lists import ListQuery

    schedule = make.schedule()
    runs = [make.execution()["id"] for _ in range(3)] + [api.post(f"schedules/{schedule['id']}/trigger", {}).body["id"]]
    for run in runs[:2]:
        settle(conn, registry, begin(conn, run))
    for run in runs[2:]:
        begin(conn, run)
    listed = api.get("attempts").body["items"]
    assert {one["execution"] for one in listed} == set(runs)
    assert [one["id"] for one in listed] == sorted((one["id"] for one in listed), reverse=True)
    assert {one["execution"] for one in api.get("attempts?state=running").body["items"]} == set(runs[2:])
    assert {one["execution"] for one in api.get("attempts?state=succeeded").body["items"]} == set(runs[:2])
    seen, path = [], "attempts?page_size=1"
    while path:
        page = api.get(path).body
        seen += [one["id"] for one in page["items"]]
        path = f"attempts?page_size=1&cursor={page['next_cursor']}" if page["next_cursor"] else ""
    assert seen == [one["id"] for one in listed]

    def of(query: str) -> list[str]:
        """The executions of these attempts, from all pages."""
        found, path = [], f"attempts?{query}"
        while path:
            page = api.get(path).body
            found += [one["execution"] for one in page["items"]]
            path = f"attempts?{query}&cursor={page['next_cursor']}" if page["next_cursor"] else ""
        return found

    made_up = ListQuery(QueryDict(), (), path="/api/v1/attempts").cursor_of(UUID(int=2**128 - 1))
    assert api.get(f"attempts?cursor={made_up}").body["items"] == listed, "all are before the last id that there can be"
    again = api.post(f"executions/{runs[0]}/rerun").body
    settle(conn, registry, begin(conn, again["id"]), "failed", error={"class": "connection"}, retryable=False)
    for look_rows in (20_000, 4):
        monkeypatch.setattr(keyset, "LOOK_ROWS", look_rows)  # then a page ends after one row
        assert [of(f"execution={run}") for run in runs] == [[run] for run in runs], "ended and running"
        assert of(f"execution={runs[0]}&state=failed") == of(f"execution={NOWHERE}") == []
        assert of("execution=ffffffff-ffff-ffff-ffff-ffffffffffff") == [], "the last id that there can be"
        assert of(f"execution={again['id']}&state=failed,succeeded") == [again["id"]]
        assert of(f"job={again['job']}") == [again["id"], runs[0]]
        for failed in ("error_class=connection", "state=failed"):
            assert of(f"job={again['job']}&{failed}") == [again["id"]]
        assert of(f"schedule={schedule['id']}") == of(f"job={schedule['job']}") == [runs[3]]
        assert of(f"schedule={NOWHERE}") == of(f"schedule={schedule['id']}&job={again['job']}") == []


def test_many_attempts_in_pages(api: Api, make: Makers, conn: Conn, registry: Registry) -> None:
    retry = {"max_attempts": 100, "base_s": 0, "backoff": "fixed"}
    run = make.execution(job=make.job(retry=retry)["id"])["id"]
    for _ in range(7):
        conn.execute("UPDATE tickets_ticket SET rank = now() WHERE state = 'ready'")
        settle(conn, registry, begin(conn, run), "failed", error={"class": "connection"})
    conn.execute("UPDATE tickets_ticket SET rank = now() WHERE state = 'ready'")
    begin(conn, run)
    seen, path = [], f"executions/{run}/attempts?page_size=3"
    while path:
        page = api.get(path).body
        seen += [one["number"] for one in page["items"]]
        cursor = page["next_cursor"]
        path = f"executions/{run}/attempts?page_size=3&cursor={cursor}" if cursor else ""
    assert seen == [8, 7, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("action", ["", "cancel", "rerun", "attempts"])
def test_an_execution_that_does_not_exist(api: Api, action: str) -> None:
    posts = action in ("cancel", "rerun")
    path = f"executions/{NOWHERE}/{action}".rstrip("/")
    answer = api.post(path) if posts else api.get(path)
    assert (answer.status, answer.code) == (404, "not_found")
