"""Lists: cursors, filters, pages, and how many statements they take."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.api.makers import Makers, kill
from tests.fixtures_api import Api

Conn = psycopg.Connection[Any]
RESOURCES = ("jobs", "schedules", "executions", "attempts", "dead-letters", "api-keys")
MOST_STATEMENTS = 12


def walk(api: Api, path: str, size: int) -> list[str]:
    """All ids, page by page."""
    seen: list[str] = []
    separator = "&" if "?" in path else "?"
    following = f"{path}{separator}page_size={size}"
    while following:
        page = api.get(following).body
        assert len(page["items"]) <= size
        seen += [one["id"] for one in page["items"]]
        cursor = page["next_cursor"]
        following = f"{path}{separator}page_size={size}&cursor={cursor}" if cursor else ""
    return seen


@pytest.fixture
def full(make: Makers, conn: Conn, registry: Any) -> Makers:
    """Some of everything."""
    for _ in range(7):
        job = make.job()["id"]
        make.schedule(job=job)
        kill(conn, registry, make.execution(job=job)["id"])
    return make


@pytest.mark.parametrize("resource", RESOURCES)
def test_pages_hold_everything_once_newest_first(api: Api, full: Makers, resource: str) -> None:
    whole = walk(api, resource, 500)
    assert len(whole) >= 4
    assert whole == sorted(whole, reverse=True)
    for size in (1, 2, len(whole) - 1, len(whole), len(whole) + 1):
        assert walk(api, resource, size) == whole


@pytest.mark.parametrize("resource", ["jobs", "schedules", "executions"])
def test_pages_under_inserts_show_nothing_twice_and_miss_nothing_old(api: Api, make: Makers, resource: str) -> None:
    job = make.job()["id"]
    one = {"jobs": make.job, "schedules": make.schedule, "executions": make.execution}[resource]
    options = {} if resource == "jobs" else {"job": job}
    for _ in range(6):
        one(**options)
    old = walk(api, resource, 500)
    seen: list[str] = []
    cursor = ""
    while True:
        page = api.get(f"{resource}?page_size=2{cursor}").body
        seen += [row["id"] for row in page["items"]]
        if not page["next_cursor"]:
            break
        cursor = f"&cursor={page['next_cursor']}"
        one(**options)
    assert seen == old


@pytest.mark.parametrize("resource", RESOURCES)
def test_the_number_of_statements_does_not_grow(api: Api, full: Makers, resource: str, statements: list[str]) -> None:
    api.get(resource)
    counts = []
    for size in (1, 2, 500):
        statements.clear()
        assert api.get(f"{resource}?page_size={size}").status == 200
        counts.append(len(statements))
    assert counts == [counts[0]] * 3, statements
    assert counts[0] <= MOST_STATEMENTS, statements


@pytest.mark.parametrize("state", ["ready", "scheduled", "dead", "running,dead", "succeeded"])
def test_filters_by_state_take_few_statements(api: Api, full: Makers, state: str, statements: list[str]) -> None:
    api.get("executions")
    statements.clear()
    api.get(f"executions?state={state}")
    assert len(statements) <= MOST_STATEMENTS, statements


def test_jobs_and_schedules_filter(api: Api, make: Makers) -> None:
    first = make.job(name="Nightly Report", labels={"team": "a"}, external_id="r1")
    second = make.job(name="100% of_it", kind="python", target={"task": "shardbeat.noop"})
    schedule = make.schedule(name="Nightly", job=first["id"], labels={"x": "y:z"})
    other = make.schedule(name="other", job=second["id"], external_id="s")
    api.post(f"jobs/{second['id']}/pause")
    api.post(f"schedules/{schedule['id']}/pause")

    def ids(path: str) -> list[str]:
        return [one["id"] for one in api.get(path).body["items"]]

    assert ids("jobs?name=nightly") == [first["id"]]
    assert ids("jobs?name=%25") == [second["id"]], "wildcards are plain text"
    assert ids("jobs?name=_") == [second["id"]]
    assert ids("jobs?kind=python") == [second["id"]]
    assert ids("jobs?kind=python,http") == [second["id"], first["id"]]
    assert ids("jobs?status=paused") == [second["id"]]
    assert ids("jobs?status=active") == [first["id"]]
    assert ids("jobs?label=team:a") == [first["id"]]
    assert ids("jobs?label=team:b") == []
    assert ids("jobs?external_id=r1") == [first["id"]]
    assert ids(f"jobs?created_after={first['created_at']}") == [second["id"]]
    assert ids("schedules?label=x:y:z") == [schedule["id"]]
    assert ids(f"schedules?job={second['id']}") == [other["id"]]
    assert ids("schedules?status=paused") == [schedule["id"]]
    assert ids("schedules?status=active") == [other["id"]], "its job is paused, it is not"
    assert ids("schedules?status=active,paused") == [other["id"], schedule["id"]]
    assert ids("schedules?status=completed") == []
    assert ids("schedules?external_id=s") == [other["id"]]


BAD = [
    ("jobs?colour=red", "?colour", "unknown_parameter"),
    ("jobs?state=ready", "?state", "unknown_parameter"),
    ("jobs?page_size=0", "?page_size", "range"),
    ("jobs?page_size=501", "?page_size", "range"),
    ("jobs?page_size=x", "?page_size", "range"),
    ("jobs?page_size=-1", "?page_size", "range"),
    ("jobs?page_size=99999999999999999999", "?page_size", "range"),
    ("jobs?page_size=%D9%A1", "?page_size", "range"),
    ("jobs?page_size=5&page_size=6", "?page_size", "repeated"),
    ("jobs?cursor=", "?cursor", "bad_cursor"),
    ("jobs?cursor=abc", "?cursor", "bad_cursor"),
    ("jobs?cursor=!!!!", "?cursor", "bad_cursor"),
    ("jobs?cursor=" + "A" * 1000, "?cursor", "bad_cursor"),
    ("jobs?name=", "?name", "type"),
    ("jobs?name=%00", "?name", "type"),
    ("jobs?name=%ff%fe", "?name", None),
    ("jobs?kind=magic", "?kind", "choice"),
    ("jobs?kind=http,", "?kind", "choice"),
    ("jobs?label=team", "?label", "type"),
    ("jobs?label=" + "&label=".join(f"a{n}:b" for n in range(11)), "?label", "too_many"),
    ("jobs?created_after=yesterday", "?created_after", "format"),
    ("schedules?job=5", "?job", "type"),
    ("schedules?job=" + "0" * 1000, "?job", "type"),
    ("executions?state=ready,sleeping", "?state", "choice"),
    ("executions?trigger=cron", "?trigger", "choice"),
    ("executions?schedule=x", "?schedule", "type"),
    ("attempts?state=ready", "?state", "choice"),
    ("dead-letters?status=closed", "?status", "choice"),
    ("api-keys?role=admin", "?role", "unknown_parameter"),
]


@pytest.mark.parametrize(("path", "pointer", "code"), BAD, ids=lambda value: str(value)[:50])
def test_bad_parameters_are_refused(api: Api, path: str, pointer: str, code: str | None) -> None:
    answer = api.get(path)
    if code is None:
        assert answer.status in (200, 400)
        return
    assert (answer.status, answer.code) == (400, "invalid")
    assert answer.faults == {pointer: code}


def test_a_cursor_is_good_for_its_list_and_filters_only(api: Api, make: Makers) -> None:
    job = make.job()["id"]
    runs = [make.execution(job=job)["id"] for _ in range(3)]
    path = f"executions?job={job}&state=ready,running&page_size=1"
    cursor = api.get(path).body["next_cursor"]
    assert api.get(f"{path}&cursor={cursor}").body["items"][0]["id"] == runs[1]
    larger = f"executions?page_size=5&state=ready,running&job={job}&cursor={cursor}"
    assert [one["id"] for one in api.get(larger).body["items"]] == [runs[1], runs[0]], "pages may differ in size"
    for other in ("jobs?", "dead-letters?", "executions?", f"executions?job={job}&", f"schedules?job={job}&"):
        answer = api.get(f"{other}cursor={cursor}")
        assert (answer.status, answer.faults) == (400, {"?cursor": "bad_cursor"}), other


def test_all_faults_of_a_query_are_told_at_once(api: Api) -> None:
    assert set(api.get("executions?state=x&job=y&page_size=z&cursor=!&no=1").faults) == {
        "?state", "?job", "?page_size", "?cursor", "?no"
    }  # fmt: skip


def test_what_is_no_list_takes_no_parameters(api: Api, make: Makers) -> None:
    job = make.job()["id"]
    assert api.get(f"jobs/{job}?page_size=5").faults == {"?page_size": "unknown_parameter"}
    assert api.post("jobs?dry_run=1", {}).faults == {"?dry_run": "unknown_parameter"}


def test_an_offset_of_a_time_may_lose_its_plus() -> None:
    from django.http import QueryDict

    from apps.api.lists import ListQuery

    query = ListQuery(QueryDict("created_after=2020-01-01T00:00:00+01:00"), ["created_after"])
    at = query.instant("created_after")
    query.finish()
    assert at and at.isoformat() == "2019-12-31T23:00:00+00:00"
