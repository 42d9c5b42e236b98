"""Idempotency-Key: sent again is done once, also at the same time and after a crash."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.api.makers import JOB, Makers, kill
from tests.fixtures_api import Answer, Api, in_parallel

Conn = psycopg.Connection[Any]


def timeless(answer: Answer) -> Any:
    return answer.body


def test_the_same_request_gets_the_same_answer(api: Api, conn: Conn) -> None:
    first = api.post("jobs", JOB, Idempotency_Key="k1")
    again = api.post("jobs", JOB, Idempotency_Key="k1")
    assert (first.status, again.status) == (201, 201)
    assert again.body == first.body
    assert (again.headers["ETag"], again.headers["Location"]) == (first.headers["ETag"], first.headers["Location"])
    assert (first.headers.get("Idempotency-Replayed"), again.headers["Idempotency-Replayed"]) == (None, "true")
    assert again.headers["X-Request-Id"] != first.headers["X-Request-Id"]
    assert len(api.get("jobs").body["items"]) == 1


def test_the_order_of_members_does_not_matter(api: Api) -> None:
    first = api.post("jobs", JOB, Idempotency_Key="k")
    again = api.post("jobs", dict(reversed(JOB.items())), Idempotency_Key="k")
    assert again.body == first.body


@pytest.mark.parametrize("other", [{**JOB, "name": "other"}, {**JOB, "priority": 1}, {}])
def test_another_body_is_refused(api: Api, other: Any) -> None:
    api.post("jobs", JOB, Idempotency_Key="k")
    refused = api.post("jobs", other, Idempotency_Key="k")
    assert (refused.status, refused.code) == (422, "idempotency_key_reused")
    assert len(api.get("jobs").body["items"]) == 1


def test_another_path_is_refused(api: Api, make: Makers) -> None:
    job = make.job()["id"]
    assert api.post(f"jobs/{job}/pause", {}, Idempotency_Key="k").status == 200
    assert api.post(f"jobs/{job}/resume", {}, Idempotency_Key="k").status == 422
    assert api.get(f"jobs/{job}").body["status"] == "paused"


def test_keys_are_a_tenants_own(api: Api, other_api: Api) -> None:
    first = api.post("jobs", JOB, Idempotency_Key="k")
    second = other_api.post("jobs", {**JOB, "name": "theirs"}, Idempotency_Key="k")
    assert (first.status, second.status) == (201, 201)


def test_a_refused_request_may_be_mended_under_its_key(api: Api, make: Makers) -> None:
    assert api.post("jobs", {}, Idempotency_Key="k").status == 400
    assert api.post("jobs", JOB, Idempotency_Key="k").status == 201
    assert api.post("jobs", JOB, Idempotency_Key="k2").status == 409
    assert "Idempotency-Replayed" not in api.post("jobs", {**JOB, "name": "x"}, Idempotency_Key="k2").headers


def test_a_manual_run_works_twice_under_two_keys(api: Api, make: Makers) -> None:
    schedule = make.schedule()["id"]
    runs = [
        api.post(f"schedules/{schedule}/trigger", {}, Idempotency_Key=key).body["id"] for key in ("a", "b", "b", "a")
    ]
    assert len(set(runs)) == 2
    assert runs[:2] == runs[:1:-1]


@pytest.mark.parametrize("action", ["submit", "trigger", "cancel", "rerun", "replay", "resolve", "schedule", "key"])
def test_every_post_is_retry_safe(api: Api, make: Makers, conn: Conn, registry: Any, action: str) -> None:
    schedule = make.schedule()
    job = schedule["job"]
    dead = make.execution(job=job)["id"]
    kill(conn, registry, dead)
    letter = api.get("dead-letters").body["items"][0]["id"]
    path, body = {
        "submit": ("executions", {"job": job}),
        "trigger": (f"schedules/{schedule['id']}/trigger", {}),
        "cancel": (f"executions/{make.execution(job=job)['id']}/cancel", {}),
        "rerun": (f"executions/{dead}/rerun", {}),
        "replay": (f"dead-letters/{letter}/replay", {}),
        "resolve": (f"dead-letters/{letter}/resolve", {}),
        "schedule": ("schedules", {"name": "s", "job": job, "trigger": {"every_s": 60}}),
        "key": ("api-keys", {"name": "n", "role": "viewer"}),
    }[action]
    first = api.post(path, body, Idempotency_Key="once")
    again = api.post(path, body, Idempotency_Key="once")
    assert first.status == again.status < 300, first.body
    assert again.headers["Idempotency-Replayed"] == "true"
    assert {**again.body, "key": None} == {**first.body, "key": None}


def test_the_text_of_a_new_key_is_not_kept(api: Api, conn: Conn) -> None:
    body = {"name": "n", "role": "viewer"}
    first = api.post("api-keys", body, Idempotency_Key="k")
    again = api.post("api-keys", body, Idempotency_Key="k")
    assert (first.body["key"].startswith("sb_"), again.body["key"]) == (True, None)
    kept = conn.execute("SELECT body FROM api_idempotentanswer").fetchall()
    assert first.body["key"] not in str(kept)


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "a\tb", "ü"])
def test_bad_keys(api: Api, key: str) -> None:
    refused = api.post("jobs", JOB, Idempotency_Key=key)
    assert (refused.status, refused.body["errors"][0]["code"]) == (400, "invalid_idempotency_key")


def test_a_key_is_forgotten_after_72_hours(api: Api, conn: Conn) -> None:
    api.post("jobs", JOB, Idempotency_Key="k")
    api.post("jobs", {**JOB, "name": "b"}, Idempotency_Key="other")
    conn.execute("UPDATE api_idempotentanswer SET created_at = created_at - interval '73 hours'")
    fresh = api.post("jobs", {**JOB, "name": "c"}, Idempotency_Key="k")
    assert fresh.status == 201
    assert conn.execute("SELECT key FROM api_idempotentanswer").fetchall() == [("k",)], "old ones go by themselves"


def test_twenty_at_once_make_one(acme_people: Any, conn: Conn) -> None:
    answers = in_parallel(20, lambda _: Api(acme_people.admin).post("jobs", JOB, Idempotency_Key="k"))
    statuses = sorted(answer.status for answer in answers)
    assert set(statuses) <= {201, 409}, statuses
    assert 201 in statuses
    assert {answer.code for answer in answers if answer.status == 409} <= {"request_in_progress"}
    assert len({answer.body["id"] for answer in answers if answer.status == 201}) == 1
    assert conn.execute("SELECT count(*) FROM t_acme.schedules_job").fetchone() == (1,)
    assert Api(acme_people.admin).post("jobs", JOB, Idempotency_Key="k").headers["Idempotency-Replayed"] == "true"


def test_while_it_is_served_the_second_one_is_told_so(api: Api, conn: Conn, acme: Any) -> None:
    with conn.transaction():
        conn.execute("SELECT pg_advisory_xact_lock(hashtextextended('idempotency:k', %s))", [acme.pk])
        refused = api.post("jobs", JOB, Idempotency_Key="k")
        assert (refused.status, refused.code) == (409, "request_in_progress")
        assert refused.headers["Retry-After"] == "1"
    assert api.post("jobs", JOB, Idempotency_Key="k").status == 201


def test_a_crash_before_the_end_leaves_neither_effect_nor_key(
    api: Api, monkeypatch: pytest.MonkeyPatch, conn: Conn
) -> None:
    from apps.api import idempotency

    def crash(*_: Any) -> None:
        raise RuntimeError("killed after the effect, before the commit")

    monkeypatch.setattr(idempotency, "_keep", crash)
    assert api.post("jobs", JOB, Idempotency_Key="k").status == 500
    assert conn.execute("SELECT count(*) FROM t_acme.schedules_job").fetchone() == (0,)
    monkeypatch.undo()
    done = api.post("jobs", JOB, Idempotency_Key="k")
    assert (done.status, "Idempotency-Replayed" in done.headers) == (201, False)


def test_a_replay_asks_for_the_role_again(acme_people: Any) -> None:
    Api(acme_people.admin).post("jobs", JOB, Idempotency_Key="k")
    assert Api(acme_people.viewer).post("jobs", JOB, Idempotency_Key="k").status == 403
    assert Api(None).post("jobs", JOB, Idempotency_Key="k").status == 401
