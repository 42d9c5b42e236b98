"""Public bug reports about the API itself, from tests/cases/http.jsonl. The design's statuses win."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import psycopg
import pytest

from tests.api.makers import Makers, begin, settle
from tests.executors.works import case
from tests.fixtures_api import Api
from tests.fixtures_people import People

Conn = psycopg.Connection[Any]


def test_run_now_works_twice_and_once_per_request_key_e16(api: Api, make: Makers, conn: Conn, registry: Any) -> None:
    """The third request is the second one again: the same run, told to be a replay (202 as the first time)."""
    expected = case("http", "E16")["expected"]
    schedule = make.schedule()
    path = f"schedules/{schedule['id']}/trigger"
    first = api.post(path, Idempotency_Key="now-1")
    settle(conn, registry, begin(conn, first.body["id"]))
    second = api.post(path, Idempotency_Key="now-2")
    third = api.post(path, Idempotency_Key="now-2")
    assert (first.status, second.status, third.status) == (202, 202, 202)
    assert third.body["id"] == second.body["id"] != first.body["id"]
    assert third.headers["Idempotency-Replayed"] == "true"
    runs = [one for one in api.get(f"executions?schedule={schedule['id']}").body["items"] if one["trigger"] == "manual"]
    assert len(runs) == expected["runs"]
    assert len({one["run_key"] for one in runs}) == expected["runs"], "each has an idempotency key of its own"


def test_no_answer_without_a_key_e22(api: Api, make: Makers, acme_people: People) -> None:
    """An answer that one key got is given to nobody else, and not to the same key once it is revoked."""
    expected = case("http", "E22")["expected"]["http_status"]
    job = make.job()
    path = f"jobs/{job['id']}"
    made = api.post("api-keys", {"name": "short", "role": "viewer"}).body
    reader = Api(made["key"])
    read = reader.get(path)
    without = Api(None).get(path)
    conditional = Api(None).get(path, If_None_Match=read.etag)
    assert api.delete(f"api-keys/{made['id']}").status == 204
    revoked = reader.get(path, If_None_Match=read.etag)
    assert [read.status, without.status, revoked.status] == expected
    assert conditional.status == 401
    assert read.headers["Cache-Control"] == without.headers["Cache-Control"] == "no-store"


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Nothing was counted before this test."""
    from apps.api.throttle import attempts_of
    from tenants.rates import rates

    rates().forget_all()
    attempts_of.cache_clear()
    yield
    rates().forget_all()


def test_what_a_client_says_of_its_address_resets_no_limit_e21(
    api: Api, make: Makers, conn: Conn, plan: Any, settings: Any, forgetful: None
) -> None:
    """The case as it is given: behind one proxy of ours, forged addresses in each request; with a key and without."""
    found = case("http", "E21")
    given, accepted = found, found["expected"]["accepted"]
    limit = int(given["limit"].removesuffix("/min"))
    settings.TRUSTED_PROXIES, settings.FAILED_AUTH_PER_MIN = given["trusted_proxies"], limit
    make.job()
    plan(max_api_requests_per_min=limit)
    with_key, without = [], []
    for _ in range(given["requests"]):
        forged = f"{ip_address(secrets.randbits(32))}"
        headers = {"X-Forwarded-For": f"{forged}, 203.0.113.7", "Forwarded": f"for={forged}", "X-Real-IP": forged}
        with_key.append(api.call("GET", "jobs", headers=headers).status)
        without.append(Api("sb_wrong").call("GET", "jobs", headers=headers).status)
    refused = given["requests"] - accepted
    assert Counter(with_key) == {200: accepted, 429: refused}
    assert Counter(without) == {401: accepted, 429: refused}
    somebody = {"X-Forwarded-For": f"203.0.113.7, {ip_address('203.0.113.8')}"}
    assert Api("sb_wrong").call("GET", "jobs", headers=somebody).status == 401, "nobody else is blamed"
    rows = conn.execute("SELECT * FROM audit_auditevent").fetchall()
    assert rows and "203.0.113." not in str(rows)
