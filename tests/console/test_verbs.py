"""The page that all verbs share: look, reason, do, receipt, undo; who may not, and what has changed meanwhile."""

from __future__ import annotations

import re
import uuid
from typing import Any

import psycopg
import pytest

from tests.console.conftest import HOSTILE, WHO, logged_in, operator_of

Conn = psycopg.Connection[Any]


@pytest.fixture
def parked(conn: Conn, acme: Any) -> uuid.UUID:
    """A due entry that was put aside."""
    from tests.console.test_shared_pages import rows_of_everything

    rows_of_everything(conn, acme)
    key: uuid.UUID = conn.execute("SELECT key FROM due_dueentry WHERE parked <> ''").fetchall()[0][0]
    conn.execute("UPDATE due_dueentry SET parked = %s WHERE key = %s", [HOSTILE, key])
    return key


def hidden(html: str) -> dict[str, str]:
    """What the page's form sends by itself."""
    found = re.findall(r'<input type="hidden" name="(version|meant|seen)" value="([^"]*)"', html)
    return dict(found)


def of_role(role: str) -> Any:
    """A browser of an operator who has this role."""
    return logged_in(operator_of(role))


def trail(conn: Conn, action: str) -> list[tuple[Any, ...]]:
    rows = conn.execute(f"SELECT {WHO}, allowed, reason FROM audit_auditevent WHERE action = %s ORDER BY id", [action])
    return rows.fetchall()


def test_look_reason_do_receipt(acme: Any, conn: Conn, parked: uuid.UUID) -> None:
    responder, url = of_role("responder"), f"/admin/do/dueentry.unpark/{parked}/"
    looked = responder.get(url)
    html = looked.content.decode()
    assert looked.status_code == 200 and "<script>alert" not in html
    assert "tenant-band" in html and "<strong>acme</strong>" in html, "it is about one tenant"
    assert responder.post(url, hidden(html)).status_code == 200, "without a reason nothing is done"
    assert conn.execute("SELECT count(*) FROM due_dueentry WHERE parked <> ''").fetchall() == [(1,)]
    done = responder.post(url, {**hidden(html), "reason": "mended <b>it</b>"})
    assert done.status_code == 303
    receipt = responder.get(done["Location"])
    assert "served again" in receipt.content.decode() and "mended &lt;b&gt;it&lt;/b&gt;" in receipt.content.decode()
    assert trail(conn, "dueentry.unpark") == [("admin:responder", True, "mended <b>it</b>")]
    assert responder.get(f"{url}?done=forged").status_code == 404
    again = responder.post(url, {**hidden(html), "reason": "once more"})
    assert again.status_code == 409 and "What has changed" in again.content.decode()
    assert trail(conn, "dueentry.unpark")[1:] == [("admin:responder", False, "changed")]
    assert responder.get(f"/admin/do/dueentry.unpark/{uuid.uuid4()}/").status_code == 404
    assert responder.get(f"/admin/do/ticket.cancel/{parked}/").status_code == 404, "that one is in a tenant"
    for path in (
        "nothing.at-all/x",
        "tenant.pause/%00",
        "lease.release/fire/99999999999",
        f"lease.release/fire/{'9' * 5_000}",
        "breaker.reset/x%2F%2Fy",
    ):
        assert responder.get(f"/admin/do/{path}/").status_code == 404, path


def test_whose_role_is_not_enough_sees_why(acme: Any, conn: Conn, parked: uuid.UUID) -> None:
    viewer, url = of_role("viewer"), f"/admin/do/dueentry.unpark/{parked}/"
    html = viewer.get(url).content.decode()
    assert "Your role may not do this" in html and re.search(r'value="Serve again"\s+disabled', html)
    refused = viewer.post(url, {**hidden(html), "reason": "please"})
    assert refused.status_code == 403
    assert trail(conn, "dueentry.unpark") == [("admin:viewer", False, "forbidden")]
    assert conn.execute("SELECT count(*) FROM due_dueentry WHERE parked <> ''").fetchall() == [(1,)]


def test_a_verb_in_a_tenant(acme: Any, globex: Any, conn: Conn, parked: uuid.UUID, monkeypatch: Any) -> None:
    from apps.console import reading
    from apps.console.verbs.live import CancelTicket
    from tenants import door

    responder = of_role("responder")
    ticket = conn.execute("SELECT execution_id FROM tickets_ticket").fetchall()[0][0]
    assert responder.get(f"/t/globex/admin/do/ticket.cancel/{ticket}/").status_code == 404
    url = f"/t/acme/admin/do/ticket.cancel/{ticket}/"
    looked = responder.get(url)
    assert looked.status_code == 200 and "tenant-band" in looked.content.decode()
    monkeypatch.setattr(reading, "STATEMENT_MS", 50)
    monkeypatch.setattr(CancelTicket, "look", lambda self, ask: door.raw().execute("SELECT pg_sleep(2)"))
    for slow in (responder.get(url), responder.post(url, {"look": "1"})):
        assert slow.status_code == 503 and "Cancel: this takes too long" in slow.content.decode()


def test_a_run_that_waits_is_released_now(acme: Any, conn: Conn) -> None:
    from tests.fixtures_flow import make_ticket

    responder, run = of_role("responder"), make_ticket(acme)
    url = f"/t/acme/admin/do/ticket.release/{run}/"
    assert "It is ready" in responder.get(url).content.decode()
    conn.execute(
        "UPDATE tickets_ticket SET rank = NULL, available_at = clock_timestamp() + interval '1 h', release = 7"
        " WHERE execution_id = %s",
        [run],
    )
    done = responder.post(url, {**hidden(responder.get(url).content.decode()), "reason": "the target is back"})
    assert done.status_code == 303
    query = "SELECT available_at <= clock_timestamp() FROM tickets_ticket WHERE execution_id = %s"
    assert conn.execute(query, [run]).fetchone() == (True,)
    conn.execute(
        "UPDATE tickets_ticket SET state = 'queued', queued_at = clock_timestamp(), rank = available_at"
        " WHERE execution_id = %s",
        [run],
    )
    looked = hidden(responder.get(url).content.decode())
    conn.execute("UPDATE tickets_ticket SET release = 8 WHERE execution_id = %s", [run])
    assert responder.post(url, {**looked, "reason": "again"}).status_code == 409
    done = responder.post(url, {**hidden(responder.get(url).content.decode()), "reason": "again"})
    assert done.status_code == 303
    state = conn.execute("SELECT state, rank FROM tickets_ticket WHERE execution_id = %s", [run]).fetchone()
    assert state == ("ready", None)
    assert [row[1:] for row in trail(conn, "ticket.release")] == [
        (True, "the target is back"), (False, "changed"), (True, "again"),
    ]  # fmt: skip


def test_all_dispatch_is_paused_and_resumed_by_the_receipts_button(acme: Any, conn: Conn) -> None:
    platform = of_role("platform")
    for pause, resume, target, button in (
        ("dispatch.pause", "dispatch.resume", "all", "Pause all dispatch"),
        ("queue.pause", "queue.resume", "http@acme", "Pause pool http of acme"),
        ("queue.pause", "queue.resume", "python", "Pause pool python"),
        ("tenant.pause", "tenant.resume", "acme", "Pause dispatch"),
    ):  # fmt: skip
        url = f"/admin/do/{pause}/{target}/"
        looked = platform.get(url).content.decode()
        assert f'value="{button}"' in looked, "what is paused stands on the button"
        assert ("tenant-band" in looked) == target.endswith("acme")
        done = platform.post(url, {**hidden(platform.get(url).content.decode()), "reason": "the database is slow"})
        assert done.status_code == 303, done.content.decode()
        back = re.search(r'href="(/admin/do/[^"]*)"', platform.get(done["Location"]).content.decode())
        assert back is not None and resume in back[1]
        assert "paused already" in platform.get(url).content.decode()
        offered = platform.get("/admin/").content.decode()
        assert ("/admin/do/dispatch.resume/all/" in offered) == (target == "all")
        assert ("/admin/do/dispatch.pause/all/" in offered) == (target != "all")
        looked = platform.get(back[1]).content.decode()
        assert platform.post(back[1], {**hidden(looked), "reason": "it is well again"}).status_code == 303
    assert conn.execute("SELECT count(*) FROM tenants_dispatchpause").fetchone() == (0,)
    rows = conn.execute(
        "SELECT action, after->>'pool', reason FROM audit_auditevent WHERE action LIKE 'dispatch.%' AND allowed"
        " ORDER BY id"
    )
    assert rows.fetchall()[:2] == [
        ("dispatch.pause", "all", "the database is slow"), ("dispatch.resume", None, "it is well again"),
    ]  # fmt: skip


def test_limits_are_changed_after_a_look_and_put_back_by_the_receipt(acme: Any, conn: Conn) -> None:
    from tenants.models import Plan

    operator = of_role("operator")
    plan = Plan.objects.create(name="small", max_running=5)
    url = "/admin/do/plan.quota/small/"
    page = operator.get(url).content.decode()
    assert "Change a limit" in page and re.search(r'name="max_running" value="5"', page)
    wish = {"weight": "1", "max_running": "9", "reason": "they pay for it"}
    looked = operator.post(url, {**hidden(page), **wish})  # not looked at yet
    assert looked.status_code == 200 and "<ins><bdi>9</bdi></ins>" in looked.content.decode()
    Plan.objects.filter(pk=plan.pk).update(max_running=6)
    assert operator.post(url, {**hidden(looked.content.decode()), **wish}).status_code == 409
    looked = operator.post(url, {**wish, "look": "1"})
    done = operator.post(url, {**hidden(looked.content.decode()), **wish})
    assert done.status_code == 303
    plan.refresh_from_db()
    assert (plan.max_running, plan.max_live) == (9, None)
    back = re.search(r'href="(/admin/do/plan\.quota/[^"]*)"', operator.get(done["Location"]).content.decode())
    assert back is not None
    page = operator.get(back[1].replace("&amp;", "&")).content.decode()
    assert "<ins><bdi>6</bdi></ins>" in page, "it is looked at already"
    assert operator.post(url, {**hidden(page), **wish, "max_running": "6"}).status_code == 303
    url = "/admin/do/tenant.plan/acme/"
    looked = operator.post(url, {"plan": "small", "look": "1"})
    assert "<ins><bdi>6</bdi></ins>" in looked.content.decode()
    before = acme.plan_id
    done = operator.post(url, {**hidden(looked.content.decode()), "plan": "small", "reason": "too much"})
    assert done.status_code == 303
    acme.refresh_from_db()
    assert acme.plan_id == plan.pk
    type(acme).objects.filter(pk=acme.pk).update(plan=before)
    plan.delete()  # plans stay from test to test
    assert [row[1:] for row in trail(conn, "tenant.update")] == [(True, "too much")]
