"""validate_only: the answer of what would be, and nothing that has been."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.api.makers import JOB, MINUTELY, NOWHERE, TARGET, Makers, kill
from tests.fixtures_api import Api, in_parallel
from tests.fixtures_people import People

Conn = psycopg.Connection[Any]
ROWS = (
    "t_acme.schedules_job", "t_acme.schedules_jobversion", "t_acme.schedules_schedule", "t_acme.schedules_calendar",
    "t_acme.schedules_scheduleversion", "t_acme.executions_execution", "t_acme.secrets_secret", "due_dueentry",
    "tickets_ticket", "tickets_pullqueue", "audit_auditevent", "api_idempotentanswer", "tenants_apikey",
)  # fmt: skip


def counted(conn: Conn) -> dict[str, Any]:
    """How many rows there are of everything, and the newest change to what can be changed."""
    found: dict[str, Any] = {name: conn.execute(f"SELECT count(*) FROM {name}").fetchone() for name in ROWS}
    for name in ("job", "schedule", "calendar"):
        query = f"SELECT sum(revision), max(updated_at) FROM t_acme.schedules_{name}"
        found[f"{name} changes"] = conn.execute(query).fetchone()
    return found


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("jobs", {**JOB, "name": "new"}),
        ("jobs", {"name": "pull", "kind": "pull", "queue": "fresh"}),
        ("jobs", {**JOB, "name": "sealed", "target": {**TARGET, "headers": {"Authorization": "Bearer s3cret"}}}),
        ("schedules", {"name": "new", "job": "{job}", "trigger": MINUTELY}),
        ("executions", {"job": "{job}", "payload": {"n": 1}}),
        ("executions", {"job": "{job}", "delay_s": 60}),
        ("calendars", {"name": "days", "dates": ["2026-12-25"]}),
        ("secrets", {"name": "TOKEN", "value": "s3cret"}),
        ("api-keys", {"name": "n", "role": "viewer"}),
        ("jobs/{job}/pause", {"reason": "why"}),
        ("schedules/{schedule}/pause", {}),
        ("schedules/{schedule}/trigger", {}),
        ("executions/{run}/rerun", {}),
        ("dead-letters/{letter}/replay", {}),
        ("dead-letters/{letter}/resolve", {"note": "seen"}),
        ("signing-secrets/rotate", {}),
    ],
)
def test_a_post_changes_nothing(
    api: Api, make: Makers, conn: Conn, registry: Any, path: str, body: dict[str, Any]
) -> None:
    schedule = make.schedule()
    run = make.execution(job=schedule["job"])["id"]
    kill(conn, registry, run)
    letter = api.get("dead-letters").body["items"][0]["id"]
    ids = {"job": schedule["job"], "schedule": schedule["id"], "run": run, "letter": letter}
    body = {name: value.format(**ids) if isinstance(value, str) else value for name, value in body.items()}
    before = counted(conn)
    answer = api.post(path.format(**ids) + "?validate_only=true", body, Idempotency_Key="k")
    assert answer.status == 200, answer.body
    assert not {"ETag", "Location", "Idempotency-Replayed"} & set(answer.headers)
    assert (answer.body.get("key"), answer.body.get("signing_secret")) == (None, None)
    assert counted(conn) == before
    really = api.post(path.format(**ids), body, Idempotency_Key="k")
    assert really.status < 300, "its key is still free"
    assert "Idempotency-Replayed" not in really.headers
    assert set(really.body) == set(answer.body)
    assert counted(conn) != before


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_a_change_changes_nothing(api: Api, make: Makers, conn: Conn, method: str) -> None:
    schedule = make.schedule()
    path = f"schedules/{schedule['id']}"
    body = {"name": "other", "job": schedule["job"], "trigger": {"cron": "0 5 * * *"}}
    before = counted(conn)
    would = api.call(method, f"{path}?validate_only=true", body, headers={"If-Match": '"1"'})
    assert (would.status, would.body["name"], would.body["version"]) == (200, "other", 2)
    assert would.body["next_at"] != schedule["next_at"]
    assert counted(conn) == before
    assert api.get(path).body == schedule
    assert api.call(method, f"{path}?validate_only=true", body).status == 428
    assert api.call(method, f"{path}?validate_only=true", body, headers={"If-Match": '"7"'}).status == 412


def test_what_would_be_refused_is_refused(api: Api, make: Makers, plan: Any) -> None:
    job = make.job()
    assert api.post("jobs?validate_only=true", {}).faults == {
        "/name": "required", "/kind": "required", "/target": "required",
    }  # fmt: skip
    assert api.post("jobs?validate_only=true", {**JOB, "name": job["name"]}).code == "name_taken"
    unknown = {"name": "s", "job": NOWHERE, "trigger": MINUTELY}
    assert api.post("schedules?validate_only=true", unknown).faults == {"/job": "not_found"}
    plan(max_jobs=1)
    assert api.post("jobs?validate_only=true", JOB).code == "quota_exceeded"


@pytest.mark.parametrize("value", ["1", "", "True", "yes"])
def test_only_true_and_false_are_known(api: Api, conn: Conn, value: str) -> None:
    refused = api.post(f"jobs?validate_only={value}", JOB)
    assert refused.faults == {"?validate_only": "type"}
    assert api.get("jobs").body["items"] == []


def test_false_does_it(api: Api) -> None:
    assert api.post("jobs?validate_only=false", JOB).status == 201


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "jobs"), ("DELETE", f"jobs/{NOWHERE}"), ("POST", "queues/q/lease"), ("POST", "schedules/preview")],
)
def test_where_it_means_nothing_it_is_unknown(api: Api, method: str, path: str) -> None:
    refused = api.call(method, f"{path}?validate_only=true", {}, headers={"If-Match": "*"})
    assert refused.faults == {"?validate_only": "unknown_parameter"}


def test_it_needs_the_same_role(acme_people: People) -> None:
    assert Api(acme_people.viewer).post("jobs?validate_only=true", JOB).status == 403


def test_many_at_once_hold_nothing_back(acme_people: People, conn: Conn) -> None:
    answers = in_parallel(8, lambda _: Api(acme_people.admin).post("jobs?validate_only=true", JOB))
    assert {answer.status for answer in answers} == {200}
    assert conn.execute("SELECT count(*) FROM t_acme.schedules_job").fetchone() == (0,)
