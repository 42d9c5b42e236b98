"""Two tenants that mean no good, in two tabs of one operator: nothing comes alive, and nothing gets mixed up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg

from kernel.clock import utc_now
from tests.conftest import wait_until
from tests.console.conftest import HOSTILE
from tests.console.test_browser import log_in
from tests.executors.receiver import Receiver
from tests.fixtures_browser import LOOKS, Tab, Web
from tests.fixtures_flow import make_job, make_ticket
from tests.processes import Processes

if TYPE_CHECKING:
    from tenants.models import Tenant

Conn = psycopg.Connection[Any]
PAGE_CHARS = 120_000  # that a page has at most, whatever came back
LONG = "reconcile-the-ledgers-of-all-subsidiaries-" * 2


def test_two_tabs_on_two_hostile_tenants(
    acme: Tenant, globex: Tenant, conn: Conn, web: Web, processes: Processes, receiver: Receiver
) -> None:
    processes.dispatcher()
    processes.worker()
    runs = {tenant.slug: failed_run(conn, tenant, receiver) for tenant in (acme, globex)}
    wait_until(lambda: alive(conn) == 0, "both runs to fail for good")
    with web.tab("localhost") as ours, web.tab("localhost", beside=ours) as theirs:
        ours.open("/admin/login/")
        log_in(ours)
        tabs = ((ours, "acme", "globex"), (theirs, "globex", "acme"))
        for tab, slug, other in tabs:
            tab.open(f"/t/{slug}/admin/executions/")
            assert tab.page.locator(f'a[href*="{runs[slug]}"]').count() == 1
            tab.page.locator(f'a[href*="{runs[slug]}"]').click()
            tab.page.wait_for_selector("text=Timeline")
            assert tab.page.locator(".tenant-band strong").inner_text() == slug
            content = tab.page.content()
            assert str(runs[other]) not in content and f"/t/{other}/" not in content
            told_as_text(tab, content, slug)
        for tab, slug, _ in tabs:  # each tab has its form open before the first is sent
            tab.page.get_by_role("link", name="Run again").click()
            tab.page.wait_for_selector("text=Nothing has been done yet")
            assert str(runs[slug]) in tab.page.inner_text("h1")
        for tab, slug, _ in tabs:
            tab.page.get_by_label("Reason").fill(f"{HOSTILE} in {slug}")
            tab.page.get_by_role("button", name="Run again").click()
            tab.page.wait_for_selector("text=It runs again as a new execution")
            assert again(conn, slug) == [runs[slug]], "in its own tenant, once"


def failed_run(conn: Conn, tenant: Tenant, receiver: Receiver) -> UUID:
    """A run of a job whose every text is hostile; its target answers as badly as it can, and fails."""
    conn.execute("UPDATE tenants_tenant SET name = %s WHERE id = %s", [f"</title><h1>{HOSTILE}", tenant.pk])
    job = make_job(
        tenant, now=utc_now(), kind="http", name=f"{HOSTILE}{LONG}{tenant.slug}",
        retry={"max_attempts": 2, "base_s": 0.1},
        target={
            "url": receiver.url(f"/hostile/{tenant.slug}?token=hush-in-the-url"),
            "headers": {"Authorization": f"Bearer hush-{tenant.slug}", "X-Note": "<b>seen</b>"},
        },
    )  # fmt: skip
    payload = {"text": HOSTILE, "api_key": "hush-in-the-payload"}
    return make_ticket(tenant, job, now=utc_now(), payload=payload, labels={"note": HOSTILE})


def told_as_text(tab: Tab, content: str, slug: str) -> None:
    """All that is hostile is there to be read, and nothing of it is more than a text."""
    page = tab.page
    assert "hush" not in content, "secrets of the target, of the payload, and those that came back"
    assert len(content) < PAGE_CHARS
    assert page.locator("h1").count() == 1 and "<script>alert(1)" in page.inner_text("h1")
    body = page.get_by_label("Body of the response").inner_text()
    assert "<script>alert(1)</script>" in body and "\\u202e" in body and "more characters" in body
    assert "***" in body, "the Authorization that it sent back"
    assert "<script>alert(3)</script>" in page.inner_text("section[aria-labelledby=answer]")
    sent = page.inner_text("section[aria-labelledby=sent]")
    assert f"/hostile/{slug}?token=***" in sent and "<b>seen</b>" in sent
    page.get_by_text("As a curl command").click()
    command = page.inner_text("#curl")
    assert command.startswith("curl --globoff") and "\u202e" not in command and "Authorization: ***" in command
    page.get_by_role("button", name="Copy").click()
    page.wait_for_function("() => document.querySelector('[data-copied=curl]').textContent !== ''")
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, "names as long as can be"
    assert not tab.findings(LOOKS)


def alive(conn: Conn) -> int:
    [(count,)] = conn.execute("SELECT count(*) FROM tickets_ticket").fetchall()
    return int(count)


def again(conn: Conn, slug: str) -> list[UUID]:
    """What was run again in a tenant."""
    rows = conn.execute(f"SELECT replay_of FROM t_{slug}.executions_execution WHERE replay_of IS NOT NULL")
    return [row[0] for row in rows]
