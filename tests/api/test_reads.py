"""Lists of executions with every filter, in every order, also where pages end before they are full."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from kernel import keyset
from kernel.ids import first_id_at, uuid7
from tests.api.makers import Makers, begin, kill, settle
from tests.fixtures_api import Api

Conn = psycopg.Connection[Any]
ROWS = 400
MOST_STATEMENTS = 12
BAD = ("dead", "cancelled", "expired", "skipped")
START = datetime(2026, 3, 1, tzinfo=UTC)


def at(row: dict[str, Any], stem: str) -> Any:
    return row[f"{stem}_at"]


@pytest.fixture
def history(make: Makers, conn: Conn, acme_people: Any) -> list[dict[str, Any]]:
    """Rows of two jobs and three schedules, as no dispatcher would make them."""
    rng = random.Random(5)
    jobs = [make.job(name=f"{name} job")["id"] for name in ("blue", "red")]
    schedules = [make.schedule(job=jobs[number % 2])["id"] for number in range(3)]
    rows: list[dict[str, Any]] = []
    for number in range(ROWS):
        created = START + timedelta(minutes=number, seconds=rng.randrange(50))
        pick = rng.randrange(4)
        trigger = (
            rng.choice(["schedule", "schedule", "catch_up", "manual"]) if pick < 3 else rng.choice(["api", "replay"])
        )
        state = rng.choice([*BAD, "succeeded", "succeeded"])
        started = created + timedelta(seconds=rng.randrange(60)) if state != "skipped" else None
        with_error = state == "dead" or (state == "cancelled" and rng.random() < 0.5)
        rows.append(
            {
                "id": UUID(int=first_id_at(created).int | 7 << 76 | 2 << 62 | number),
                "blue": False, "job": jobs[pick % 2] if pick < 3 else rng.choice(jobs),
                "schedule": schedules[pick] if pick < 3 else None,
                "trigger": trigger, "state": state, "created_at": created,
                "nominal_at": created - timedelta(seconds=number % 7) if trigger in ("schedule", "catch_up") else None,
                "started_at": started,
                "finished_at": created + timedelta(seconds=rng.randrange(60, 4000)),
                "error": rng.choice(["http", "connect_failed"]) if with_error else None,
                "labels": {"team": rng.choice(["a", "b"])} if trigger == "api" else None,
                "replay_of": rng.choice(rows)["id"] if trigger == "replay" and rows else None,
            }
        )  # fmt: skip
    for row in rows:
        row["blue"] = row["job"] == jobs[0]
    schema = acme_people.tenant.schema_name
    for row in rows:
        conn.execute(
            f"""INSERT INTO "{schema}".executions_execution (id, run_key, job_id, job_version, schedule_id,
                schedule_version, trigger, state, priority, nominal_at, actual_at, created_at, started_at, finished_at,
                attempt_count, error, reason, count, replay_of, fired_by, labels)
            VALUES (%s, %s, %s, 1, %s, 1, %s, %s, 5, %s, %s, %s, %s, %s, 1, %s, '', 1, %s, '', %s)""",
            [
                row["id"], row["id"].hex, row["job"], row["schedule"], row["trigger"], row["state"], row["nominal_at"],
                row["created_at"], row["created_at"], row["started_at"], row["finished_at"],
                Jsonb({"class": row["error"]}) if row["error"] else None, row["replay_of"],
                Jsonb(row["labels"]) if row["labels"] else None,
            ],
        )  # fmt: skip
    return rows


@pytest.fixture(params=[64, 30_000], ids=["pages end early", "whole"])
def looked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """How many rows a page looks at."""
    monkeypatch.setattr(keyset, "LOOK_ROWS", request.param)
    yield request.param


def walk(api: Api, path: str) -> list[str]:
    """All ids in the order of the list, over its pages."""
    found: list[str] = []
    following = path
    while True:
        page = api.get(following).body
        found += [one["id"] for one in page["items"]]
        if page["next_cursor"] is None:
            return found
        following = f"{path}&cursor={page['next_cursor']}"


def wishes(rows: list[dict[str, Any]], rng: random.Random) -> tuple[dict[str, Any], Any]:
    """Some filters, and whether a row fits them."""
    middle = START + timedelta(minutes=rng.randrange(ROWS))
    one = rng.choice(rows)
    chosen: dict[str, tuple[Any, Any]] = {
        "states": ([one["state"], "dead"], lambda row: row["state"] in (one["state"], "dead")),
        "job_ids": ([one["job"]], lambda row: row["job"] == one["job"]),
        "schedule_id": (one["schedule"] or uuid7(), lambda row: row["schedule"] == (one["schedule"] or "-")),
        "triggers": ([one["trigger"]], lambda row: row["trigger"] == one["trigger"]),
        "error_class": ("http", lambda row: row["error"] == "http"),
        "labels": ({"team": "a"}, lambda row: (row["labels"] or {}).get("team") == "a"),
        "replay_of": (one["id"], lambda row: row["replay_of"] == one["id"]),
        "run_key": (one["id"].hex, lambda row: row["id"] == one["id"]),
    }
    for stem in ("created", "nominal", "started", "finished"):
        chosen[f"{stem}_after"] = (middle, lambda row, stem=stem: at(row, stem) and at(row, stem) > middle)
        chosen[f"{stem}_before"] = (middle, lambda row, stem=stem: at(row, stem) and at(row, stem) < middle)
    names = rng.sample(sorted(chosen), rng.randrange(4))
    return {name: chosen[name][0] for name in names}, lambda row: all(chosen[name][1](row) for name in names)


def text_of(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_pages_hold_just_what_fits_in_order(acme_people: Any, history: list[dict[str, Any]], looked: int) -> None:
    from apps.executions.filtering import ExecutionFilter
    from apps.executions.reading import executions_count, executions_read
    from apps.schedules.defined import jobs_of
    from tenants import door

    rng = random.Random(looked)
    tenant = acme_people.tenant
    for number in range(150):
        asked, fits = wishes(history, rng)
        order = rng.choice(["-created_at", "created_at", "-finished_at", "finished_at"])
        if "schedule_id" in asked and number % 2:
            order = rng.choice(["-nominal_at", "nominal_at"])
        stem = order.lstrip("-")
        rows = [row for row in history if fits(row)]
        if stem == "nominal_at":
            rows = [row for row in rows if row["nominal_at"] is not None]
        rows.sort(key=lambda row: (row[stem] if stem != "created_at" else 0, row["id"]), reverse=order[0] == "-")
        found: list[UUID] = []
        with door.inside(tenant):
            jobs = jobs_of(asked["schedule_id"]) if "schedule_id" in asked else []
            wanted = ExecutionFilter(schedule_job_ids=jobs, **asked)
            page = executions_read(tenant, wanted, order=order, size=25)
            found += [row.id for row in page.rows]
            while page.after is not None:
                page = executions_read(tenant, wanted, order=order, size=25, after=page.after)
                found += [row.id for row in page.rows]
            assert found == [row["id"] for row in rows], (asked, order)
            assert executions_count(tenant, wanted, order=order) == (len(rows), True)


def test_the_api_passes_filters_on(api: Api, history: list[dict[str, Any]]) -> None:
    """Each parameter once; what they mean together is tested above."""
    one = next(row for row in history if row["schedule"] and row["state"] == "dead")
    again = next(row for row in history if row["replay_of"])
    middle = START + timedelta(minutes=200)
    expected: dict[str, Any] = {
        "state=dead,skipped": lambda row: row["state"] in ("dead", "skipped"),
        f"job={one['job']}&order=created_at": lambda row: row["job"] == one["job"],
        f"schedule={one['schedule']}": lambda row: row["schedule"] == one["schedule"],
        "trigger=api,replay": lambda row: row["trigger"] in ("api", "replay"),
        "error_class=http": lambda row: row["error"] == "http",
        "label=team:a": lambda row: (row["labels"] or {}).get("team") == "a",
        "name=BLUE": lambda row: row["blue"],
        "name=nowhere": lambda row: False,
        f"run_key={one['id'].hex}": lambda row: row["id"] == one["id"],
        f"replay_of={again['replay_of']}": lambda row: row["replay_of"] == again["replay_of"],
        **{
            f"{stem}_{end}={text_of(middle)}": lambda row, stem=stem, end=end: (
                at(row, stem) and (at(row, stem) > middle if end == "after" else at(row, stem) < middle)
            )
            for stem in ("created", "nominal", "started", "finished")
            for end in ("after", "before")
        },
    }
    for query, fits in expected.items():
        ids = [str(row["id"]) for row in history if fits(row)]
        found = [one["id"] for one in api.get(f"executions?page_size=500&fields=id&{query}").body["items"]]
        assert sorted(found) == sorted(ids), query
        assert found == sorted(found, reverse="order" not in query), query
    assert api.get("executions?order=nominal_at").faults == {"?order": "needs_schedule"}
    [fault] = api.get("executions?order=nominal_at&schedule=x").body["errors"]
    assert fault["pointer"] == "?schedule", "told once"
    assert api.get("executions?order=payload").faults == {"?order": "choice"}


def test_live_states_are_found_with_final_ones(
    api: Api, make: Makers, conn: Conn, registry: Any, history: list[dict[str, Any]], looked: int
) -> None:
    job = make.job()["id"]
    runs = [make.execution(job=job)["id"] for _ in range(5)]
    begin(conn, runs[0])
    kill(conn, registry, runs[1])
    settle(conn, registry, begin(conn, runs[2]))
    later = make.execution(job=job, delay_s=3_600)["id"]
    expected = {
        "running": [runs[0]],
        "ready": [runs[4], runs[3]],
        "scheduled": [later],
        "running,ready": [runs[4], runs[3], runs[0]],
        "running,scheduled,ready,blocked": [later, runs[4], runs[3], runs[0]],
        "queued": [],
        "running,dead,succeeded": [runs[2], runs[1], runs[0]],
        "ready,dead": [runs[4], runs[3], runs[1]],
    }
    for states, ids in expected.items():
        assert walk(api, f"executions?job={job}&state={states}&page_size=2") == ids, states
        if not {"dead", "succeeded"} & set(states.split(",")):
            assert walk(api, f"executions?state={states}&page_size=2") == ids, states
    since = text_of(datetime.now(UTC) - timedelta(hours=1))
    assert walk(api, f"executions?started_after={since}&page_size=2") == [runs[2], runs[1], runs[0]]


def test_a_page_may_be_short_and_the_next_goes_on(
    api: Api, history: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyset, "LOOK_ROWS", 50)
    page = api.get("executions?trigger=api&name=nowhere").body
    assert (page["items"], page["next_cursor"]) == ([], None), "no such job: nothing to look at"
    page = api.get("executions?label=nobody:x").body
    assert page["items"] == [] and page["next_cursor"], "12 labelled rows have been looked at"


def test_counts_are_exact_as_far_as_they_are_looked_for(
    api: Api, history: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(path: str) -> tuple[int, bool]:
        body = api.get(f"{path}count=true&page_size=1").body
        return body["count"], body["count_is_exact"]

    dead = sum(row["state"] == "dead" for row in history)
    assert count("executions?") == (ROWS, True)
    assert count("executions?state=dead&") == (dead, True)
    assert "count" not in api.get("executions").body
    first = api.get("executions?page_size=1&count=true").body
    again = api.get(f"executions?page_size=1&count=true&cursor={first['next_cursor']}").body
    assert again["count"] == ROWS, "of all pages"
    monkeypatch.setattr(keyset, "COUNT_MOST", 100)
    assert count("executions?") == (100, False)
    monkeypatch.setattr(keyset, "COUNT_MOST", 10_000)
    monkeypatch.setattr(keyset, "COUNT_LOOK_ROWS", 100)
    found, exact = count("executions?finished_before=2100-01-01T00:00:00Z&")
    assert (found, exact) == (100, False)


NESTED = ("jobs/{job}/executions", "schedules/{schedule}/executions", "jobs/{job}/schedules", "jobs/{job}/versions",
          "schedules/{schedule}/versions", "jobs/{job}/dead-letters", "schedules/{schedule}/dead-letters",
          "executions/{execution}/reruns", "executions/{execution}/dead-letters",
          "executions/{execution}/attempts")  # fmt: skip


def test_nested_lists_hold_what_is_theirs(api: Api, make: Makers, conn: Conn, registry: Any) -> None:
    job, other = make.job()["id"], make.job()["id"]
    mine, theirs = make.schedule(job=job)["id"], make.schedule(job=other)["id"]
    run = api.post(f"schedules/{mine}/trigger", {}).body["id"]
    api.post(f"schedules/{theirs}/trigger", {})
    kill(conn, registry, run)
    again = api.post(f"executions/{run}/rerun", {}).body["id"]

    def ids(path: str) -> list[str]:
        return [one["id"] for one in api.get(path).body["items"]]

    assert ids(f"jobs/{job}/executions") == [again, run]
    assert ids(f"schedules/{mine}/executions?state=dead") == [run]
    assert ids(f"schedules/{mine}/executions?trigger=manual") == [run]
    assert ids(f"jobs/{job}/schedules") == [mine]
    assert ids(f"executions/{run}/reruns") == [again]
    letters = ids("dead-letters")
    assert len(letters) == 1
    for path in (f"jobs/{job}", f"schedules/{mine}", f"executions/{run}"):
        assert ids(f"{path}/dead-letters?status=open") == letters
        assert ids(f"{path}/dead-letters?error_class=http") == letters
        assert ids(f"{path}/dead-letters?error_class=other") == []
    assert ids(f"jobs/{other}/dead-letters") == ids(f"schedules/{theirs}/dead-letters") == []


@pytest.mark.parametrize("path", NESTED)
def test_nested_lists_of_nothing_are_404_and_take_few_statements(
    api: Api, other_api: Api, make: Makers, conn: Conn, registry: Any, path: str, statements: list[str]
) -> None:
    job = make.job()["id"]
    schedule = make.schedule(job=job)["id"]
    execution = make.execution(job=job)["id"]
    kill(conn, registry, execution)
    full = path.format(job=job, schedule=schedule, execution=execution)
    api.get(full)
    statements.clear()
    assert api.get(full).status == 200
    assert len(statements) <= MOST_STATEMENTS, statements
    missing = path.format(job=uuid7(), schedule=uuid7(), execution=uuid7())
    assert {api.get(missing).code, other_api.get(full).code} == {"not_found"}


COSTLY = (
    "executions?state=dead,running&trigger=manual&label=a:b&name=job&count=true&finished_after=2026-01-01T00:00:00Z",
    "executions?schedule={schedule}&state=dead&trigger=manual&error_class=x&label=a:b&count=true",
    "schedules/{schedule}/executions?order=-nominal_at&count=true&state=dead",
    "attempts?state=failed,lost&error_class=x&count=true&job={job}&schedule={schedule}",
    "dead-letters?status=open&job={job}&count=true",
    "jobs?order=name&name=x&count=true", "schedules?status=active&job={job}&label=a:b&count=true",
)  # fmt: skip


@pytest.mark.parametrize("path", COSTLY)
def test_no_filter_takes_more_than_twelve_statements(
    api: Api, make: Makers, path: str, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyset, "LOOK_ROWS", 0)  # no path is short enough: all are asked
    job = make.job()["id"]
    path = path.format(job=job, schedule=make.schedule(job=job)["id"])
    api.get(path)
    statements.clear()
    assert api.get(path).status == 200
    assert len(statements) <= MOST_STATEMENTS, (len(statements), statements)


def test_versions_tell_what_a_definition_was(api: Api, make: Makers) -> None:
    job = make.job(target={"url": "https://a.example/x", "headers": {"Authorization": "Bearer secret"}})["id"]
    for seconds in (10, 20):
        assert api.patch(f"jobs/{job}", {"timeout_s": seconds}, If_Match="*").status == 200
    listed = api.get(f"jobs/{job}/versions?page_size=2").body
    assert [(one["version"], one["timeout_s"]) for one in listed["items"]] == [(3, 20), (2, 10)]
    rest = api.get(f"jobs/{job}/versions?page_size=2&cursor={listed['next_cursor']}").body
    assert [one["version"] for one in rest["items"]] == [1] and rest["next_cursor"] is None
    assert "secret" not in str(listed) + str(rest), "credentials are masked"
    assert api.get(f"jobs/{job}/versions/2").body == listed["items"][1]
    assert api.get(f"jobs/{job}/versions/4").status == api.get(f"jobs/{job}/versions/{10**20}").status == 404
    schedule = make.schedule(job=job)["id"]
    assert api.patch(f"schedules/{schedule}", {"trigger": {"every_s": 300}}, If_Match="*").status == 200
    versions = api.get(f"schedules/{schedule}/versions").body["items"]
    assert [one["version"] for one in versions] == [2, 1]
    assert versions[1]["trigger"] == {"cron": "* * * * *"} and versions[0]["trigger"]["every_s"] == 300
    assert api.get(f"schedules/{schedule}/versions/1").body == versions[1]
