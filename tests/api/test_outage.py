"""A database that is gone, or that holds still: what probes and requests get."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import OperationalError

from tenants import template
from tenants.models import Tenant
from tests.api.test_problems import refused
from tests.fixtures_api import Api


def lost(*_: Any, **__: Any) -> Any:
    raise OperationalError("gone")


def timed_out(*_: Any, **__: Any) -> Any:
    raise psycopg.errors.ConnectionTimeout("connection timeout expired")


def closed(*_: Any, **__: Any) -> Any:
    raise psycopg.InterfaceError("the connection is closed")


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"postgresql://someone@127.0.0.1:{listening.getsockname()[1]}/nothing"


@pytest.mark.parametrize("how", [lost, timed_out, closed])
@pytest.mark.parametrize("where", ["apikey_look", "_tenant_of_host", "door.inside"])
def test_a_lost_database_is_503_wherever_it_is_missed(
    api: Api, monkeypatch: pytest.MonkeyPatch, where: str, how: Any
) -> None:
    from apps.api import middleware

    monkeypatch.setattr(f"{middleware.__name__}.{where}", how)
    answer = api.get("jobs")
    refused(answer, 503, "unavailable")
    assert answer.headers["Retry-After"] == "1"


def test_pages_without_a_database_are_503(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.test import Client

    from apps.api import middleware

    request: Any = type("Request", (), {"request_id": "r"})()
    hook = middleware.TenantMiddleware(lost).process_exception
    answer = hook(request, psycopg.OperationalError("gone"))
    assert answer is not None and (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert hook(request, ValueError("ours")) is None
    monkeypatch.setattr(middleware, "_tenant_of_host", lost)
    page = Client(raise_request_exception=False).get("/")
    assert (page.status_code, page["Retry-After"]) == (503, "1")


def test_probes_come_with_any_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.test import Client

    client = Client(headers={"Host": "10.0.0.7"})
    assert (client.get("/healthz").status_code, client.get("/readyz").status_code) == (200, 200)


def test_ready_is_who_finds_what_its_version_needs(monkeypatch: pytest.MonkeyPatch, acme: Tenant) -> None:
    """The shared schema must have it; a tenant's may wait, and only that tenant's requests can meet it."""
    from django.test import Client

    Tenant.objects.filter(pk=acme.pk).update(schema_version="older")
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "schemas_of_other_version": 1})
    Tenant.objects.filter(pk=acme.pk).update(schema_version=template.version())
    monkeypatch.setattr(template, "shared_labels", lambda: ("tenants.0001_initial", "tenants.9999_new"))
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")


def test_a_database_that_says_nothing_makes_not_ready_and_not_dead(silent: str, settings: Any) -> None:
    from django.test import Client

    settings.DATABASE_URL = silent
    client = Client(headers={"Host": "10.0.0.7"})
    began = time.monotonic()
    answer = client.get("/readyz")
    assert (answer.status_code, json.loads(answer.content)["status"]) == (503, "unavailable")
    assert time.monotonic() - began < 5
    assert client.get("/healthz").status_code == 200


def test_probes_never_touch_the_connection_of_requests(monkeypatch: pytest.MonkeyPatch, statements: list[str]) -> None:
    from django.db import connection
    from django.test import Client

    for name in ("ensure_connection", "cursor", "set_schema_to_public"):
        monkeypatch.setattr(connection, name, lost)
    client = Client()
    assert client.get("/healthz").status_code == 200
    assert statements == []
    assert client.get("/readyz").status_code == 200
