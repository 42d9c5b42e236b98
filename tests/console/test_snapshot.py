"""The snapshot that all pages share: made once by whoever is first, told apart by what changed."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.console.conftest import HOSTILE, logged_in
from tests.fixtures_flow import live_worker, make_job, make_schedule, make_ticket, queue_of

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry

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


def test_a_database_of_another_version_is_said(
    page: Any, conn: Conn, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lacks a column is told, by the pages that can do without it and by one that can't."""
    from apps.console.machines import shards_read
    from apps.console.snapshot import reading, store

    missing = "SELECT no_such_column FROM due_dispatcher LIMIT %s"
    page.get("/admin/")
    monkeypatch.setattr(reading, "_DISPATCHERS", missing)
    monkeypatch.setattr(shards_read, "_DISPATCHERS", missing)
    anew(conn)
    known = page.get("/admin/tenants/").content.decode()
    assert "The state of the platform can&#x27;t be read" in known and "Oldest due" in known
    conn.execute("DELETE FROM console_snapshot")
    store.kept.forget()
    cause = page.get("/admin/cause/").content.decode()
    assert "manage.py tenant_migrate" in cause and "no_such_column" in cause
    assert page.get(LIVE).json()["parts"]["tiles"] == ""
    for path in ("/admin/shards/", "/admin/shards/fire-1/"):
        told = page.get(path)
        assert told.status_code == 503 and b"manage.py tenant_migrate" in told.content


def test_what_operators_did_is_seen_below_any_number_of_others(conn: Conn, acme: Tenant) -> None:
    """A busy API writes hundreds of rows a minute; none of them hides an operator's pause."""
    from apps.audit.actors import Actor, operator
    from apps.audit.services import record
    from apps.console.snapshot import reading
    from kernel.clock import utc_now

    now = utc_now()
    hour_ago = now - timedelta(hours=1)
    ada, cron = Actor("admin:ada", "admin", subject=operator(7)), Actor("command:replay", "admin")
    for actor, action, at in (
        (ada, "dispatch.pause", now - timedelta(minutes=50)), (cron, "operation.create", now - timedelta(minutes=40)),
        (ada, "dispatch.resume", now - timedelta(minutes=70)), (ada, "session.begin", now - timedelta(minutes=1)),
    ):  # fmt: skip
        record(actor=actor, action=action, object_type="dispatch", object_id="all", now=at, tenant_id=None)
    conn.execute(
        "INSERT INTO audit_auditevent (at, tenant_id, actor, subject, action, object_type, object_id, allowed, reason,"
        " request_id) SELECT %s, %s, 'key:x', 'key:1', 'execution.submit', 'execution', n::text, true, '', ''"
        " FROM generate_series(1, 501) n", [now, acme.pk],
    )  # fmt: skip
    assert [row[1] for row in reading.changes(conn, since=hour_ago)] == ["operation.create", "dispatch.pause"]
    with conn.transaction():
        conn.execute("SET LOCAL enable_seqscan = off")
        plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {reading._CHANGES}", [hour_ago, reading.CHANGES]))
    assert re.search(r"audit_by_operators.*\n\s+Index Cond: \(at >=", plan), plan


def test_a_paused_tenant_is_told_and_its_resume_explains_lateness(
    page: Any, conn: Conn, acme: Tenant, globex: Tenant
) -> None:
    """By the sentence and by doctor, with its name; what had waited is late, and the evidence says why."""
    from django.conf import settings

    from apps.audit.actors import Actor, operator
    from apps.console.snapshot import gathering
    from apps.console.verdict import rules, work
    from apps.console.verdict.values import Spell
    from apps.dispatch.examining import examine
    from kernel.clock import utc_now
    from tenants.pauses import dispatch_pause, dispatch_resume, tenant_dispatch_set

    def doctor() -> tuple[bool, str]:
        return next((one.ok, one.detail) for one in examine(conn, settings.BROKER_URL) if one.name == "pauses")

    def paused() -> list[str]:
        facts, _ = gathering.gather(conn, {})
        return [one.sentence for one in rules.verdicts(facts) if one.code == "tenant_paused"]

    assert (doctor(), paused()) == ((True, "none"), [])
    ada, now = Actor("admin:ada", "admin", subject=operator(7)), utc_now()
    for tenant in (globex, acme):
        tenant_dispatch_set(tenant=tenant, paused=True, actor=ada, now=now)
    assert paused() == ["Dispatch of 2 tenants is paused: acme, globex."]
    dispatch_pause(pool="http", tenant_id=acme.pk, actor=ada, now=now)
    told = "operators hold back 3: all pools of tenant acme, all pools of tenant globex, http of tenant acme."
    assert doctor() == (False, f"{told} Resume them in the admin")
    assert paused() == ["3 pauses of single tenants: acme, globex, pool http of acme."]
    anew(conn)
    shown = page.get("/admin/cause/?code=tenant_paused").content.decode()
    assert "/admin/do/tenant.resume/acme/" in shown and "/admin/tenants/?q=globex" in shown

    dispatch_resume(pool="http", tenant_id=acme.pk, actor=ada, now=now)
    tenant_dispatch_set(tenant=acme, paused=False, actor=ada, now=now + timedelta(milliseconds=1))
    facts, _ = gathering.gather(conn, {})
    late = work.was_late(replace(facts, lately=Spell(times=9, p99_s=33.0)))
    assert late and ("Resumed by an operator", "tenant.resume, tenant acme: what had waited until then is late") in [
        (one.what, one.scope) for one in late.evidence
    ]
    assert paused() == ["Dispatch of 1 tenant is paused: globex."]


def fails(conn: Conn, tenant: Tenant, *, minutes: int, attempts: int) -> None:
    """So many attempts of a tenant failed so long ago, and no other ended."""
    from apps.usage import deltas
    from apps.usage.figures import ATTEMPTS, ATTEMPTS_FAILED, SUCCEEDED, Cause, Tally
    from kernel.clock import utc_now
    from kernel.ids import uuid7

    tally = Tally()
    for key in (ATTEMPTS, ATTEMPTS_FAILED, SUCCEEDED):
        tally.add(tenant.pk, key, attempts)
    tally.failed(tenant.pk, Cause("ab" * 32, "HttpStatus", "503", "a.example"), execution_id=uuid7(), attempts=attempts)
    deltas.add(conn, tally, now=utc_now() - timedelta(minutes=minutes))


def test_the_link_of_a_number_leads_to_what_was_counted(
    page: Any, conn: Conn, registry: Registry, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.console.snapshot import checks, drawing, gathering
    from apps.console.verdict import machines, rules, work
    from apps.dispatch.pressure.gauges import count, measure
    from apps.dispatch.pressure.loading import Past
    from apps.usage.rolling import roll_up

    monkeypatch.setattr("apps.console.snapshot.store.FRESH_S", 60.0)
    for minutes, attempts in ((1, 120), (30, 50), (180, 11)):
        fails(conn, acme, minutes=minutes, attempts=attempts)
    while roll_up(conn):
        pass
    job = make_job(acme)
    for _ in range(3):
        make_schedule(acme, job)
    first, _, _ = (make_ticket(acme, job) for _ in range(3))
    conn.execute(
        "UPDATE tickets_ticket SET rank = NULL, available_at = now() + interval '1 h' WHERE execution_id = %s", [first]
    )
    registry.refresh(force=True)
    worker = live_worker(conn, queues=["shardbeat.system"])
    conn.execute("UPDATE tickets_worker SET skew_ms = 1200")
    measure(conn, registry, count(conn), past=Past().read(conn))
    facts, memory = gathering.gather(conn, {})

    def behind(url: str) -> Any:
        answer = page.get(unescape(url if url.startswith("/") else f"/admin/{url}").partition("#")[0])
        assert answer.status_code == 200, url
        return answer.context

    tiles = {one.name: one for one in drawing.tiles(facts)}
    assert behind(tiles["Failure rate"].url)["attempts"] == facts.hour.attempts_failed == 170
    (due, due_url), (ready, ready_url) = tiles["Due backlog"].parts
    assert due == "3 due" and behind(due_url)["cl"].paginator.count == 3
    assert ready == "2 ready" and len(behind(ready_url)["listed"].rows) == 2
    assert tiles["Due backlog"].value == "5" and behind(tiles["Due backlog"].url)["total"].waiting == 5

    storm, failing, unserved = work.retry_storm(facts), work.host_failing(facts), work.unserved(facts)
    assert storm and failing and unserved
    failed, later, host = storm.evidence
    assert behind(failed.url)["attempts"] == behind(host.url)["attempts"] == int(failed.value) == 120
    assert host.value == "120 failures" and behind(failing.evidence[0].url)["attempts"] == 120
    assert later.value == "1" and len(behind(later.url)["listed"].rows) == 1
    queue = unserved.evidence[0]
    assert queue.what == queue_of(registry, acme) and queue.value == "2 runs"
    assert behind(queue.url)["figures"].depth == 2
    ended = rules.on_time(facts).evidence[2]
    assert behind(ended.url)["total"].ended == int(ended.value) == 120
    skewed = machines.clock_skew(facts)
    assert skewed and skewed.evidence[0].url == f"workers/{worker}/" and behind(skewed.evidence[0].url)["one"]
    counted = {one.name: one for one in checks.checks(facts)}
    for name in ("Workers alive", "Tickets ready", "Tickets queued", "Tickets running", "Due entries put aside"):
        assert str(behind(counted[name].url)["cl"].paginator.count) == counted[name].value, name
    held = counted["Leases without live holder"]
    assert str(len(behind(held.url)["rows"])) == held.value

    parts = drawing.parts(replace(facts, oldest_due_s=34.0), rules.verdicts(facts), memory)
    assert "late</span></span>" in parts["tiles"], "not by its colour alone"
    assert 'href="/admin/cause/?code=no_dispatcher#no_dispatcher" data-key="y"' in parts["sentence"]
    links = {link for part in parts.values() for link in re.findall(r'href="([^"]+)"', part)}
    assert len(links) > 25
    for link in links:
        behind(link)


def test_the_key_of_the_sentence_is_no_other_verbs() -> None:
    from apps.console.verbs.registry import all_verbs

    assert "y" not in {one.key for one in all_verbs().values()}


def test_late_runs_of_tenants_at_limits_of_their_own_are_told_apart(conn: Conn, acme: Tenant, globex: Tenant) -> None:
    from apps.console.snapshot import reading
    from apps.dispatch.admission import CODES
    from apps.tickets import holds
    from apps.tickets.values import HoldRow
    from apps.usage import deltas
    from apps.usage.figures import DISPATCH, Tally
    from apps.usage.rolling import roll_up
    from kernel.clock import utc_now

    assert set(reading.OWN_LIMITS) < set(CODES)
    now, tally = utc_now(), Tally()
    for tenant, seconds, runs in ((acme, 60.0, 5), (acme, 0.1, 9), (globex, 12.0, 2)):
        for _ in range(runs):
            tally.took(tenant.pk, DISPATCH, seconds)
    deltas.add(conn, tally, now=now)
    roll_up(conn)
    ago = now - timedelta(minutes=2)
    holds.write(conn, "http", [HoldRow(acme.pk, None, "job_rate", ago, now, 1, 1)])
    holds.write(conn, "http", [HoldRow(globex.pk, None, "pool_full", ago, now, 1, 1)])
    assert reading.late(conn, since=now - timedelta(minutes=5)) == (7, 5)
    conn.execute("UPDATE tickets_hold SET seen_at = now() - interval '1 h'")
    assert reading.late(conn, since=now - timedelta(minutes=5)) == (7, 0)


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
