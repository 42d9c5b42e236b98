"""PUT by external id: made or changed, the same however often and from however many sides it is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.api.makers import JOB, MINUTELY, Makers, audit, due
from tests.fixtures_api import Answer, Api, in_parallel
from tests.fixtures_people import People

Conn = psycopg.Connection[Any]
JOBS = "jobs/by-external-id/{}"
SCHEDULES = "schedules/by-external-id/{}"


def test_made_changed_and_the_same(api: Api, conn: Conn) -> None:
    made = api.put(JOBS.format("billing"), JOB)
    assert (made.status, made.body["external_id"], made.body["version"]) == (201, "billing", 1)
    assert made.headers["Location"] == f"/api/v1/jobs/{made.body['id']}"
    changed = api.put(JOBS.format("billing"), {**JOB, "timeout_s": 7})
    assert (changed.status, changed.body["id"], changed.body["version"]) == (200, made.body["id"], 2)
    same = api.put(JOBS.format("billing"), {**JOB, "timeout_s": 7, "external_id": "billing"})
    assert (same.status, same.body, same.etag) == (200, changed.body, changed.etag)
    assert "Location" not in same.headers
    read = api.get(JOBS.format("billing"))
    assert (read.status, read.body) == (200, same.body)
    assert read.etag.startswith(f"{same.etag[:-1]}-"), "a read's tag goes on with a digest"
    assert audit(conn, made.body["id"]) == ["job.create", "job.update"]


def test_a_schedule_is_due_and_stays_due(api: Api, make: Makers, conn: Conn) -> None:
    body = {"name": "nightly", "job": make.job()["id"], "trigger": {"every_s": 3600}}
    made = api.put(SCHEDULES.format("n-1"), body)
    assert made.status == 201
    first = due(conn, made.body["id"])
    assert first and made.body["next_at"]
    assert api.put(SCHEDULES.format("n-1"), body).status == 200
    assert due(conn, made.body["id"]) == first, "its phase stays"
    changed = api.put(SCHEDULES.format("n-1"), {**body, "trigger": MINUTELY})
    assert (changed.status, changed.body["version"]) == (200, 2)
    assert api.get(SCHEDULES.format("n-1")).body == changed.body


def test_an_answer_may_be_changed_and_sent_back(api: Api) -> None:
    made = api.put(JOBS.format("x"), JOB)
    sent = api.put(JOBS.format("x"), {**made.body, "priority": 9})
    assert (sent.status, sent.body["priority"]) == (200, 9)


def test_preconditions(api: Api) -> None:
    path = JOBS.format("x")
    assert api.put(path, JOB, If_Match="*").code == "stale", "it is not there"
    made = api.put(path, JOB, If_None_Match="*")
    assert made.status == 201
    assert api.put(path, JOB, If_None_Match="*").status == 412, "it is there"
    assert api.put(path, {**JOB, "priority": 1}, If_Match=made.etag).status == 200
    assert api.put(path, {**JOB, "priority": 2}, If_Match=made.etag).status == 412
    assert api.put(path, {**JOB, "priority": 2}, If_Match="*").status == 200
    assert api.get(path).body["priority"] == 2


def test_a_deleted_one_is_made_anew(api: Api) -> None:
    first = api.put(JOBS.format("x"), JOB).body["id"]
    assert api.delete(f"jobs/{first}", If_Match="*").status == 204
    assert api.get(JOBS.format("x")).status == 404
    second = api.put(JOBS.format("x"), JOB)
    assert second.status == 201
    assert second.body["id"] != first


def test_a_name_of_another_one_is_refused(api: Api, make: Makers) -> None:
    other = make.job()
    assert api.put(JOBS.format("x"), {**JOB, "name": other["name"]}).code == "name_taken"
    assert api.get(JOBS.format("x")).status == 404


def test_faults(api: Api) -> None:
    assert api.put(JOBS.format("x"), {**JOB, "external_id": "y"}).faults == {"/external_id": "contradiction"}
    assert api.put(JOBS.format("x"), {"kind": "http"}).faults == {"/name": "required", "/target": "required"}
    assert api.put(JOBS.format("x"), []).faults[""] == "not_an_object"
    assert api.put(JOBS.format("%20x"), JOB).faults == {"/external_id": "type"}
    assert api.put(JOBS.format("a" * 201), JOB).faults == {"/external_id": "too_long"}
    assert api.put(JOBS.format("a%00b"), JOB).status == 400
    assert api.put(JOBS.format("a%0Ab"), JOB).status == 404, "no path has a line end"
    assert (api.get(JOBS.format("a%00b")).status, api.get(JOBS.format("a%0Ab")).status) == (404, 404)


@pytest.mark.parametrize("text", ["a/b", "a%2Fb", "https:%2F%2Fexample.com%2F1", "é", "a b"])
def test_what_an_external_id_may_hold(api: Api, text: str) -> None:
    assert api.put(JOBS.format(text), JOB).status == 201
    assert api.get(JOBS.format(text)).status == 200
    assert api.put(JOBS.format(text), JOB).status == 200


def test_it_may_be_tried_out(api: Api) -> None:
    would = api.put(JOBS.format("x") + "?validate_only=true", JOB)
    assert (would.status, would.body["external_id"]) == (200, "x")
    assert api.get(JOBS.format("x")).status == 404


@pytest.mark.parametrize("kind", ["jobs", "schedules"])
def test_twenty_at_once_make_one(acme_people: People, make: Makers, conn: Conn, kind: str) -> None:
    job = make.job(external_id="other")["id"]
    body = JOB if kind == "jobs" else {"name": "s", "job": job, "trigger": MINUTELY}
    answers = in_parallel(20, lambda _: Api(acme_people.admin).put(f"{kind}/by-external-id/x", body))
    assert Counter(answer.status for answer in answers) == {201: 1, 200: 19}
    assert len({answer.body["id"] for answer in answers}) == 1
    assert {answer.body["version"] for answer in answers} == {1}


def test_twenty_with_different_bodies_end_as_one_of_them(acme_people: People, conn: Conn) -> None:
    def put(number: int) -> Answer:
        return Api(acme_people.admin).put(JOBS.format("x"), {**JOB, "timeout_s": number + 1})

    answers = in_parallel(20, put)
    assert Counter(answer.status for answer in answers) == {201: 1, 200: 19}
    assert sorted(answer.body["version"] for answer in answers) == list(range(1, 21))
    newest = max((answer.body for answer in answers), key=lambda body: int(body["version"]))
    assert Api(acme_people.admin).get(JOBS.format("x")).body == newest


def test_twenty_that_want_it_new_have_one_winner(acme_people: People) -> None:
    answers = in_parallel(20, lambda _: Api(acme_people.admin).put(JOBS.format("x"), JOB, If_None_Match="*"))
    assert Counter(answer.status for answer in answers) == {201: 1, 412: 19}


def test_it_waits_for_another_that_makes_it(
    api: Api, conn: Conn, second: Conn, wait_for: Callable[..., object]
) -> None:
    """Another transaction has made the row and not committed: the PUT waits for it, and changes what it finds then."""
    from kernel.ids import uuid7
    from tests.api.test_races import Behind

    key = uuid7()
    with second.transaction():
        second.execute(
            "INSERT INTO t_acme.schedules_job (id, name, kind, version, revision, paused_reason, labels, external_id,"
            " created_at, updated_at) VALUES (%s, 'hello', 'http', 1, 1, '', '{}', 'x', now(), now())",
            [key],
        )
        second.execute(
            "INSERT INTO t_acme.schedules_jobversion (job_id, version, target, timeout_s, retry, priority, queue,"
            " created_at) VALUES (%s, 1, '{\"url\": \"http://127.0.0.1:9999/\"}', 60, '{}', 5, '', now())",
            [key],
        )
        behind = Behind(conn, wait_for, lambda: api.put(JOBS.format("x"), JOB))
    answer = behind.done()
    assert (answer.status, answer.body["id"], answer.body["version"]) == (200, str(key), 2)


def test_by_role_and_scope(acme_people: People, globex_people: People, conn: Conn) -> None:
    assert Api(None).put(JOBS.format("x"), JOB).status == 401
    assert Api(acme_people.viewer).put(JOBS.format("x"), JOB).code == "role_too_low"
    assert Api(acme_people.editor).put(JOBS.format("x"), JOB).status == 201
    assert Api(acme_people.viewer).get(JOBS.format("x")).status == 200
    assert Api(globex_people.admin).get(JOBS.format("x")).status == 404
    assert Api(globex_people.admin).put(JOBS.format("x"), JOB).status == 201, "an id is its tenant's own"


def test_who_may_only_change_makes_nothing(acme_people: People, conn: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.api import middleware

    real = middleware.actor_of

    def narrowed(*args: Any, **kwargs: Any) -> Any:
        from dataclasses import replace

        return replace(real(*args, **kwargs), scopes=frozenset({"job.update"}))

    from apps.api import authentication

    monkeypatch.setattr(authentication, "actor_of", narrowed)
    refused = Api(acme_people.admin).put(JOBS.format("x"), JOB)
    assert (refused.status, refused.code, refused.body["needs"]) == (403, "scope_missing", "job.create")
    noted = conn.execute("SELECT action, allowed FROM audit_auditevent ORDER BY id DESC LIMIT 1").fetchone()
    assert noted == ("job.create", False)
    monkeypatch.undo()
    assert Api(acme_people.admin).put(JOBS.format("x"), JOB).status == 201
    monkeypatch.setattr(authentication, "actor_of", narrowed)
    assert Api(acme_people.admin).put(JOBS.format("x"), {**JOB, "priority": 1}).status == 200
