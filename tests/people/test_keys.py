"""Keys with scopes, and changing over from one to the next."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.fixtures_api import Api, in_parallel
from tests.fixtures_people import People

Conn = psycopg.Connection[Any]


def issue(api: Api, role: str = "admin", *scopes: str, **more: Any) -> Any:
    body = {"name": "k", "role": role, **({"scopes": list(scopes)} if scopes else {}), **more}
    return api.post("api-keys", body)


def test_a_key_does_what_its_scopes_name_and_no_more(api: Api, conn: Conn) -> None:
    made = issue(api, "editor", "schedule.*", "*.read", "*.read").body
    assert made["scopes"] == ["*.read", "schedule.*"] and made["created_by"] == "key:admin key (admin)"
    key = Api(made["key"])
    assert key.get("jobs").status == key.get("schedules").status == 200
    refused = key.post("jobs", {})
    assert (refused.status, refused.code, refused.body["needs"]) == (403, "scope_missing", "job.create")
    assert key.get("api-keys").code == "role_too_low", "a scope lifts no role"
    query = "SELECT action, reason FROM audit_auditevent WHERE request_id = %s AND NOT allowed"
    assert conn.execute(query, [refused.body["request_id"]]).fetchall() == [("job.create", "scope job.create")]


@pytest.mark.parametrize(
    ("scopes", "pointer", "code"),
    [
        ([], "/scopes", "required"),
        (["*"], "/scopes/0", "unknown_scope"),
        (["job.read", "*.*"], "/scopes/1", "unknown_scope"),
        (["JOB.READ"], "/scopes/0", "unknown_scope"),
        (["job.read "], "/scopes/0", "unknown_scope"),
        (["job.read"] * 51, "/scopes", "too_many"),
        ("job.read", "/scopes", "type"),
        ({"job": "read"}, "/scopes", "type"),
        ([1], "/scopes", "type"),
        ([None], "/scopes", "type"),
        ([["job.read"]], "/scopes", "type"),
        (["x" * 10_000], "/scopes/0", "unknown_scope"),
        (["a\x00b"], "/scopes/0", "invalid_character"),
    ],
)
def test_what_is_no_scope(api: Api, scopes: Any, pointer: str, code: str) -> None:
    answer = api.post("api-keys", {"name": "k", "role": "viewer", "scopes": scopes})
    assert answer.status == 400 and answer.faults.get(pointer) == code, answer.body
    assert len(api.get("api-keys").body["items"]) == 4


def test_nobody_hands_out_more_than_they_have(api: Api) -> None:
    narrow = Api(issue(api, "admin", "apikey.*", "job.read").body["key"])
    assert issue(narrow, "admin", "job.read").status == 201
    assert issue(narrow, "viewer", "job.read").status == 201
    for role, scopes in (("admin", ()), ("admin", ("*.read",)), ("editor", ("job.*",)), ("viewer", ())):
        refused = issue(narrow, role, *scopes)
        assert (refused.status, refused.code) == (403, "grant_too_high"), (role, scopes)
    assert narrow.post("invitations", {"email": "x@acme.test", "role": "viewer"}).code == "scope_missing"


def test_a_narrow_key_rotates_no_wider_one(api: Api) -> None:
    wide = issue(api, "admin").body["id"]
    narrow = issue(api, "admin", "apikey.*").body
    answer = Api(narrow["key"]).post(f"api-keys/{wide}/rotate", {})
    assert (answer.status, answer.code) == (403, "grant_too_high")
    assert Api(narrow["key"]).post(f"api-keys/{narrow['id']}/rotate", {}).status == 201, "itself it may"


def test_a_narrow_key_gives_people_no_role(api: Api) -> None:
    narrow = Api(issue(api, "admin", "invitation.*", "member.*").body["key"])
    assert narrow.post("invitations", {"email": "x@acme.test", "role": "viewer"}).code == "grant_too_high"


def test_changing_over(api: Api, conn: Conn) -> None:
    old = issue(api, "editor", "job.*").body
    answer = api.post(f"api-keys/{old['id']}/rotate", {"overlap_s": 3600})
    new = answer.body
    assert answer.status == 201 and answer.headers["Location"] == f"/api/v1/api-keys/{new['id']}"
    assert (new["name"], new["role"], new["scopes"], new["replaces"]) == ("k", "editor", ["job.*"], old["id"])
    assert Api(old["key"]).get("jobs").status == Api(new["key"]).get("jobs").status == 200
    seen = api.get(f"api-keys/{old['id']}").body
    ends_at = datetime.fromisoformat(seen["expires_at"])
    assert ends_at - datetime.fromisoformat(seen["rotated_at"]) == timedelta(hours=1)
    conn.execute("UPDATE tenants_apikey SET expires_at = now() WHERE id = %s", [old["id"]])
    assert Api(old["key"]).get("jobs").status == 401
    assert Api(new["key"]).get("jobs").status == 200
    row = conn.execute("SELECT before, after FROM audit_auditevent WHERE action = 'apikey.rotate'").fetchone()
    assert row is not None and row[0]["id"] == old["id"] and old["key"] not in str(row) and new["key"] not in str(row)


def test_at_once(api: Api) -> None:
    old = issue(api, "viewer").body
    assert api.post(f"api-keys/{old['id']}/rotate", {"overlap_s": 0}).status == 201
    assert Api(old["key"]).get("jobs").status == 401


def test_a_key_has_one_successor(api: Api) -> None:
    old = issue(api, "viewer").body["id"]
    new = api.post(f"api-keys/{old}/rotate").body
    again = api.post(f"api-keys/{old}/rotate")
    assert (again.status, again.code, again.body["successor"]) == (409, "already_rotated", new["id"])
    assert api.post(f"api-keys/{new['id']}/rotate").status == 201


def test_one_successor_of_many_at_once(api: Api, acme_people: People) -> None:
    old = issue(api, "viewer").body["id"]
    apis = [Api(acme_people.admin) for _ in range(8)]
    found = in_parallel(8, lambda number: apis[number].post(f"api-keys/{old}/rotate").status)
    assert sorted(found) == [201] + [409] * 7


def test_what_is_over_is_not_rotated(api: Api, conn: Conn) -> None:
    revoked, expired = issue(api, "viewer").body["id"], issue(api, "viewer").body["id"]
    api.delete(f"api-keys/{revoked}")
    conn.execute("UPDATE tenants_apikey SET expires_at = now() WHERE id = %s", [expired])
    for key in (revoked, expired):
        assert api.post(f"api-keys/{key}/rotate").code == "key_over"


def test_the_successor_lives_as_long_and_the_overlap_not_longer(api: Api) -> None:
    soon = (datetime.now().astimezone() + timedelta(hours=2)).isoformat()
    old = issue(api, "viewer", expires_at=soon).body
    new = api.post(f"api-keys/{old['id']}/rotate", {"overlap_s": 86_400}).body
    assert api.get(f"api-keys/{old['id']}").body["expires_at"] == old["expires_at"], "never longer than it had"
    life = datetime.fromisoformat(new["expires_at"]) - datetime.fromisoformat(new["created_at"])
    assert abs(life - timedelta(hours=2)) < timedelta(minutes=1)


@pytest.mark.parametrize("overlap", [-1, 1.5, "1", True, 30 * 86_400 + 1, [], 10**30])
def test_what_is_no_overlap(api: Api, overlap: Any) -> None:
    old = issue(api, "viewer").body["id"]
    answer = api.post(f"api-keys/{old}/rotate", {"overlap_s": overlap})
    assert answer.status == 400, answer.body
    assert api.get(f"api-keys/{old}").body["rotated_at"] is None


def test_a_replayed_rotation_shows_no_key(api: Api) -> None:
    old = issue(api, "viewer").body["id"]
    first = api.post(f"api-keys/{old}/rotate", {}, Idempotency_Key="r")
    again = api.post(f"api-keys/{old}/rotate", {}, Idempotency_Key="r")
    assert first.body["key"] and again.body == {**first.body, "key": None}


def test_a_rehearsed_rotation_changes_nothing(api: Api) -> None:
    old = issue(api, "viewer").body["id"]
    answer = api.post(f"api-keys/{old}/rotate?validate_only=true", {})
    assert answer.status == 200 and answer.body["key"] is None
    assert api.get(f"api-keys/{old}").body["rotated_at"] is None


def test_the_other_tenant_rotates_nothing(api: Api, other_api: Api) -> None:
    old = issue(api, "viewer").body
    assert other_api.post(f"api-keys/{old['id']}/rotate").status == 404
    assert Api(old["key"]).get("jobs").status == 200
