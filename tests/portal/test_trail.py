"""The audit trail on its page: for admins, with filters, and only this tenant's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fixtures_portal import HOSTILE
from tests.portal.stock import stock

if TYPE_CHECKING:
    import pytest

    from tenants.models import Tenant


def test_what_was_done_and_refused_is_there(acme: Tenant, conn: Any, registry: Any, console_of: Any) -> None:
    kept = stock(acme, conn, registry)
    viewer, admin = console_of(acme, "viewer"), console_of(acme)
    viewer.post(f"/console/jobs/{kept.job}/delete", {"revision": "1"}, status=403)
    rows = [(one.event.action, one.event.allowed) for one, _ in admin.get("/console/audit").context["listed"].rows]
    assert ("job.create", True) in rows and ("job.delete", False) in rows
    refused = admin.get("/console/audit?allowed=false&action=job.delete").context["listed"].rows
    assert [one.event.allowed for one, _ in refused] == [False]
    assert refused[0][1] == f"/console/jobs/{kept.job}", "a link to what it is about"
    assert "Nothing is like this" in admin.text("/console/audit?action=no.such")
    assert "needs the role admin" in viewer.text("/console/audit", status=403)


def test_nothing_of_another_tenant_and_nothing_but_text(
    acme: Tenant, globex: Tenant, conn: Any, registry: Any, console_of: Any
) -> None:
    kept = stock(acme, conn, registry, name=HOSTILE)
    assert not console_of(globex).get(f"/console/audit?object={kept.job}").context["listed"].rows
    page = console_of(acme).text("/console/audit")
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page


def test_pages_of_the_trail_have_no_gap(
    acme: Tenant, conn: Any, registry: Any, console_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.portal import trail
    from apps.presenting import paging

    stock(acme, conn, registry)
    browser = console_of(acme)
    whole = [one.event.uid for one, _ in browser.get("/console/audit").context["listed"].rows]
    for module in (paging, trail):
        monkeypatch.setattr(module, "PAGE_ROWS", 2)
    path, seen = "/console/audit", []
    for _ in range(len(whole)):
        listed = browser.get(path).context["listed"]
        seen += [one.event.uid for one, _ in listed.rows]
        if not listed.older:
            break
        path = "/console/audit" + listed.older
    assert seen == whole
    browser.get("/console/audit?before=00000000-0000-7000-8000-000000000000&allowed=maybe&object=%00")


def test_what_services_refuse_on_the_pages_is_noted_as_over_the_api(
    acme: Tenant, conn: Any, registry: Any, console_of: Any, plan: Any
) -> None:
    kept = stock(acme, conn, registry)
    admin = console_of(acme)
    plan(max_members=0, max_jobs=1)
    invited = {"email": "eve@acme.test", "role": "viewer", "name": ""}
    admin.post("/console/members/invite", invited, status=429)
    admin.post(f"/console/jobs/{kept.job}/delete", {"revision": "999"}, status=409)
    job = {"name": "one more", "kind": "http", "url": "https://example.test/", "method": "POST"}
    assert admin.client.post("/console/jobs/new", job).status_code in (400, 429)
    rows = conn.execute(
        "SELECT action, object_id, reason, after ->> 'quota', subject FROM audit_auditevent WHERE NOT allowed"
        " ORDER BY id"
    ).fetchall()
    subject = f"member:{admin.member.uid}"
    assert rows[0] == ("invitation.create", "", "quota_exceeded", "max_members", subject)
    assert rows[1] == ("job.delete", str(kept.job), "stale", None, subject)
    assert all(row[4] == subject for row in rows)
