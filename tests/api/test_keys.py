"""/api-keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.api.makers import NOWHERE, audit, utc_now
from tests.fixtures_api import Api
from tests.fixtures_people import People

Conn = psycopg.Connection[Any]


def test_a_key_is_made_used_and_revoked(api: Api, conn: Conn) -> None:
    made = api.post("api-keys", {"name": "deploy", "role": "viewer"})
    assert made.status == 201
    assert made.headers["Location"] == f"/api/v1/api-keys/{made.body['id']}"
    text = made.body["key"]
    assert text.startswith(made.body["prefix"] + "_")
    theirs = Api(text)
    assert theirs.get("jobs").status == 200
    read = api.get(f"api-keys/{made.body['id']}").body
    assert "key" not in read
    assert read["last_used_at"]
    assert api.delete(f"api-keys/{made.body['id']}").status == 204
    refused = theirs.get("jobs")
    assert (refused.status, refused.code) == (401, "invalid_key")
    assert api.get(f"api-keys/{made.body['id']}").body["revoked_at"]
    assert api.delete(f"api-keys/{made.body['id']}").status == 204
    assert audit(conn, made.body["id"]) == ["apikey.create", "apikey.revoke"]


def test_an_expired_key_is_none(api: Api, conn: Conn) -> None:
    made = api.post(
        "api-keys", {"name": "x", "role": "admin", "expires_at": (utc_now() + timedelta(hours=1)).isoformat()}
    ).body
    assert Api(made["key"]).get("jobs").status == 200
    conn.execute("UPDATE tenants_apikey SET expires_at = now() WHERE id = %s", [made["id"]])
    assert Api(made["key"]).get("jobs").status == 401


def test_lists_hold_no_secret(api: Api, acme_people: People) -> None:
    listed = api.get("api-keys")
    assert sorted(one["role"] for one in listed.body["items"]) == ["admin", "editor", "operator", "viewer"]
    for key in acme_people.keys.values():
        assert key not in str(listed.body)
        assert key.split("_")[2] not in str(listed.body)


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({"name": None}, "/name", "required"),
        ({"name": "x" * 101}, "/name", "too_long"),
        ({"role": None}, "/role", "required"),
        ({"role": "root"}, "/role", "choice"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "/expires_at", "past"),
        ({"expires_at": "never"}, "/expires_at", "format"),
        ({"tenant": "globex"}, "/tenant", "unknown_field"),
    ],
)
def test_bad_keys(api: Api, body: dict[str, Any], pointer: str, code: str) -> None:
    assert api.post("api-keys", {"name": "n", "role": "viewer", **body}).faults == {pointer: code}


def test_keys_of_another_tenant_are_not_there(api: Api, other_api: Api) -> None:
    theirs = other_api.get("api-keys").body["items"][0]["id"]
    for answer in (api.get(f"api-keys/{theirs}"), api.delete(f"api-keys/{theirs}"), api.get(f"api-keys/{NOWHERE}")):
        assert (answer.status, answer.code) == (404, "not_found")
    assert other_api.get("jobs").status == 200
