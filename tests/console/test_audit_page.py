"""The audit page: filters, what changed, the export, and a trail that somebody has changed."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta
from typing import Any

import orjson
import psycopg

from apps.audit.services import Entry, record_many
from kernel.clock import utc_now
from tests.audit.hands import a_person, as_owner, seal_all, write
from tests.console.conftest import HOSTILE
from tests.console.test_verbs import hidden, of_role

Conn = psycopg.Connection[Any]


def shown(client: Any, query: str = "") -> list[tuple[str, str]]:
    """(action, tenant) of the rows that the page lists."""
    page = client.get(f"/admin/audit/?{query}")
    assert page.status_code == 200
    assert "<script>alert" not in page.content.decode()
    return [(one.shown.event.action, one.slug) for one in page.context["rows"]]


def test_filters_changes_and_export(acme: Any, globex: Any, conn: Conn) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    now = utc_now()
    ada = of_role("viewer")
    entries = [
        Entry("schedule.pause", "schedule", "s-1", before={"status": "active", "api_key": "hush"},
              after={"status": HOSTILE, "api_key": "hush2"}, reason=HOSTILE),
        Entry("schedule.resume", "schedule", "s-2", allowed=False, reason="forbidden"),
    ]  # fmt: skip
    record_many(
        [Entry("=cmd()", "job", "j-1")], actor=a_person(globex), now=now - timedelta(days=2), tenant_id=globex.pk
    )
    record_many(entries, actor=a_person(acme), now=now - timedelta(hours=2), tenant_id=acme.pk)
    everything = [("schedule.resume", "acme"), ("schedule.pause", "acme"), ("=cmd()", "globex")]
    assert shown(ada) == everything
    for query, count in (
        ("tenant=acme", 2), ("tenant=nobody", 0), ("tenant=operators", 0), ("action=schedule", 2), ("window=hour", 0),
        ("action=schedule.pause", 1), ("object=s-2", 1), ("refused=1", 1), ("window=day", 2), ("window=week", 3),
        ("actor=user:7", 3), ("actor=nobody", 0), ("request=none", 0), ("since=nonsense", 3),
        (f"until={(now - timedelta(days=1)):%Y-%m-%dT%H:%M}", 1), ("before=nonsense", 3), ("before=1", 0),
        ("since=0001-01-01T00:00", 3), ("until=9999-12-31T23:59", 3),
    ):  # fmt: skip
        assert len(shown(ada, query)) == count, query
    with CaptureQueriesContext(connection) as read:
        page = ada.get(f"/admin/audit/?tenant=acme&since={(now - timedelta(days=1)):%Y-%m-%dT%H:%M}").content.decode()
    asked = [one["sql"] for one in read if "SELECT" in one["sql"]]
    assert len(asked) <= 12, "\n".join(one[:160] for one in asked)
    page = ada.get("/admin/audit/").content.decode()
    assert "hush" not in page and "&lt;script&gt;" in page and "Your role may not do this" in page
    assert ada.post("/admin/audit/export/", {"format": "csv"}).status_code == 403
    auditor = of_role("auditor")
    asked = auditor.get("/admin/audit/export/?tenant=acme&format=ndjson").content.decode()
    assert "<td>2; at most 100,000" in asked and '<option value="ndjson" selected>' in asked
    export = {"tenant": "acme", "format": "ndjson", "reason": ""}
    assert "This field is required" in auditor.post("/admin/audit/export/", export).content.decode()
    export["reason"] = "the yearly audit"
    told = b"".join(auditor.post("/admin/audit/export/", export).streaming_content)
    rows = [orjson.loads(line) for line in told.splitlines()]
    assert [row["action"] for row in rows] == ["schedule.resume", "schedule.pause"]
    assert rows[1]["after"]["status"] == HOSTILE and rows[1]["link"] is None
    assert rows[1]["before"] == {"status": "active", "api_key": "***"} and b"hush" not in told
    export = {"tenant": "globex", "format": "csv", "reason": "too"}
    told = b"".join(auditor.post("/admin/audit/export/", export).streaming_content)
    (line,) = csv.DictReader(io.StringIO(told.decode()))
    assert line["action"] == "'=cmd()", "a spreadsheet computes nothing"
    for who in ("auditor", "admin:auditor", "admin:auditor (admin)"):
        assert [action for action, _ in shown(auditor, f"tenant=operators&actor={who}")] == ["audit.export"] * 2


def test_a_long_trail_is_looked_through_in_parts(acme: Any, conn: Conn, monkeypatch: Any) -> None:
    monkeypatch.setattr("apps.audit.looking.SCAN_MOST", 3)
    ids = write(conn, acme, 7)
    viewer = of_role("viewer")
    page = viewer.get("/admin/audit/?action=nothing")
    assert page.context["rows"] == [] and "back to" in page.content.decode()
    looked = 1
    while page.context["older"]:
        page = viewer.get("/admin/audit/" + page.context["older"])
        looked += 1
    assert looked == len(ids) // 3 + 1


def test_tampering_is_found_from_the_page(acme: Any, conn: Conn) -> None:
    ids = write(conn, acme, 5)
    seal_all(conn)
    auditor = of_role("auditor")
    link = re.search(
        r'href="(/admin/do/audit\.verify/acme/)"', auditor.get("/admin/audit/?tenant=acme").content.decode()
    )
    assert link is not None
    done = auditor.post(link[1], {**hidden(auditor.get(link[1]).content.decode()), "reason": "every month"})
    assert "5 links fit their rows" in auditor.get(done["Location"]).content.decode()
    with as_owner() as owner:
        owner.execute("UPDATE audit_auditevent SET reason = 'nothing' WHERE id = %s", [ids[3]])
        owner.execute("DELETE FROM audit_auditevent WHERE id = %s", [ids[1]])
    done = auditor.post(link[1], {**hidden(auditor.get(link[1]).content.decode()), "reason": "every month"})
    receipt = auditor.get(done["Location"]).content.decode()
    assert "2 findings in 5 links" in receipt and f"row {ids[3]}." in receipt and f"row {ids[1]}." in receipt
    rows = conn.execute(
        "SELECT after->>'findings', reason FROM audit_auditevent WHERE action = 'audit.verify' ORDER BY id"
    )
    assert rows.fetchall() == [("0", "every month"), ("2", "every month")]


def test_only_the_newest_links_are_checked(acme: Any, conn: Conn) -> None:
    from apps.audit.chain import chain_key
    from apps.audit.verifying import verify_newest

    ids = write(conn, acme, 6)
    seal_all(conn)
    key = chain_key(conn)
    assert key is not None
    for most, links in ((2, 2), (5, 5), (6, 6), (7, 6)):
        report, checked = verify_newest(conn, acme.pk, key=key, most=most)
        assert (checked, report.findings, report.links) == (links, [], 6)
    with as_owner() as owner:
        owner.execute("UPDATE audit_auditevent SET reason = 'nothing' WHERE id = ANY(%s)", [[ids[1], ids[4]]])
    assert [one.event for one in verify_newest(conn, acme.pk, key=key, most=2)[0].findings] == [ids[4]]
    assert [one.event for one in verify_newest(conn, acme.pk, key=key, most=6)[0].findings] == [ids[1], ids[4]]
