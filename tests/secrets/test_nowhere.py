"""Case E19: a secret is found in none of the places where others look; real processes, logs at their loudest.

Everything that runs is searched afterwards: the logs of dispatcher and worker, all that went to the broker, every row
of every table, every answer of the API, every page of the admin, and what this process, which is the web, has logged.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from psycopg import sql

from tests.conftest import wait_until
from tests.executors.receiver import Receiver
from tests.executors.works import case
from tests.fixtures_api import Api
from tests.processes import Processes

Conn = psycopg.Connection[Any]
SECRET = str(case("http", "E19")["secret"])
SHOWN_AS = str(case("http", "E19")["expected"]["shown_as"])
FORMS = (SECRET, *(base64.b64encode(one.encode()).decode() for one in (SECRET, f"me:{SECRET}")), SECRET.encode().hex())
TABLES = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = 'public' OR schemaname LIKE 't\\_%'"


@pytest.fixture
def wire(broker: Any) -> Iterator[list[str]]:
    """All commands that the broker is given."""
    client = redis.Redis.from_url(broker.url, encoding_errors="replace", socket_timeout=None)
    seen: list[str] = []
    with client.monitor() as monitor:

        def listen() -> None:
            while True:
                command = str(monitor.next_command()["command"])
                if "end of the test" in command:
                    return
                seen.append(command)

        thread = threading.Thread(target=listen)
        thread.start()
        yield seen
        client.echo("end of the test")
        thread.join(30)
    client.close()


def targets(receiver: Receiver, closed: int) -> dict[str, dict[str, Any]]:
    """Jobs that carry the secret in all ways there are, and that end well and badly."""
    named, bearer = {"secret": "MARKER"}, {"type": "bearer", "token": {"secret": "MARKER"}}
    literal = {"Authorization": f"Bearer {SECRET}", "Cookie": f"s={SECRET}", "X-Api-Key": SECRET}
    oauth2 = {
        "type": "oauth2_client_credentials", "token_url": receiver.url("/echo"), "client_id": "me",
        "client_secret": named,
    }  # fmt: skip
    return {
        "echo of all": {"url": receiver.url(f"/echo?token={SECRET}"), "headers": {**literal, "X-Mine": named}},
        "echo of basic": {"url": receiver.url("/echo"), "auth": {"type": "basic", "username": "me", "password": named}},
        "body": {"url": receiver.url("/echo"), "body": {"password": named}, "auth": bearer},
        "fails": {"url": receiver.url(f"/status/500?api_key={SECRET}"), "headers": literal},
        "no server": {"url": f"http://127.0.0.1:{closed}/?token={SECRET}", "headers": {"X-Mine": named}},
        "hidden url": {"url": {"secret": "URL"}},
        "bad url": {"url": {"secret": "LINES", "prefix": f"http://127.0.0.1:{closed}/"}},
        "bad header": {"url": receiver.url(), "headers": {"X-Mine": {"secret": "LINES"}}},
        "no token": {"url": receiver.url(), "auth": oauth2},
        "bad signature": {
            "url": receiver.url(), "auth": {"type": "signature", "scheme": "hmac-sha256", "secrets": [named]},
        },
        "bad certificate": {
            "url": f"https://127.0.0.1:{closed}/", "auth": {"type": "mtls", "certificate": named, "key": named},
        },
    }  # fmt: skip


@pytest.mark.timeout(240)
def test_a_secret_is_nowhere_e19(
    processes: Processes, wire: list[str], api: Api, acme: Any, conn: Conn, receiver: Receiver, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    answers: list[str] = []

    def asked(method: str, path: str, body: Any = None, **headers: str) -> Any:
        answer = api.call(method, path, body, headers=headers) if body is not None else api.call(method, path)
        answers.append(json.dumps([answer.body, answer.headers]))
        return answer

    for name, value in {
        "MARKER": SECRET,
        "URL": receiver.url(f"/echo?x={SECRET}"),
        "LINES": f"{SECRET}\r\nX: y",
    }.items():
        assert asked("POST", "secrets", {"name": name, "value": value}, Idempotency_Key=name).status == 201
    refused = asked("POST", "jobs", {"name": "u", "kind": "http", "target": {"url": f"http://me:{SECRET}@127.0.0.1/"}})
    assert refused.faults == {"/target/url": "user_in_url"}
    asked("POST", "secrets", {"name": SECRET * 9, "value": ""})
    jobs = {}
    for name, target in targets(receiver, closed_port()).items():
        made = asked(
            "POST",
            "jobs",
            {"name": name, "kind": "http", "target": target, "timeout_s": 5, "retry": {"max_attempts": 1}},
        )
        assert made.status == 201, made.body
        jobs[name] = made.body
    processes.dispatcher(LOG_LEVEL="DEBUG")
    processes.worker(LOG_LEVEL="DEBUG", WORKER_POOLS="http")
    runs = {
        name: asked("POST", "executions", {"job": job["id"]}, Idempotency_Key=name).body for name, job in jobs.items()
    }

    def ended(run: dict[str, Any]) -> bool:
        return api.get(f"executions/{run['id']}").body["finished_at"] is not None

    wait_until(lambda: all(map(ended, runs.values())), "all runs to end", timeout_s=90)
    results = {name: api.get(f"executions/{run['id']}").body for name, run in runs.items()}

    # The secret was really sent, and what came back is masked and not just missing.
    sent = [request for request in receiver.requests if SECRET in json.dumps(request.headers) + request.path]
    assert {"/echo", "/status"} <= {"/" + request.path.split("/")[1].partition("?")[0] for request in sent}
    outcomes = {name: (one["state"], (one["error"] or {}).get("class")) for name, one in results.items()}
    assert outcomes == {
        "echo of all": ("succeeded", None),
        "echo of basic": ("succeeded", None),
        "body": ("succeeded", None),
        "fails": ("dead", "http_status"),
        "no server": ("dead", "connect_failed"),
        "hidden url": ("succeeded", None),
        "bad url": ("dead", "bad_target"),
        "bad header": ("dead", "bad_target"),
        "no token": ("dead", "token_failed"),
        "bad signature": ("dead", "bad_target"),
        "bad certificate": ("dead", "bad_target"),
    }
    for name in ("echo of all", "echo of basic", "body"):
        assert SHOWN_AS in results[name]["result"]["body"]
    assert jobs["echo of all"]["target"]["headers"]["Authorization"] == SHOWN_AS
    assert jobs["echo of all"]["target"]["url"] == receiver.url(f"/echo?token={SHOWN_AS}")

    processes.close()
    lists = ["jobs", "executions", "attempts", "dead-letters", "secrets", "signing-secrets", "api-keys", "schedules"]
    for path in lists:
        asked("GET", path)
    for kind, rows in (("jobs", jobs), ("executions", runs)):
        for row in rows.values():
            asked("GET", f"{kind}/{row['id']}")
            if kind == "executions":
                asked("GET", f"executions/{row['id']}/attempts")
    logs = {path.name: path.read_text(errors="replace") for path in tmp_path.glob("*.log")}
    assert any("[debug" in text for text in logs.values()), "the logs are at their loudest"
    places: dict[str, str] = {
        **logs,
        "broker": "\n".join([*wire, *bodies(wire)]),
        "API": "\n".join(answers),
        "web log": caplog.text,
        "results": json.dumps(results),
        **dict(admin_pages(acme)),
        **dict(stored(conn)),
    }
    assert len(wire) > len(jobs) and all(run["id"].replace("-", "") in places["broker"] for run in runs.values())
    found = [name for name, text in places.items() for form in FORMS if form in text]
    assert found == [], {name: around(places[name]) for name in found}


def bodies(wire: list[str]) -> Iterator[str]:
    """What messages hold that kombu itself has sent: it writes bodies in base64."""
    for command in wire:
        for body in re.findall(r'"body": ?"([A-Za-z0-9+/=]+)"', command.replace('\\"', '"')):
            yield base64.b64decode(body).decode()


def stored(conn: Conn) -> Iterator[tuple[str, str]]:
    """Every row of every table, as the database has it."""
    for schema, table in conn.execute(TABLES).fetchall():
        rows = conn.execute(sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(schema, table))).fetchall()
        yield f"{schema}.{table}", "\n".join(row[0] for row in rows)


def admin_pages(tenant: Any) -> Iterator[tuple[str, str]]:
    """Every list of the tenant's admin with every page that it leads to, and the operators' lists."""
    from django.contrib.auth.models import User
    from django.test import Client

    from apps.console.tenant_site import tenant_site
    from tenants import door

    browser = Client()
    browser.force_login(User.objects.create_superuser("ada", password="not a word"))
    for model in tenant_site._registry:
        place = f"/t/{tenant.slug}/admin/{model._meta.app_label}/{model._meta.model_name}/"
        with door.inside(tenant):
            ids = list(model._base_manager.values_list("pk", flat=True))
        for path in (place, *(f"{place}{pk}/change/" for pk in ids)):
            yield path, browser.get(path).content.decode()
    for path in ("/admin/", "/admin/audit/auditevent/", "/admin/tickets/ticket/", "/admin/tenants/tenant/"):
        yield path, browser.get(path).content.decode()


def around(text: str) -> list[str]:
    return [text[max(0, text.index(form) - 200) : text.index(form) + 60] for form in FORMS if form in text]


def closed_port() -> int:
    """A port on which nobody listens."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
