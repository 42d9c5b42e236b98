"""What is noted and said when a role does not reach; who gets what at which endpoint is in test_matrix.py."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.api.makers import NOWHERE, Makers
from tests.api.test_tenants import operations
from tests.fixtures_api import Api
from tests.fixtures_people import People

Conn = psycopg.Connection[Any]


def action_of(method: str, path: str) -> str:
    """What the permissions table is asked for."""
    from django.urls import resolve

    view: Any = resolve(_somewhere(path)).func
    return str(view.cls.actions[method])


def _somewhere(path: str) -> str:
    numbered = path.replace("{version}", "1")
    return "/".join(NOWHERE if part.startswith("{") else part for part in numbered.split("/"))


def test_the_table_is_as_documented() -> None:
    from tenants.permissions import LEAST_ROLE

    used = {action_of(method, path) for method, path in operations()}
    assert used == set(LEAST_ROLE)
    reads = {one for one in used if one.endswith((".read", ".preview"))} - {
        "apikey.read",
        "audit.read",
        "hold.read",
        "invitation.read",
        "member.read",
        "provider.read",
    }
    assert {one for one, role in LEAST_ROLE.items() if role == "viewer"} == reads


def test_a_refused_change_changes_nothing(acme_people: People, make: Makers, api: Api) -> None:
    job = make.job()
    viewer = Api(acme_people.viewer)
    assert viewer.get(f"jobs/{job['id']}").body == job
    for method, path, body in (
        ("PATCH", f"jobs/{job['id']}", {"name": "x"}),
        ("DELETE", f"jobs/{job['id']}", {}),
        ("POST", f"jobs/{job['id']}/pause", {}),
        ("POST", "jobs", {"name": "x", "kind": "http", "target": job["target"]}),
    ):
        assert viewer.call(method, path, body, headers={"If-Match": "*"}).status == 403
    assert api.get("jobs").body["items"] == [job]


def test_what_is_refused_does_not_depend_on_whether_it_exists(acme_people: People, make: Makers) -> None:
    job = make.job()
    viewer = Api(acme_people.viewer)
    there = viewer.delete(f"jobs/{job['id']}", If_Match="*")
    missing = viewer.delete(f"jobs/{NOWHERE}", If_Match="*")
    drop = ("request_id",)
    assert {k: v for k, v in there.body.items() if k not in drop} == {
        k: v for k, v in missing.body.items() if k not in drop
    }


@pytest.mark.parametrize("path", ["queues/leases/{}/complete", "queues/{}/pause", "queues/{}/lease"])
def test_a_refusal_is_noted_without_a_token_and_within_bounds(acme_people: People, path: str, conn: Conn) -> None:
    for text in ("sbl_" + "x" * 80, "a%00b"):
        assert Api(acme_people.viewer).post(path.format(text), {}).code == "role_too_low"
    noted = conn.execute("SELECT object_id FROM audit_auditevent WHERE NOT allowed ORDER BY id").fetchall()
    expected = ["", ""] if "leases" in path else [("sbl_" + "x" * 80)[:64], "ab"]
    assert [one for (one,) in noted[-2:]] == expected


def test_an_unknown_role_may_nothing(acme_people: People) -> None:
    from apps.audit.services import Actor
    from tenants.permissions import LEAST_ROLE, may

    assert not any(may(Actor("x", role, 1), action) for action in LEAST_ROLE for role in ("", "root", "Admin"))
