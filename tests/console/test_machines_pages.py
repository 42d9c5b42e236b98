"""Shards, dispatchers, workers, queues, operations, backfills and runs of workflows: what their pages say."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest

from tests.console.conftest import HOSTILE
from tests.fixtures_flow import NOW, live_worker, make_job, make_schedule, make_ticket, queue_of
from tests.operations.fixtures import ask, passes, read, work_off
from tests.workflows.rows import ASKS, WAITS, run_with_rows

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
STATS = '{"fire": {"fired": 7, "already_there": 2, "errors": 1, "lag_ms": 6000}, "release http": {"lag_ms": 3}}'


@pytest.fixture
def text_of(page: Any, statements: list[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Gets a page: it takes few statements, and no hostile text is more than text."""
    monkeypatch.setattr("apps.console.snapshot.store.FRESH_S", 60.0)  # made once a second for all, not by each page
    page.get("/admin/tables/")

    def get(path: str) -> str:
        statements.clear()
        answer = page.get(path)
        assert answer.status_code == 200, path
        reads = [one for one in statements if "SELECT" in one]
        assert len(reads) <= 12, (path, reads)
        text: str = answer.content.decode()
        assert "<script>alert" not in text and "<img src=x" not in text
        return text

    return get


def test_shards_say_who_holds_what_and_why(page: Any, text_of: Any, conn: Conn, acme: Tenant) -> None:
    from apps.console.snapshot import reading
    from apps.due import leases

    holder, gone = uuid.uuid4(), uuid.uuid4()
    for one, ttl_s in ((holder, 60), (gone, -5)):
        leases.heartbeat(
            conn, dispatcher=one, host=HOSTILE[:40], pid=4711, version="1.2", ttl_s=ttl_s, backends=[], draining=False,
            skew_ms=1_234, stats=STATS,
        )  # fmt: skip
    shard = make_schedule(acme, now=NOW)
    conn.execute("UPDATE due_dueentry SET due_at = now() - interval '1 h', nominal_at = now() - interval '1 h'")
    number = conn.execute("SELECT shard FROM due_dueentry WHERE key = %s", [shard]).fetchone()
    assert number is not None
    slice_ = ("fire", number[0])
    conn.execute(
        "UPDATE due_shardlease SET owner = %s, expires_at = now() - interval '1 s' WHERE kind = 'fire'", [gone]
    )
    row = conn.execute("SELECT term FROM due_shardlease WHERE kind = 'fire' AND shard = %s", [number[0]]).fetchone()
    assert row is not None
    assert leases.take(conn, owner=holder, seen={slice_: row[0]}, ttl_s=60)

    worker = live_worker(conn, queues=[])
    conn.execute("""UPDATE tickets_worker SET stats = '{"settled": {"stale": 3}}'""")
    found = page.get("/admin/shards/").context["found"]
    strip = sum(one.stale for one in (*reading.dispatchers(conn), *reading.workers(conn)[0]))
    assert found.refused == strip == 3 + 2 * 2, "the strip counts the same"
    assert "Late settlements, refused</dt><dd>3<" in text_of(f"/admin/workers/{worker}/")

    text = text_of("/admin/shards/")
    assert "not renewed in time" in text and "no live holder" in text
    assert "fire: 6.0 s" in text and "1,234 ms" in text and "Stale writes refused" in text
    due = text_of("/admin/shards/?show=due")
    assert f"fire {number[0]}</a>" in due and due.count('<th scope="row"><a href="/admin/shards/fire-') == 1
    one = text_of(f"/admin/shards/fire-{number[0]}/")
    assert "/t/acme/admin/schedules/" in one and str(shard) in one and str(gone) in one
    loops = text_of(f"/admin/dispatchers/{holder}/")
    assert "already there 2" in loops and "stuck" in loops and f"fire {number[0]}" in loops
    for path in ("/admin/shards/fire-99999/", "/admin/shards/x/", f"/admin/dispatchers/{uuid.uuid4()}/"):
        assert page.get(path).status_code == 404


def test_workers_say_what_nothing_consumes(
    page: Any, text_of: Any, conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    from apps.dispatch.pressure.gauges import count, measure

    for tenant in (acme, globex):
        make_ticket(tenant, make_job(tenant))
    registry.refresh(force=True)
    worker = live_worker(conn, slots=4, queues=[queue_of(registry, acme), "shardbeat.system"])
    conn.execute("""UPDATE tickets_worker SET stats = '{"held": 3, "queue_per_s": {"python.own.acme": 2.5}}'""")
    measure(conn, registry, count(conn))

    text = text_of("/admin/workers/")
    ours, other = queue_of(registry, acme), queue_of(registry, globex)
    assert f'Nothing consumes <a href="/admin/queues/{other}/">' in text and "3 of 4" in text
    alone = text_of("/admin/workers/?show=abandoned")
    assert f'title="{other}"' in alone and f'title="{ours}"' not in alone
    assert "Nothing consumes it" in text_of(f"/admin/queues/{other}/")
    assert "test:1" in text_of(f"/admin/queues/{ours}/") and "shardbeat.system" in text_of(f"/admin/workers/{worker}/")
    for path in (f"/admin/workers/{uuid.uuid4()}/", "/admin/queues/http.own.nobody/"):
        assert page.get(path).status_code == 404


def test_operations_of_all_tenants_are_seen_and_driven(page: Any, text_of: Any, acme: Tenant, globex: Tenant) -> None:
    job = make_job(acme)
    runs = [make_ticket(acme, job) for _ in range(3)]
    one = ask(acme, "cancel", "executions", {"job": str(job)}, reason=HOSTILE, rate_per_s=0.5)
    other = ask(globex, "cancel", "executions", {"all": True})
    passes(2)
    text = text_of("/admin/operations/")
    assert f"/t/acme/admin/operations/{one.pk}/" in text and f"/t/globex/admin/operations/{other.pk}/" in text
    assert str(other.pk) not in text_of("/admin/operations/?tenant=acme")
    assert "There is no tenant" in text_of("/admin/operations/?tenant=nobody")

    path = f"/t/acme/admin/operations/{one.pk}/"
    detail = text_of(path)
    assert "of at most 0.5" in detail and str(runs[0]) in detail and "Frozen at" in detail
    assert page.get(f"/t/globex/admin/operations/{one.pk}/").status_code == 404
    does(page, "operation.pause", one.pk, "wait")
    assert read(acme, one.pk).state == "paused"
    assert "Resume" in text_of("/admin/operations/?tenant=acme"), "paused ones are listed, too"
    told = does(page, "operation.pace", one.pk, "faster", rate_per_s="50", max_in_flight="", stop_after_failures="9")
    assert "?rate_per_s=0.5&amp;max_in_flight=&amp;stop_after_failures=" in told, "the way back has the pace of before"
    changed = read(acme, one.pk)
    assert (changed.rate_per_s, changed.max_in_flight, changed.stop_after_failures) == (50.0, None, 9)
    does(page, "operation.resume", one.pk, "go on")
    assert work_off(acme, one.pk).state == "completed"
    assert f"/{one.pk}/" not in text_of("/admin/operations/")
    assert f"/{one.pk}/" in text_of("/admin/operations/?show=ended")
    assert "completed" in text_of("/t/acme/admin/operations/?state=completed")
    refused = page.get(f"/t/acme/admin/do/operation.cancel/{one.pk}/").content.decode()
    assert "It is completed." in refused


def test_a_run_of_a_workflow_is_drawn_listed_and_driven(page: Any, text_of: Any, acme: Tenant) -> None:
    run = run_with_rows(acme, text=HOSTILE)
    assert f"/t/acme/admin/workflow-runs/{run}/" in text_of("/admin/workflow-runs/")
    assert str(run) not in text_of("/admin/workflow-runs/?state=running"), "its ticket is ready"
    assert str(run) in text_of("/t/acme/admin/workflow-runs/?state=live")
    path = f"/t/acme/admin/workflow-runs/{run}/"
    text = text_of(path)
    assert 'class="graph"' in text and 'class="step step-failed"' in text
    assert text.count('class="gantt"') == 3 and "somebody is to approve or reject it" in text
    assert f"needs &#x27;{ASKS}&#x27; to succeed, which is running" in text
    explain = f"/t/acme/admin/workflows/run/{run}/explain/"
    assert f'href="{explain}"' in text and page.get(explain).status_code == 200
    does(page, "workflowstep.skip", f"{run}/{WAITS}", "not today")
    text = text_of(path)
    assert "not today" in text and "step-skipped" in text.replace("step-other", "")
    assert page.get(f"/t/globex/admin/workflow-runs/{run}/").status_code == 404
    missing = page.get(f"/t/acme/admin/do/workflowstep.skip/{run}%2Fnobody/")
    assert missing.status_code == 404


def does(page: Any, verb: str, target: Any, reason: str, **fields: str) -> str:
    """Looks at the verb's page, fills it in and sends it; the receipt."""
    url = f"/t/acme/admin/do/{verb}/{quote(str(target), safe='')}/"
    look = page.get(url, fields)
    hidden = dict(re.findall(r'name="(version|meant|seen)" value="([^"]*)"', look.content.decode()))
    done = page.post(url, {"reason": reason, **hidden, **fields})
    assert done.status_code == 303, done.content.decode()
    receipt: str = page.get(done["Location"]).content.decode()
    return receipt
