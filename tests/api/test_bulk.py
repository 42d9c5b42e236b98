"""Bulk: each item has its own result, whatever becomes of the others; or all or nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg
import pytest

from tests.api.makers import JOB, MINUTELY, NOWHERE, Makers, audit, due, ticket
from tests.fixtures_api import Answer, Api, in_parallel
from tests.fixtures_people import People

Conn = psycopg.Connection[Any]
KINDS = ("jobs", "schedules", "executions")


def one_of(kind: str, name: str, job: str) -> dict[str, Any]:
    """A valid item."""
    if kind == "jobs":
        return {**JOB, "name": name}
    if kind == "schedules":
        return {"name": name, "job": job, "trigger": MINUTELY}
    return {"job": job, "labels": {"name": name}}


def statuses(answer: Answer) -> list[int]:
    assert answer.status == 200, answer.body
    assert [item["index"] for item in answer.body["items"]] == list(range(len(answer.body["items"])))
    assert answer.body["refused"] == sum(1 for item in answer.body["items"] if item["problem"])
    assert answer.body["succeeded"] == sum(1 for item in answer.body["items"] if item["id"])
    return [item["status"] for item in answer.body["items"]]


def codes(answer: Answer) -> list[str | None]:
    return [item["problem"] and item["problem"]["code"] for item in answer.body["items"]]


def rows(conn: Conn, table: str) -> int:
    found = conn.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_made_is_as_if_made_alone(api: Api, make: Makers, conn: Conn, kind: str) -> None:
    job = make.job()["id"]
    alone = api.post(kind, one_of(kind, "alone", job))
    answer = api.post(f"{kind}/bulk", {"items": [one_of(kind, f"n{number}", job) for number in range(3)]})
    assert statuses(answer) == [202 if kind == "executions" else 201] * 3
    ids = [item["id"] for item in answer.body["items"]]
    assert ids == sorted(ids), "in the order in which they were sent"
    volatile = {
        "id", "name", "run_key", "created_at", "updated_at", "actual_at", "available_at", "next_at", "labels", "as_of",
    }  # fmt: skip
    for key in ids:
        read = api.get(f"{kind}/{key}").body
        assert {k: v for k, v in read.items() if k not in volatile} == {
            k: v for k, v in alone.body.items() if k not in volatile
        }
        assert audit(conn, key) == audit(conn, alone.body["id"])
        noted, other = (
            conn.execute("SELECT after FROM audit_auditevent WHERE object_id = %s", [one]).fetchone()
            for one in (key, alone.body["id"])
        )
        assert noted and other and set(noted[0]) == set(other[0])
        if kind == "schedules":
            entry, first = due(conn, key), due(conn, alone.body["id"])
            assert entry and first
            assert read["next_at"] is not None
            own = {"key", "shard", "due_at", "nominal_at"}
            assert {k: v for k, v in entry.items() if k not in own} == {k: v for k, v in first.items() if k not in own}
        if kind == "executions":
            (got, first) = (ticket(conn, key), ticket(conn, alone.body["id"]))
            assert got and first
            own = {"execution_id", "run_key", "actual_at", "available_at", "rank"}
            assert {k: v for k, v in got.items() if k not in own} == {k: v for k, v in first.items() if k not in own}


def test_jobs_each_have_their_own_result(api: Api, make: Makers) -> None:
    taken = make.job(external_id="taken")
    items = [
        {**JOB, "name": "a"},
        {**JOB, "name": "A"},
        {**JOB, "name": taken["name"].upper()},
        {**JOB, "name": "b", "external_id": "taken"},
        {**JOB, "name": "c", "external_id": "new"},
        {**JOB, "name": "d", "external_id": "new"},
        {"name": "e", "kind": "http"},
        {**JOB, "name": "f", "target": {**JOB["target"], "headers": {"X-Key": {"secret": "NONE"}}}},  # type: ignore[dict-item]  # a dict
        7,
        {"name": "pull", "kind": "pull", "queue": "invoices"},
    ]
    answer = api.post("jobs/bulk", {"items": items})
    assert statuses(answer) == [201, 409, 409, 409, 201, 409, 400, 400, 400, 201]
    assert codes(answer)[:6] == [None, "name_taken", "name_taken", "external_id_taken", None, "external_id_taken"]
    problems = [item["problem"] for item in answer.body["items"]]
    assert [one["pointer"] for one in problems[6]["errors"]] == ["/target"]
    assert [one["pointer"] for one in problems[7]["errors"]] == ["/target/headers/X-Key/secret"]
    assert problems[8]["errors"][0]["code"] == "not_an_object"
    assert {item["name"] for item in api.get("jobs").body["items"]} == {"a", "c", "pull", taken["name"]}
    assert api.get("queues/invoices").status == 200


def test_credentials_in_bulk_are_kept_apart(api: Api, conn: Conn) -> None:
    target = {"url": "http://127.0.0.1:9999/", "headers": {"Authorization": "Bearer s3cret"}}
    items = [{"name": f"n{number}", "kind": "http", "target": target} for number in range(3)]
    assert statuses(api.post("jobs/bulk", {"items": [*items, items[0]]})) == [201, 201, 201, 409]
    assert "s3cret" not in str(conn.execute("SELECT target FROM t_acme.schedules_jobversion").fetchall())
    assert rows(conn, "t_acme.secrets_secret") == 3, "none for what was refused"


def test_schedules_each_have_their_own_result(api: Api, make: Makers, conn: Conn) -> None:
    job, paused = make.job()["id"], make.job()["id"]
    api.post(f"jobs/{paused}/pause")
    api.post("calendars", {"name": "Days", "dates": ["2026-12-25"]})
    base = {"job": job, "trigger": MINUTELY}
    items: list[Any] = [
        {**base, "name": "a"},
        {**base, "name": "b", "trigger": {"cron": "61 * * * *"}},
        {**base, "name": "c", "job": NOWHERE},
        {**base, "name": "A"},
        {**base, "name": "d", "calendar": "days"},
        {**base, "name": "e", "calendar": "none"},
        {**base, "name": "f", "calendar": {}},
        {**base, "name": "g", "job": paused},
        None,
        {**base, "name": "h", "trigger": {"cron": "H H * * *"}},
    ]
    answer = api.post("schedules/bulk", {"items": items})
    assert statuses(answer) == [201, 400, 400, 409, 201, 400, 400, 201, 400, 201]
    pointers = [
        [one["pointer"] for one in (item["problem"] or {"errors": []})["errors"]] for item in answer.body["items"]
    ]
    assert pointers[1:7] == [["/trigger/cron"], ["/job"], [], [], ["/calendar"], ["/calendar"]]
    ids = {number: item["id"] for number, item in enumerate(answer.body["items"]) if item["id"]}
    assert {number: due(conn, key) is not None for number, key in ids.items()} == {0: True, 4: True, 7: False, 9: True}
    assert rows(conn, "due_dueentry") == 3


def test_runs_each_have_their_own_result(api: Api, make: Makers, conn: Conn) -> None:
    job, pull, paused = make.job()["id"], make.job(kind="pull", queue="q", target={})["id"], make.job()["id"]
    api.post(f"jobs/{paused}/pause")
    items: list[Any] = [
        {"job": job, "payload": {"n": [1, "é", None]}, "priority": 9},
        {"job": NOWHERE},
        {"job": job, "delay_s": 60},
        {"job": job, "delay_s": -1},
        {"job": pull},
        {"job": paused, "max_queue_age_s": 5},
        {},
    ]
    answer = api.post("executions/bulk", {"items": items})
    assert statuses(answer) == [202, 400, 202, 400, 202, 202, 400]
    read = [api.get(f"executions/{item['id']}").body for item in answer.body["items"] if item["id"]]
    assert [one["state"] for one in read] == ["ready", "scheduled", "ready", "ready"]
    assert (read[0]["payload"], read[0]["priority"], read[1]["payload"]) == ({"n": [1, "é", None]}, 9, None)
    assert read[3]["start_by"] is not None
    assert due(conn, read[1]["id"])
    live = [ticket(conn, one["id"]) for one in read]
    assert [one and one["pool"] for one in live] == ["http", None, "pull", "http"]
    assert [one and one["job_limit"] for one in live] == [None, None, None, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_all_or_nothing(api: Api, make: Makers, conn: Conn, kind: str) -> None:
    job = make.job()["id"]
    good = [one_of(kind, f"n{number}", job) for number in range(3)]
    bad = {**one_of(kind, "bad", NOWHERE), "labels": 7, "nonsense": 1}
    before = {table: rows(conn, table) for table in ("due_dueentry", "tickets_ticket", "audit_auditevent")}
    refused = api.post(f"{kind}/bulk", {"items": [good[0], bad, *good[1:]], "atomic": True}, Idempotency_Key="k")
    assert (refused.status, refused.code, refused.body["refused"]) == (422, "batch_refused", 1)
    assert [(item["index"], item["status"], item["id"]) for item in refused.body["items"]] == [(1, 400, None)]
    assert refused.faults["/items/1/nonsense"] == "unknown_field"
    assert len(api.get(kind).body["items"]) == (1 if kind == "jobs" else 0)
    assert {table: rows(conn, table) for table in before} == before
    made = api.post(f"{kind}/bulk", {"items": good, "atomic": True}, Idempotency_Key="k")
    assert len(set(statuses(made))) == 1, "its key is still free"


def test_all_or_nothing_over_a_name(api: Api, make: Makers, conn: Conn) -> None:
    name = make.job()["name"]
    refused = api.post("jobs/bulk", {"items": [JOB, {**JOB, "name": name}], "atomic": True})
    assert (refused.status, refused.body["items"][0]["problem"]["code"]) == (422, "name_taken")
    assert rows(conn, "t_acme.schedules_job") == 1
    assert rows(conn, "t_acme.schedules_jobversion") == 1


@pytest.mark.parametrize("kind", ["jobs", "schedules"])
def test_a_plan_s_room_goes_to_the_first_that_can_be_made(
    api: Api, make: Makers, conn: Conn, plan: Any, kind: str
) -> None:
    job = make.job()
    plan(**{f"max_{kind}": 3 + (kind == "jobs")})
    items = [one_of(kind, name, job["id"]) for name in ("a", "b", "A", "c", "d", "e")]
    answer = api.post(f"{kind}/bulk", {"items": items})
    assert statuses(answer) == [201, 201, 409, 201, 429, 429], "what had no name to get took no room"
    problem = answer.body["items"][4]["problem"]
    assert (problem["code"], problem["quota"], problem["use"]) == ("quota_exceeded", f"max_{kind}", problem["limit"])
    again = api.post(f"{kind}/bulk", {"items": [one_of(kind, "x", job["id"])]})
    assert codes(again) == ["quota_exceeded"]
    assert api.post(f"{kind}/bulk", {"items": items[4:], "atomic": True}).status == 422
    query = "SELECT action, reason, after FROM audit_auditevent WHERE NOT allowed ORDER BY id"
    limit = problem["limit"]
    told = {"quota": f"max_{kind}", "limit": limit, "use": limit}
    assert conn.execute(query).fetchall() == [
        (f"{kind[:-1]}.create", "quota_exceeded", {**told, "items": count}) for count in (2, 1, 2)
    ]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/items"), ({"items": {}}, "/items"), ({"items": []}, "/items"), ({"items": [{}] * 1001}, "/items"),
        ({"items": [{}], "atomic": 1}, "/atomic"), ({"items": [{}], "x": 1}, "/x"), ([], ""), (7, ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_is_no_batch(api: Api, kind: str, body: Any, pointer: str) -> None:
    refused = api.post(f"{kind}/bulk", body)
    assert (refused.status, refused.code) == (400, "invalid")
    assert pointer in refused.faults


@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_at_once(api: Api, make: Makers, conn: Conn, kind: str, statements: list[str]) -> None:
    job = make.job()["id"]
    items = [one_of(kind, f"n{number}", job) for number in range(1000)]
    statements.clear()
    answer = api.post(f"{kind}/bulk", {"items": items})
    assert answer.body["succeeded"] == 1000
    assert len(statements) <= 16, statements
    assert len({item["id"] for item in answer.body["items"]}) == 1000
    action = {"jobs": "job.create", "schedules": "schedule.create", "executions": "execution.submit"}[kind]
    noted = conn.execute(
        "SELECT count(*), count(DISTINCT object_id) FROM audit_auditevent WHERE action = %s AND request_id = %s",
        [action, answer.headers["X-Request-Id"]],
    ).fetchone()
    assert noted == (1000, 1000)


@pytest.mark.parametrize("kind", KINDS)
def test_it_may_be_tried_out(api: Api, make: Makers, conn: Conn, kind: str) -> None:
    job = make.job()["id"]
    body = {"items": [one_of(kind, "a", job), one_of(kind, "a", NOWHERE)]}
    would = api.post(f"{kind}/bulk?validate_only=true", body)
    assert len(statuses(would)) == 2
    assert len(api.get(kind).body["items"]) == (1 if kind == "jobs" else 0)
    assert statuses(api.post(f"{kind}/bulk", body)) == statuses(would)


@pytest.mark.parametrize("kind", KINDS)
def test_twenty_with_one_key_make_one_batch(acme_people: People, make: Makers, conn: Conn, kind: str) -> None:
    job = make.job()["id"]
    body = {"items": [one_of(kind, f"n{number}", job) for number in range(5)]}
    answers = in_parallel(20, lambda _: Api(acme_people.admin).post(f"{kind}/bulk", body, Idempotency_Key="k"))
    served = [answer for answer in answers if answer.status == 200]
    assert {answer.status for answer in answers} <= {200, 409}
    assert {answer.code for answer in answers if answer.status == 409} <= {"request_in_progress"}
    assert served
    assert len({str([item["id"] for item in answer.body["items"]]) for answer in served}) == 1
    table = {"jobs": "schedules_job", "schedules": "schedules_schedule", "executions": "executions_execution"}[kind]
    assert rows(conn, f"t_acme.{table}") == (6 if kind == "jobs" else 5)
    again = Api(acme_people.admin).post(f"{kind}/bulk", body, Idempotency_Key="k")
    assert (again.headers["Idempotency-Replayed"], again.body) == ("true", served[0].body)


@pytest.mark.parametrize("kind", ["jobs", "schedules"])
def test_the_same_names_from_many_sides_are_made_once(acme_people: People, make: Makers, conn: Conn, kind: str) -> None:
    """Each side sends them in another order, so that they meet on the index crosswise."""
    job = make.job(name="other")["id"]
    names = [f"n{number:02}" for number in range(30)]

    def send(number: int) -> Answer:
        turned = names[number * 3 :] + names[: number * 3]
        turned = turned[::-1] if number % 2 else turned
        return Api(acme_people.admin).post(f"{kind}/bulk", {"items": [one_of(kind, name, job) for name in turned]})

    answers = in_parallel(10, send)
    assert {answer.status for answer in answers} == {200}, [answer.body for answer in answers if answer.status != 200]
    assert sum(answer.body["succeeded"] for answer in answers) == 30
    assert {code for answer in answers for code in codes(answer)} == {None, "name_taken"}
    if kind == "schedules":
        assert rows(conn, "due_dueentry") == 30


@pytest.mark.parametrize("kind", ["jobs", "schedules"])
def test_a_quota_holds_however_many_batches_come(
    acme_people: People, make: Makers, conn: Conn, plan: Any, kind: str
) -> None:
    job = make.job()["id"]
    plan(**{f"max_{kind}": 25 + (kind == "jobs")})

    def send(number: int) -> Answer:
        items = [one_of(kind, f"n{number}.{one}", job) for one in range(4)]
        return Api(acme_people.admin).post(f"{kind}/bulk", {"items": items})

    answers = in_parallel(20, send)
    assert {answer.status for answer in answers} == {200}
    assert sum(answer.body["succeeded"] for answer in answers) == 25
    assert Counter(code for answer in answers for code in codes(answer)) == {None: 25, "quota_exceeded": 55}


def test_a_job_is_not_paused_between_a_batch_and_its_runs(acme_people: People, make: Makers, conn: Conn) -> None:
    job = make.job()["id"]

    def work(number: int) -> Answer:
        api = Api(acme_people.admin)
        if number % 4 == 0:
            return api.post(f"jobs/{job}/{'pause' if number % 8 else 'resume'}")
        if number % 4 == 1:
            items = [{"name": f"{number}.{one}", "job": job, "trigger": MINUTELY} for one in range(5)]
            return api.post("schedules/bulk", {"items": items})
        return api.post("executions/bulk", {"items": [{"job": job}] * 5})

    assert {answer.status for answer in in_parallel(16, work)} == {200}
    paused = Api(acme_people.admin).get(f"jobs/{job}").body["status"] == "paused"
    assert conn.execute("SELECT DISTINCT job_limit FROM tickets_ticket").fetchall() == [(0 if paused else None,)]
    assert rows(conn, "due_dueentry") == (0 if paused else 20)


@pytest.mark.parametrize("kind", KINDS)
def test_by_role(acme_people: People, globex_people: People, make: Makers, kind: str) -> None:
    job = make.job()["id"]
    body = {"items": [one_of(kind, "a", job)]}
    assert Api(None).post(f"{kind}/bulk", body).status == 401
    assert Api(acme_people.viewer).post(f"{kind}/bulk", body).code == "role_too_low"
    theirs = Api(globex_people.admin).post(f"{kind}/bulk", body)
    assert statuses(theirs) == ([201] if kind == "jobs" else [400]), "another tenant's job is not there"
    for role in ("editor", "operator", "admin"):
        fresh = {"items": [one_of(kind, role, job)]}
        assert statuses(Api(acme_people.keys[role]).post(f"{kind}/bulk", fresh)) in ([201], [202])


def test_a_members_pointer_is_escaped(api: Api) -> None:
    answer = api.post("jobs/bulk", {"items": [{}], "a/b~c": 1})
    assert answer.status == 400
    assert [error["pointer"] for error in answer.body["errors"]] == ["/a~1b~0c"]
