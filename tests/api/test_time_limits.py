"""max_queue_age_s and total_timeout_s over the API: what is refused, what carries them, what a run shows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from apps.outcomes.expire import expire_batch
from tests.api.makers import JOB, MINUTELY, Makers, begin, due, instant, settle, ticket, utc_now
from tests.fixtures_api import Api

if TYPE_CHECKING:
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
YEAR_S = 366 * 86_400


@pytest.mark.parametrize(
    ("members", "pointer", "code"),
    [
        ({"max_queue_age_s": 0}, "/max_queue_age_s", "range"),
        ({"max_queue_age_s": -1}, "/max_queue_age_s", "range"),
        ({"max_queue_age_s": YEAR_S + 1}, "/max_queue_age_s", "range"),
        ({"max_queue_age_s": "60"}, "/max_queue_age_s", "range"),
        ({"max_queue_age_s": 1.5}, "/max_queue_age_s", "range"),
        ({"max_queue_age_s": True}, "/max_queue_age_s", "range"),
        ({"total_timeout_s": 0}, "/total_timeout_s", "range"),
        ({"total_timeout_s": 10**30}, "/total_timeout_s", "range"),
        ({"total_timeout_s": 59}, "/total_timeout_s", "contradiction"),
        ({"total_timeout_s": 100, "timeout_s": 101}, "/total_timeout_s", "contradiction"),
    ],
)
def test_limits_of_a_job_that_are_refused(api: Api, members: dict[str, Any], pointer: str, code: str) -> None:
    refused = api.post("jobs", {**JOB, **members})
    assert (refused.status, refused.faults) == (400, {pointer: code})


@pytest.mark.parametrize("value", [0, YEAR_S + 1, "60", True])
def test_limits_of_schedules_and_submissions_that_are_refused(api: Api, make: Makers, value: Any) -> None:
    job = make.job()["id"]
    for path, body in (
        ("schedules", {"name": "s", "job": job, "trigger": MINUTELY, "max_queue_age_s": value}),
        ("executions", {"job": job, "max_queue_age_s": value}),
    ):
        assert api.post(path, body).faults == {"/max_queue_age_s": "range"}
    assert api.post("executions", {"job": job, "total_timeout_s": 60}).faults == {"/total_timeout_s": "unknown_field"}


def test_a_jobs_limits_make_versions_and_go_by_null(api: Api, make: Makers) -> None:
    job = make.job()
    assert (job["max_queue_age_s"], job["total_timeout_s"]) == (None, None)
    limits = {"max_queue_age_s": YEAR_S, "total_timeout_s": 60}
    changed = api.patch(f"jobs/{job['id']}", limits, If_Match="*").body
    assert (changed["version"], {name: changed[name] for name in limits}) == (2, limits)
    assert api.patch(f"jobs/{job['id']}", {"timeout_s": 61}, If_Match="*").faults == {
        "/total_timeout_s": "contradiction"
    }
    gone = api.patch(f"jobs/{job['id']}", dict.fromkeys(limits), If_Match="*").body
    assert (gone["version"], gone["max_queue_age_s"], gone["total_timeout_s"]) == (3, None, None)
    back = api.put(f"jobs/{job['id']}", {**gone, **limits}, If_Match="*").body
    assert {name: back[name] for name in limits} == limits


def test_a_schedules_limit_is_its_own(api: Api, make: Makers, conn: Conn) -> None:
    schedule = make.schedule(job=make.job(max_queue_age_s=60)["id"])
    assert schedule["max_queue_age_s"] is None, "what the job says"
    before = due(conn, schedule["id"])
    changed = api.patch(f"schedules/{schedule['id']}", {"max_queue_age_s": 5}, If_Match="*").body
    after = due(conn, schedule["id"])
    assert (changed["version"], changed["max_queue_age_s"], changed["next_at"]) == (2, 5, schedule["next_at"])
    assert before and after
    assert (before["max_queue_age_s"], before["own_max_queue_age_s"]) == (60, None)
    assert (after["max_queue_age_s"], after["own_max_queue_age_s"], after["due_at"]) == (60, 5, before["due_at"])
    same = api.patch(f"schedules/{schedule['id']}", {"max_queue_age_s": 5}, If_Match="*").body
    assert same["version"] == 2


def test_an_expired_run_says_why(api: Api, make: Makers, conn: Conn, registry: Registry) -> None:
    job = make.job(max_queue_age_s=600)
    run = make.execution(job=job["id"], max_queue_age_s=60)
    assert instant(run["start_by"]) == instant(run["actual_at"]) + timedelta(seconds=60)
    other = make.execution(job=job["id"])
    assert expire_batch(conn, registry, now=utc_now() + timedelta(seconds=90), limit=10)["expired"] == 1
    found = api.get(f"executions/{run['id']}").body
    assert (found["state"], found["reason"], found["start_by"], found["attempt_count"]) == (
        "expired", "max_queue_age", None, 0,
    )  # fmt: skip
    assert found["error"]["class"] == "max_queue_age" and found["finished_at"] is not None
    listed = api.get("executions?state=expired").body["items"]
    assert [one["id"] for one in listed] == [run["id"]]
    assert api.get(f"executions/{other['id']}").body["state"] == "ready"
    assert api.post(f"executions/{run['id']}/cancel").code == "already_finished"
    again = api.post(f"executions/{run['id']}/rerun").body
    assert (again["replay_of"], instant(again["start_by"])) == (
        run["id"], instant(again["actual_at"]) + timedelta(seconds=600),
    )  # fmt: skip


def test_a_run_shows_until_when_it_is_tried(api: Api, make: Makers, conn: Conn, registry: Registry) -> None:
    run = make.execution(job=make.job(total_timeout_s=600)["id"])
    assert run["start_by"] is None
    started = begin(conn, run["id"])
    assert api.get(f"executions/{run['id']}").body["start_by"] is None
    settle(conn, registry, started, "failed", error={"class": "http_status", "status": 503, "message": "busy"})
    waiting = api.get(f"executions/{run['id']}").body
    assert instant(waiting["start_by"]) == started.give_up_at
    expire_batch(conn, registry, now=utc_now() + timedelta(hours=1), limit=10)
    dead = api.get(f"executions/{run['id']}").body
    assert (dead["state"], dead["reason"], dead["error"]["class"]) == ("dead", "total_timeout", "total_timeout")
    (letter,) = api.get("dead-letters").body["items"]
    assert (letter["execution"], letter["error"]["last"]["status"]) == (run["id"], 503)
    assert ticket(conn, str(UUID(run["id"]))) is None
