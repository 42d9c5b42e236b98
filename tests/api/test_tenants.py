"""Two tenants: neither sees, names or changes anything of the other; and which host leads where."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from kernel.clock import utc_now
from tests.api.makers import Makers
from tests.fixtures_api import Api, in_parallel
from tests.fixtures_people import People

Conn = psycopg.Connection[Any]


def operations() -> list[tuple[str, str]]:
    """(method, path) of everything that the document offers."""
    from apps.api.openapi import openapi_document

    return sorted((method.upper(), path) for path, methods in openapi_document()["paths"].items() for method in methods)


def with_ids(path: str, ids: dict[str, str]) -> str:
    for name, value in ids.items():
        path = path.replace("{" + name + "}", value)
    assert "{" not in path
    return path


def test_every_endpoint_of_one_thing_is_404_for_the_other_tenant(
    api: Api, other_api: Api, things: dict[str, str], conn: Conn
) -> None:
    before = {path: api.get(with_ids(path, things)).body for method, path in operations() if method == "GET"}
    tried = [(method, path) for method, path in operations() if "{" in path]
    assert len(tried) > 20
    for method, path in tried:
        body: Any = {"name": "mine now"} if method in ("PATCH", "PUT") else {}
        answer = other_api.call(method, with_ids(path, things), body, headers={"If-Match": "*"})
        if method == "PUT" and "{external_id}" in path:  # theirs to make, and If-Match says that it must be there
            assert (answer.status, answer.code) == (412, "stale"), (path, answer.body)
        else:
            assert (answer.status, answer.code) == (404, "not_found"), (method, path, answer.body)
    after = {path: api.get(with_ids(path, things)).body for method, path in operations() if method == "GET"}
    for path, seen in before.items():
        assert _timeless(after[path]) == _timeless(seen), path


def test_lists_hold_only_what_is_ones_own(api: Api, other_api: Api, things: dict[str, str]) -> None:
    for path in ("jobs", "schedules", "executions", "attempts", "dead-letters"):
        assert api.get(path).body["items"], path
        assert other_api.get(path).body["items"] == [], path
    for query in (f"job={things['job_id']}", "state=ready,running,dead", f"schedule={things['schedule_id']}"):
        assert other_api.get(f"executions?{query}").body["items"] == []
    assert len(other_api.get("api-keys").body["items"]) == 4


def test_things_of_another_tenant_can_not_be_named_in_a_body(other_api: Api, things: dict[str, str]) -> None:
    job = things["job_id"]
    body = {"name": "x", "job": job, "trigger": {"cron": "* * * * *"}}
    assert other_api.post("schedules", body).faults == {"/job": "not_found"}
    assert other_api.post("executions", {"job": job}).faults == {"/job": "not_found"}
    mine = Makers(other_api).schedule()
    assert other_api.patch(f"schedules/{mine['id']}", {"job": job}, If_Match="*").faults == {"/job": "not_found"}


def test_names_are_ones_own(make: Makers, other_api: Api) -> None:
    make.job(name="nightly", external_id="1")
    assert Makers(other_api).job(name="nightly", external_id="1")


def test_a_body_does_not_choose_the_tenant(api: Api, other_api: Api) -> None:
    from tests.api.makers import JOB

    assert api.post("jobs", {**JOB, "tenant": "globex"}).faults == {"/tenant": "unknown_field"}
    assert other_api.get("jobs").body["items"] == []


def test_a_key_works_on_public_hosts_and_on_its_own(acme_people: People) -> None:
    for host in ("localhost", "127.0.0.1:8000", "[::1]:8000", "ACME.localhost", "acme.localhost:8000", "localhost."):
        assert Api(acme_people.admin, host=host).get("jobs").status == 200, host


def test_a_key_on_another_tenants_host_is_refused_and_noted(
    acme_people: People, globex_people: People, conn: Conn
) -> None:
    refused = Api(acme_people.admin, host=globex_people.host).get("jobs")
    assert (refused.status, refused.code) == (403, "key_of_another_tenant")
    noted = conn.execute(
        "SELECT tenant_id, object_id, reason FROM audit_auditevent WHERE request_id = %s", [refused.body["request_id"]]
    ).fetchall()
    assert noted == [(acme_people.tenant.pk, "globex", "key_of_another_tenant")]


def test_unknown_hosts_serve_only_public_pages(acme_people: People) -> None:
    nobody = Api(acme_people.admin, host="unknown.localhost")
    assert nobody.get("schema").status == 200
    for path in ("jobs", "/admin/", "/"):
        refused = nobody.get(path)
        assert (refused.status, refused.code) == (404, "unknown_host")
    evil = Api(acme_people.admin, host="evil.example.com").get("jobs")
    assert (evil.status, evil.code) == (400, "unknown_host")


@pytest.mark.parametrize("status", ["suspended", "deleting", "provisioning"])
def test_a_tenant_that_is_not_active_is_refused(api: Api, conn: Conn, status: str) -> None:
    after = utc_now() if status == "deleting" else None
    conn.execute("UPDATE tenants_tenant SET status = %s, delete_after = %s WHERE slug = 'acme'", [status, after])
    refused = api.get("jobs")
    assert (refused.status, refused.code) == (403, "tenant_not_active")


BAD_KEYS = [
    "Bearer",
    "Bearer ",
    "Bearer x",
    "Bearer sb_",
    "Bearer sb_a_b",
    "Basic YTpi",
    "sb_x",
    "Bearer " + "x" * 5000,
]


@pytest.mark.parametrize("header", BAD_KEYS)
def test_bad_keys(acme_people: People, header: str) -> None:
    refused = Api(None).get("jobs", Authorization=header)
    assert refused.status == 401
    assert refused.code in ("invalid_key", "not_authenticated")
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="shardbeat"'


def test_almost_a_key_is_none(acme_people: People) -> None:
    key = acme_people.admin
    for near in (key[:-1], key + "x", key[:-1] + ("a" if key[-1] != "a" else "b"), key.upper(), key.swapcase()):
        assert Api(near).get("jobs").status == 401


def test_the_connection_is_public_after_every_request(
    api: Api, other_api: Api, make: Makers, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import connection as django_connection

    from apps.schedules import listing

    connection: Any = django_connection
    make.job()
    for call in (lambda: api.get("jobs"), lambda: api.get("nothing"), lambda: api.post("jobs", [])):
        call()
        assert connection.schema_name == "public"
    monkeypatch.setattr(listing, "jobs_defined", lambda _: 1 / 0)
    broken = api.get("jobs")
    assert (broken.status, broken.code) == (500, "internal_error")
    assert connection.schema_name == "public"
    monkeypatch.undo()
    assert other_api.get("jobs").body["items"] == []


def test_threads_never_see_the_other_tenant(acme_people: People, globex_people: People) -> None:
    people = [acme_people, globex_people]
    wrong: list[Any] = []
    lock = threading.Lock()

    def mixed(number: int) -> None:
        for turn in range(15):
            who = people[(number + turn) % 2]
            api = Api(who.admin, host=who.host if turn % 3 else "localhost")
            name = f"{who.tenant.slug} {number} {turn}"
            made = api.post("jobs", {"name": name, "kind": "python", "target": {"task": "shardbeat.noop"}})
            names = {one["name"].split()[0] for one in api.get("jobs?page_size=500").body["items"]}
            api.post("jobs", {"name": name, "kind": "python", "target": {}})  # a refusal in between
            if made.status != 201 or names != {who.tenant.slug}:
                with lock:
                    wrong.append((made.status, names))

    errors = [one for one in in_parallel(8, mixed) if one is not None]
    assert (wrong, errors) == ([], [])
    for who in people:
        assert len(Api(who.admin).get("jobs?page_size=500").body["items"]) == 60


def test_a_failed_transaction_does_not_leave_its_schema_behind(api: Api, other_api: Api, make: Makers) -> None:
    """A rolled back SET search_path must not leave the former tenant's path on the pooled connection."""
    job = make.job(name="of acme")
    for _ in range(3):
        assert other_api.patch(f"jobs/{job['id']}", {}, If_Match="*").status == 404
        assert other_api.get("jobs").body["items"] == []
        assert api.post("jobs", {"name": "of acme", "kind": "http", "target": job["target"]}).status == 409
        assert [one["name"] for one in api.get("jobs").body["items"]] == ["of acme"]


TIMELY = (
    "as_of", "late_s", "last_used_at", "request_id", "resets_at", "from", "to", "bars", "critical_path", "total_s",
)  # fmt: skip


def _timeless(body: Any) -> Any:
    """Without what differs from one read to the next."""
    if isinstance(body, dict):
        return {name: _timeless(value) for name, value in body.items() if name not in TIMELY}
    return [_timeless(one) for one in body] if isinstance(body, list) else body
