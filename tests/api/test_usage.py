"""/usage: every limit with its use, and what was done; refusals name quota, limit, use and when to come again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.api.makers import Makers
from tests.fixtures_api import Api
from tests.fixtures_people import People

Conn = psycopg.Connection[Any]
Limit = Callable[..., None]
MOST_STATEMENTS = 12
NAMES = [
    "max_runs_per_day", "max_runs_per_min", "max_running", "max_live", "max_jobs", "max_schedules", "max_calendars",
    "max_secrets", "max_webhooks", "max_members", "max_api_keys", "max_api_requests_per_min",
]  # fmt: skip


def quotas(api: Api) -> dict[str, Any]:
    answer = api.get("usage")
    assert answer.status == 200
    return {one["quota"]: one for one in answer.body["quotas"]}


def test_every_limit_has_its_use(api: Api, make: Makers, plan: Limit, acme_people: People) -> None:
    assert [*quotas(api)] == NAMES
    limited = {name for name, one in quotas(api).items() if one["limit"] is not None or one["percent"] is not None}
    assert limited == {"max_webhooks"}  # of which there are few, whatever the plan says
    plan(max_jobs=4, max_live=10, max_runs_per_day=3, max_api_requests_per_min=1_000)
    job = make.job()
    api.post("executions", {"job": job["id"], "delay_s": 600})
    api.post("executions", {"job": job["id"]})
    found = quotas(api)
    assert (found["max_jobs"]["use"], found["max_jobs"]["percent"]) == (1, 25.0)
    assert (found["max_live"]["use"], found["max_live"]["percent"]) == (2, 20.0)
    day = found["max_runs_per_day"]
    assert (day["use"], day["percent"]) == (2, 66.7)
    assert datetime.fromisoformat(day["resets_at"]).strftime("%H:%M:%S") == "00:00:00"
    assert found["max_api_keys"]["use"] == len(acme_people.keys)
    asked = found["max_api_requests_per_min"]
    assert asked["use"] == 4 and asked["resets_at"] is not None and asked["use_is_exact"]


def test_a_day_that_is_full_refuses_with_all_that_one_must_know(api: Api, make: Makers, plan: Limit) -> None:
    plan(max_runs_per_day=1)
    job = make.job()
    assert api.post("executions", {"job": job["id"]}).status == 202
    answer = api.post("executions", {"job": job["id"]})
    assert (answer.status, answer.code) == (429, "quota_exceeded")
    assert {name: answer.body[name] for name in ("quota", "limit", "use")} == {
        "quota": "max_runs_per_day", "limit": 1, "use": 1,
    }  # fmt: skip
    left_s = (datetime.fromisoformat(answer.body["resets_at"]) - datetime.now().astimezone()).total_seconds()
    assert left_s - 5 <= int(answer.headers["Retry-After"]) <= left_s + 5
    assert quotas(api)["max_runs_per_day"]["percent"] == 100.0


def test_a_rehearsal_uses_nothing_up(api: Api, make: Makers, plan: Limit, conn: Conn) -> None:
    plan(max_runs_per_day=1)
    job = make.job()
    for _ in range(3):
        assert api.post("executions?validate_only=true", {"job": job["id"]}).status == 200
    assert quotas(api)["max_runs_per_day"]["use"] == 0
    assert conn.execute("SELECT count(*) FROM usage_delta").fetchone() == (0,)


def test_what_was_done_is_there_by_minute_hour_and_day(
    api: Api, make: Makers, conn: Conn, globex_people: People
) -> None:
    from apps.usage.rolling import roll_up

    job = make.job()
    for _ in range(3):
        api.post("executions", {"job": job["id"]})
    roll_up(conn)
    for step in ("minute", "hour", "day"):
        answer = api.get(f"usage/history?step={step}")
        assert answer.status == 200 and answer.body["step"] == step
        assert sum(one["submitted"] for one in answer.body["items"]) == 3
        assert Api(globex_people.admin).get(f"usage/history?step={step}").body["items"] == []
    (hour,) = api.get("usage/history").body["items"]
    assert hour["duration"] == {"count": 0, "p50_s": None, "p95_s": None, "p99_s": None}
    start = datetime.fromisoformat(hour["starts_at"])
    assert start.minute == start.second == 0
    after = (start + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    at = start.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert len(api.get(f"usage/history?from={at}&to={after}").body["items"]) == 1
    assert api.get(f"usage/history?from={at}&to={at}").body["items"] == []


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("step=week", "choice"), ("step=hour,day", "choice"), ("from=yesterday", "type"),
        ("step=minute&from=2026-01-01T00:00:00Z&to=2026-01-03T00:00:00Z", "range"),
        ("from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "contradiction"),
        ("since=2026-01-02T00:00:00Z", "unknown_parameter"),
    ],
)  # fmt: skip
def test_what_can_not_be_asked(api: Api, query: str, code: str) -> None:
    answer = api.get(f"usage/history?{query}")
    assert answer.status == 400
    assert code in {one["code"] for one in answer.body["errors"]} or code == "type"


def test_slots_by_pool_and_the_workers_are_told(api: Api, make: Makers, conn: Conn, acme: Any) -> None:
    from tenants.models import PlanPool, Tenant
    from tests.api.makers import begin

    assert (api.get("usage").body["pools"], api.get("usage").body["worker_group"]) == ([], None)
    slots = PlanPool.objects.create(plan=acme.plan, pool="http", reserved_slots=2, max_slots=5)
    Tenant.objects.filter(pk=acme.pk).update(worker_group="gold")
    try:
        begin(conn, make.execution()["id"])
        make.execution()
        found = api.get("usage").body
    finally:
        slots.delete()
        Tenant.objects.filter(pk=acme.pk).update(worker_group="")
    assert found["pools"] == [{"pool": "http", "reserved_slots": 2, "max_slots": 5, "use": 1}]
    assert found["worker_group"] == "gold"


@pytest.mark.parametrize("path", ["usage", "usage/history"])
def test_few_statements(api: Api, make: Makers, statements: list[str], path: str) -> None:
    make.schedule()
    statements.clear()
    assert api.get(path).status == 200
    assert len(statements) <= MOST_STATEMENTS, statements
