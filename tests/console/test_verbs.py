"""The page that all verbs share: look, reason, do, receipt, undo; who may not, and what has changed meanwhile."""

from __future__ import annotations

import re
import uuid
from typing import Any

import psycopg
import pytest

from tests.console.conftest import HOSTILE, WHO, logged_in

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
    from django.contrib.auth.models import Group, User

    user = User.objects.create_user(role, is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    return logged_in(user)


def trail(conn: Conn, action: str) -> list[tuple[Any, ...]]:
    rows = conn.execute(f"SELECT {WHO}, allowed, reason FROM audit_auditevent WHERE action = %s ORDER BY id", [action])
    return rows.fetchall()


def test_look_reason_do_receipt(acme: Any, conn: Conn, parked: uuid.UUID) -> None:
    responder, url = of_role("responder"), f"/admin/do/dueentry.unpark/{parked}/"
    looked = responder.get(url)
    html = looked.content.decode()
    assert looked.status_code == 200 and "<script>alert" not in html and "acme" in html
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
    assert responder.get("/admin/do/nothing.at-all/x/").status_code == 404


def test_whose_role_is_not_enough_sees_why(acme: Any, conn: Conn, parked: uuid.UUID) -> None:
    viewer, url = of_role("viewer"), f"/admin/do/dueentry.unpark/{parked}/"
    html = viewer.get(url).content.decode()
    assert "Your role may not do this" in html and re.search(r'value="Serve again"\s+disabled', html)
    refused = viewer.post(url, {**hidden(html), "reason": "please"})
    assert refused.status_code == 403
    assert trail(conn, "dueentry.unpark") == [("admin:viewer", False, "forbidden")]
    assert conn.execute("SELECT count(*) FROM due_dueentry WHERE parked <> ''").fetchall() == [(1,)]


def test_a_verb_in_a_tenant(acme: Any, globex: Any, conn: Conn, parked: uuid.UUID) -> None:
    responder = of_role("responder")
    ticket = conn.execute("SELECT execution_id FROM tickets_ticket").fetchall()[0][0]
    assert responder.get(f"/t/globex/admin/do/ticket.cancel/{ticket}/").status_code == 404
    looked = responder.get(f"/t/acme/admin/do/ticket.cancel/{ticket}/")
    assert looked.status_code == 200 and "tenant-band" in looked.content.decode()
