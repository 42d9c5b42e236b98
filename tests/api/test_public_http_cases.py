"""Public bug reports about the API itself, from tests/cases/http.jsonl. The design's statuses win."""

from __future__ import annotations

from typing import Any

import psycopg

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


def test_what_a_client_says_of_its_address_changes_nothing_e21(api: Api, make: Makers, conn: Conn) -> None:
    """Nothing is decided by an address; the limits that come are per key and tenant. A forwarded one is never noted."""
    given = case("http", "E21")
    for number in range(given["requests"]):
        address = f"10.9.8.{number}"
        headers = {"X-Forwarded-For": address, "Forwarded": f"for={address}", "X-Real-IP": address}
        assert api.call("GET", "jobs", headers=headers).status == 200
        assert Api("sb_wrong").call("GET", "jobs", headers=headers).status == 401
    make.job()
    rows = conn.execute("SELECT * FROM audit_auditevent").fetchall()
    assert rows and "10.9.8." not in str(rows)
