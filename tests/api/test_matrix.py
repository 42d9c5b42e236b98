"""Every operation for everybody: all roles, scopes, sessions, no key, a key that is none, the other tenant.

It is made from the document. The rows are in tests/api/rows; an operation without its row fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import psycopg
import pytest

from apps.api.openapi import openapi_document
from apps.api.openapi_examples import ID
from tests.api.rows import Row, all_rows
from tests.api.world import World, in_body
from tests.fixtures_api import NOTHING, Answer, Api
from tests.fixtures_people import ROLES, People

Conn = psycopg.Connection[Any]
ROWS = all_rows()
JSON = "application/json"
COUNT = count(1)
NOTED = ("role_too_low", "scope_missing", "key_of_another_tenant")  # refusals that the trail keeps
UNKNOWN_KEY = "sb_" + "A" * 8 + "_" + "b" * 40


@dataclass(frozen=True)
class Operation:
    """One operation of the document."""

    name: str
    method: str
    path: str
    example: Any

    def send(self, api: Api, path: str, body: Any) -> Answer:
        return api.call(self.method, path, body, headers={"If-Match": "*"})


def operations() -> list[Operation]:
    found = []
    for path, methods in openapi_document()["paths"].items():
        for method, one in methods.items():
            media = one.get("requestBody", {}).get("content", {}).get(JSON, {})
            found.append(Operation(one["operationId"], method.upper(), path, media.get("example", NOTHING)))
    return sorted(found, key=lambda one: one.name)


def action_of(operation: Operation) -> str:
    """What the permissions table is asked for."""
    from django.urls import resolve

    parts = operation.path.replace("{version}", "1").split("/")
    path = "/".join(ID if part.startswith("{") else part for part in parts)
    view: Any = resolve(path).func
    return str(view.cls.actions[operation.method])


@pytest.fixture
def key_of(acme_people: People) -> Callable[[str], str]:
    """A key of acme with a role."""

    def find(role: str) -> str:
        from tenants.keys import apikey_create

        return acme_people.keys.get(role) or apikey_create(tenant=acme_people.tenant, name=role, role=role)[1]

    return find


def prepared(world: World, operation: Operation, row: Row) -> tuple[str, Any]:
    """A path and a body of new things."""
    path = world.with_things(operation.path, **row.things)
    return path, row.body(world) if row.body else in_body(world, operation.example)


def test_every_operation_has_its_row_and_every_row_its_operation() -> None:
    names = {one.name for one in operations()}
    assert names - set(ROWS) == set(), "add their rows to tests/api/rows (CONTRIBUTING.md says how)"
    assert set(ROWS) - names == set(), "these operations are gone"


def test_the_table_of_permissions_says_what_the_rows_say() -> None:
    from tenants.permissions import LEAST_ROLE

    actions = {one.name: action_of(one) for one in operations()}
    rows = {name: row.least for name, row in ROWS.items()}
    assert {name: LEAST_ROLE[action] for name, action in actions.items()} == rows
    assert set(actions.values()) == set(LEAST_ROLE), "no operation asks for these"


@pytest.mark.parametrize("operation", operations(), ids=lambda one: one.name)
def test_what_everybody_gets(
    operation: Operation, world: World, key_of: Callable[[str], str], acme_people: People, globex_people: People,
    conn: Conn,
) -> None:  # fmt: skip
    row = ROWS[operation.name]
    path, body = prepared(world, operation, row)
    allowed = {*ROLES[ROLES.index(row.least) :], *row.also}
    for who, api, status, code in refused(operation, row, allowed, key_of, acme_people, globex_people):
        answer = operation.send(api, path, body)
        assert (answer.status, answer.code) == (status, code), (who, answer.body)
        if code in NOTED:
            assert _noted(conn, answer.body["request_id"]) == 1, who
    _check_other_tenant(operation, row, Api(globex_people.admin), path, body, world)
    served = {role: Api(key_of(role)) for role in sorted(allowed)}
    served["a session of the least role"] = Session(acme_people.tenant, row.least)
    for who, api in served.items():
        if operation.method != "GET":
            path, body = prepared(world, operation, row)
        answer = operation.send(api, path, body)
        assert answer.status == row.answer, (who, answer.body)


def refused(
    operation: Operation, row: Row, allowed: Collection[str], key_of: Callable[[str], str], acme: People,
    globex: People,
) -> Iterator[tuple[str, Api, int, str]]:  # fmt: skip
    """(who, with what, status, code) of everybody who may not."""
    yield "nobody", Api(None), 401, "not_authenticated"
    yield "nobody on the tenant's host", Api(None, host=acme.host), 401, "not_authenticated"
    yield "an unknown key", Api(UNKNOWN_KEY), 401, "invalid_key"
    yield "the other tenant on this host", Api(globex.admin, host=acme.host), 403, "key_of_another_tenant"
    yield "a key with another scope", Api(_scoped(acme, but=action_of(operation))), 403, "scope_missing"
    for role in (*ROLES, "worker"):
        if role not in allowed:
            yield role, Api(key_of(role)), 403, "role_too_low"
    below = ROLES[: ROLES.index(row.least)]
    if below:
        yield "a session of a lower role", Session(acme.tenant, below[-1]), 403, "role_too_low"
    if operation.method != "GET":
        yield "a session without the form token", Session(acme.tenant, row.least, token=False), 403, "csrf_failed"
    foreign = Session(globex.tenant, "admin", host=acme.host)
    yield "a session of the other tenant", foreign, 401, "not_authenticated"
    yield "somebody who is no member", Session(None, "", host=acme.host), 401, "not_authenticated"


class Session(Api):
    """Calls of somebody who is signed in on a tenant's host; of no member at all without a tenant."""

    def __init__(self, tenant: Any, role: str, *, token: bool = True, host: str = "") -> None:
        from django.contrib.auth.models import User
        from django.test import Client

        from tenants.people import member_make
        from tests.fixtures_people import signed_in

        super().__init__(None, host=host or f"{tenant.slug}.localhost")
        number = next(COUNT)
        if tenant is None:
            self._client = Client(raise_request_exception=False)
            self._client.force_login(User.objects.create_user(f"stranger{number}"))
        else:
            member = member_make(tenant=tenant, email=f"s{number}@example.com", role=role, name="", password=None)
            member.tenant = tenant
            self._client = signed_in(member)
        self._token = {"X-CSRFToken": "x"} if token else {}

    def call(self, method: str, path: str, body: Any = NOTHING, **more: Any) -> Answer:
        """As a page of the tenant's host sends it."""
        return super().call(method, path, body, **{**more, "headers": {**(more.get("headers") or {}), **self._token}})


def _scoped(people: People, *, but: str) -> str:
    """A key with the highest role, and scopes for something else."""
    from tenants.keys import apikey_create

    scopes = ["job.read"] if but != "job.read" else ["schedule.read"]
    return apikey_create(tenant=people.tenant, name=f"scoped {next(COUNT)}", role="admin", scopes=scopes)[1]


def _check_other_tenant(operation: Operation, row: Row, api: Api, path: str, body: Any, world: World) -> None:
    """What names a thing of acme is not there; what names none shows none."""
    names_a_thing = "{" in operation.path
    expected = row.other or (404 if names_a_thing else row.answer)
    answer = operation.send(api, path, body)
    assert answer.status == expected, answer.body
    if expected in (404, 412):  # 412: a PUT that would make it, if If-Match did not say that it must be there
        assert answer.code == ("not_found" if expected == 404 else "stale")
    told = json.dumps(answer.body)
    for name, value in world.ids.items():
        assert value not in told or value in path, (name, told)


def _noted(conn: Conn, request_id: str) -> int:
    """Refusals in the trail of one request."""
    query = "SELECT count(*) FROM audit_auditevent WHERE request_id = %s AND NOT allowed"
    row = conn.execute(query, [request_id]).fetchone()
    assert row is not None
    return int(row[0])
