"""The snapshot that all pages share: made once by whoever is first, told apart by what changed."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.console.conftest import HOSTILE, logged_in
from tests.fixtures_flow import live_worker, make_ticket

if TYPE_CHECKING:
    from tenants.models import Tenant

Conn = psycopg.Connection[Any]
LIVE = "/admin/live.json"


def made(conn: Conn) -> int:
    row = conn.execute("SELECT number FROM console_snapshot").fetchone()
    return row[0] if row else 0


def anew(conn: Conn) -> None:
    """The next request makes one."""
    from apps.console.snapshot import store

    store.kept.forget()
    conn.execute("UPDATE console_snapshot SET made_at = made_at - interval '1 hour'")


def test_of_many_who_ask_at_once_one_makes_it(database: None, conn: Conn) -> None:
    """Eight threads with a connection each: one snapshot, and nobody waits for the one who makes it in vain."""
    from django.db import connection

    from apps.console.snapshot import store

    store.latest()
    anew(conn)
    before, start, found = made(conn), threading.Barrier(8), []

    def ask() -> None:
        start.wait()
        found.append(store.latest().number)
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert made(conn) == before + 1
    assert len(found) == 8 and set(found) <= {before, before + 1}, "the others have the one before, or the new one"


def test_what_is_new_is_sent_and_what_is_not_is_304(page: Any, conn: Conn, acme: Tenant) -> None:
    first = page.get(LIVE)
    assert first.status_code == 200 and first.headers["Cache-Control"].startswith("no-cache")
    assert set(first.json()["parts"]) == {"sentence", "tiles", "changes"}
    same = page.get(LIVE, headers={"If-None-Match": first.headers["ETag"]})
    assert same.status_code == 304 and not same.content
    weak = {"If-None-Match": f'"other", W/{first.headers["ETag"]}'}
    assert page.get(LIVE, headers=weak).status_code == 304, "as it comes back from behind a proxy"
    make_ticket(acme)
    anew(conn)
    other = page.get(LIVE, headers={"If-None-Match": first.headers["ETag"]})
    assert other.status_code == 200 and other.json()["number"] > first.json()["number"]
    assert "lateness" in page.get(f"{LIVE}?parts=overview").json()["parts"]
    assert page.get(f"{LIVE}?parts=nonsense").status_code == 404


def test_who_has_no_role_sees_nothing_of_it(acme: Tenant, stranger: Any) -> None:
    from django.contrib.auth.models import User

    bob = logged_in(User.objects.create_user("bob", password="not a word", is_staff=True))
    assert bob.get(LIVE).status_code == 403
    assert bob.get("/admin/").headers["Location"] == "/admin/tables/"
    tables = bob.get("/admin/tables/").content
    assert b"data-live" not in tables and b"/admin/live/" not in tables, "and is led nowhere else"
    assert stranger.get(LIVE).status_code == 302


def test_names_and_errors_of_tenants_are_text(page: Any, conn: Conn, acme: Tenant) -> None:
    """A destination's last failure, a user's name and a cause's message are whatever somebody made of them."""
    from django.contrib.auth.models import User

    from apps.audit.actors import Actor, operator
    from apps.audit.services import record
    from kernel.clock import utc_now

    eve = User.objects.create_user(HOSTILE[:150], is_staff=True)
    conn.execute(
        "INSERT INTO tickets_breaker (id, tenant_id, destination, state, failures, openings, reason, opened_at,"
        " retry_at, changed_at) VALUES (gen_random_uuid(), %s, %s, 'open', 10, 1, %s, now(), now(), now())",
        [acme.pk, HOSTILE, HOSTILE],
    )
    record(
        actor=Actor(name="admin:eve", role="admin", subject=operator(eve.pk)), action="tenant.update",
        object_type="tenant", object_id="1", now=utc_now(), tenant_id=None,
    )  # fmt: skip
    anew(conn)
    told = page.get("/admin/").content.decode() + page.get("/admin/cause/?code=host_failing").content.decode()
    assert "<script>alert" not in told and "onerror=alert" not in told.replace("&lt;img src=x onerror=alert", "")
    assert "&lt;script&gt;alert(1)" in told, "and it is shown"
    assert "Destination &lt;script&gt;" in told


def test_a_clock_that_is_set_back_does_not_keep_the_old_one(page: Any, conn: Conn, acme: Tenant) -> None:
    """Another server takes over, and its clock is an hour behind: what was made is from the future."""
    from apps.console.snapshot import store

    before = page.get(LIVE).json()["number"]
    make_ticket(acme)
    store.kept.forget()
    conn.execute(
        "UPDATE console_snapshot SET made_at = made_at + interval '1 hour', body = jsonb_set(body::jsonb,"
        " '{memory,slow,at}', to_jsonb(made_at + interval '1 hour'))::text"
    )
    told = page.get(f"{LIVE}?parts=overview").json()
    assert told["number"] == before + 1
    at = "SELECT (body::jsonb->'memory'->'slow'->>'at')::timestamptz <= now() FROM console_snapshot"
    assert conn.execute(at).fetchone() == (True,), "nor what hardly changes"


def test_a_database_that_is_too_slow_is_said(
    page: Any, conn: Conn, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was known stays; the sentence says that it is old, and why."""
    from apps.console.snapshot import gathering

    page.get("/admin/")
    anew(conn)

    def slow(conn: Conn, now: Any) -> Any:
        conn.execute("SELECT set_config('statement_timeout', '10', true)")
        conn.execute("SELECT pg_sleep(10)")

    monkeypatch.setattr(gathering, "SLOW_S", -1.0)
    monkeypatch.setattr(gathering, "_slow", slow)
    told = page.get("/admin/").content.decode()
    assert "The database is slow: its figures took 2.0 s to read." in told
    assert "Oldest due" in told


def test_one_slow_reading_is_no_news() -> None:
    """A process that has just begun is slow once; three in a row are the database's."""
    from apps.console.snapshot.gathering import timed
    from apps.console.verdict.values import Facts
    from kernel.clock import utc_now

    facts, told = Facts(now=utc_now()), []
    memory: dict[str, Any] = {}
    for took_ms in (3_000.0, 20.0, 2_000.0, 3_000.0, 4_000.0, 5_000.0):
        seen, memory = timed(facts, memory, took_ms=took_ms)
        told.append(seen.took_ms)
    assert told == [0.0, 0.0, 20.0, 20.0, 2_000.0, 3_000.0]


def test_queues_that_nobody_listens_to_are_named(conn: Conn, acme: Tenant) -> None:
    from apps.console.snapshot import reading
    from tenants.models import Tenant

    live_worker(conn, queues=["http.own.acme"])
    live_worker(conn, queues=["python.own.acme"], draining=True)
    assert reading.unheard(conn, ["http.own.acme", "python.own.acme"]) == ["python.own.acme"]
    assert reading.unheard(conn, []) == []
    Tenant.objects.filter(pk=acme.pk).update(dispatch_paused=True)  # an operator holds it back: no worker would help
    assert reading.unheard(conn, ["python.own.acme", "python.own.acme@vip", "python.shared.0"]) == ["python.shared.0"]


def test_late_writes_of_workers_are_told_while_they_are_new() -> None:
    """The workers' own counters grow; what had grown before they were first seen, or five minutes ago, is no news."""
    from apps.console.snapshot.gathering import _stale_writes
    from kernel.clock import utc_now

    now = utc_now()
    first = _stale_writes(None, {"w": 7}, now)
    assert first["grown"] == []
    second = _stale_writes(first, {"w": 9, "x": 1}, now + timedelta(seconds=1))
    assert sum(count for _, count in second["grown"]) == 3
    later = _stale_writes(second, {"w": 9}, now + timedelta(seconds=302))
    assert later["grown"] == []
