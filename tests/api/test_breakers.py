"""/breakers: a tenant sees and resets its own."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.api.makers import NOWHERE, Makers, audit
from tests.fixtures_api import Api

Conn = psycopg.Connection[Any]


@pytest.fixture
def opened(conn: Conn, acme: Any, globex: Any) -> None:
    """Two of acme, one of globex."""
    from apps.tickets import breakers

    for tenant, destination in ((acme, "a.example:443"), (acme, "b.example:443"), (globex, "a.example:443")):
        breakers.open_(
            conn, tenant_id=tenant.pk, destination=destination, failures=10, reason="The target answered 503.",
            open_s=60, max_s=300,
        )  # fmt: skip


def test_a_tenant_sees_its_own(api: Api, other_api: Api, opened: None) -> None:
    items = api.get("breakers").body["items"]
    assert [one["destination"] for one in items] == ["b.example:443", "a.example:443"]
    assert {(one["state"], one["failures"], one["openings"]) for one in items} == {("open", 10, 1)}
    assert all(one["retry_at"] > one["opened_at"] for one in items)
    assert len(other_api.get("breakers").body["items"]) == 1


def test_filters_and_pages(api: Api, opened: None) -> None:
    assert [one["destination"] for one in api.get("breakers?destination=a.example:443").body["items"]] == [
        "a.example:443"
    ]
    assert api.get("breakers?state=closed,half_open").body["items"] == []
    assert api.get("breakers?state=broken").faults == {"?state": "choice"}
    first = api.get("breakers?page_size=1").body
    rest = api.get(f"breakers?page_size=1&cursor={first['next_cursor']}").body
    assert [one["destination"] for one in (*first["items"], *rest["items"])] == ["b.example:443", "a.example:443"]
    assert rest["next_cursor"] is None


def test_reset(api: Api, other_api: Api, conn: Conn, opened: None) -> None:
    breaker = api.get("breakers").body["items"][0]
    path = f"breakers/{breaker['id']}/reset"
    assert (other_api.post(path).status, other_api.post(path).code) == (404, "not_found")
    done = api.post(path)
    assert (done.status, done.body["state"], done.body["retry_at"]) == (200, "closed", None)
    again = api.post(path)
    assert (again.status, again.code) == (409, "breaker_closed")
    assert audit(conn, breaker["id"]) == ["breaker.reset"]
    assert api.post(f"breakers/{NOWHERE}/reset").status == 404


def test_a_run_says_what_it_waits_for(api: Api, make: Makers, conn: Conn, registry: Any) -> None:
    from tests.api.makers import begin, settle

    run = make.execution()
    assert api.get(f"executions/{run['id']}").body["wait_reason"] is None
    error = {"class": "breaker_open", "message": "put off", "destination": "a.example:443"}
    settle(conn, registry, begin(conn, run["id"]), "returned", error=error, retry_after_s=60)
    seen = api.get(f"executions/{run['id']}").body
    assert (seen["state"], seen["wait_reason"]) == ("ready", "breaker_open a.example:443")
    (attempt,) = api.get(f"executions/{run['id']}/attempts").body["items"]
    assert (attempt["state"], attempt["error"]["class"]) == ("returned", "breaker_open")
    begin(conn, run["id"])
    assert api.get(f"executions/{run['id']}").body["wait_reason"] is None
