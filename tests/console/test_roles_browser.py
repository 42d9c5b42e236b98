"""Each role in a browser of its own: what it may do it does and takes back, what it may not is off and says why.

All verbs with all roles are in test_roles_of_verbs.py, over HTTP; here are one of each level and what becomes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.audit.hands import as_owner, seal_all, write
from tests.console.conftest import WHO, operator_of
from tests.console.test_browser import log_in
from tests.console.test_machines_browser import does
from tests.fixtures_browser import Tab, Web
from tests.fixtures_flow import make_schedule

if TYPE_CHECKING:
    from tenants.models import Tenant

Conn = psycopg.Connection[Any]
PAUSE_ACME, PAUSE_ALL, CHECK = (
    "/admin/do/tenant.pause/acme/", "/admin/do/dispatch.pause/all/", "/admin/do/audit.verify/acme/",
)  # fmt: skip
IS_PAUSED = "SELECT dispatch_paused FROM tenants_tenant WHERE slug = 'acme'"
ALL_IS_PAUSED = "SELECT EXISTS (SELECT FROM tenants_dispatchpause)"
IS_DELETED = "SELECT deleted_at IS NOT NULL FROM t_acme.schedules_schedule"
OFF = "Your role may not do this"


@pytest.mark.long  # thirty pages
def test_each_role_does_what_it_may_and_sees_why_not_more(acme: Tenant, conn: Conn, web: Web) -> None:
    delete = f"/t/acme/admin/do/schedule.delete/{make_schedule(acme)}/"
    for role, may, label, back, effect, not_more in (
        ("viewer", "", "", "", "", PAUSE_ACME),
        ("responder", PAUSE_ACME, "Pause dispatch", "Resume dispatch", IS_PAUSED, delete),
        ("operator", delete, "Delete", "", IS_DELETED, PAUSE_ALL),
        ("platform", PAUSE_ALL, "Pause all dispatch", "Resume dispatch", ALL_IS_PAUSED, CHECK),
    ):
        operator_of(role)
        with web.tab("localhost") as tab:
            is_refused(tab, conn, role, not_more)
            if role == "viewer":
                assert not tab.findings(), tab.findings()
            if may:
                tab.open(may)
                does(tab, label, f"as {role}")
                assert so(conn, effect)
                assert f"as {role}" in tab.page.inner_text("#content"), "the receipt shows the row of the trail"
            if back:
                tab.page.get_by_role("link", name=back, exact=True).click()
                does(tab, back, f"back as {role}")
                assert not so(conn, effect)
    done = conn.execute(f"SELECT {WHO}, reason FROM audit_auditevent WHERE allowed AND reason LIKE '%as %' ORDER BY id")
    assert done.fetchall() == [
        ("admin:responder", "as responder"),
        ("admin:responder", "back as responder"),
        ("admin:operator", "as operator"),
        ("admin:platform", "as platform"),
        ("admin:platform", "back as platform"),
    ]


def test_an_auditor_finds_what_was_changed_in_the_trail(acme: Tenant, conn: Conn, web: Web) -> None:
    ids = write(conn, acme, 5)
    operator_of("auditor")
    with web.tab("localhost") as tab:
        is_refused(tab, conn, "auditor", PAUSE_ACME)
        seal_all(conn)
        assert checked(tab, "every month") == []
        assert "links fit their rows" in tab.page.inner_text("p[role=status]")
        with as_owner() as owner:
            owner.execute("UPDATE audit_auditevent SET reason = 'nothing' WHERE id = %s", [ids[3]])
            owner.execute("DELETE FROM audit_auditevent WHERE id = %s", [ids[1]])
        found = checked(tab, "once more")
        assert len(found) == 2 and all(any(f"row {one}." in line for line in found) for one in (ids[1], ids[3]))
        assert "somebody has changed the trail" in tab.page.inner_text("p.tone-bad[role=status]")
        assert not tab.findings(), tab.findings()


def is_refused(tab: Tab, conn: Conn, role: str, path: str) -> None:
    """Logs in: the button is off and the page says why; sent all the same it is refused, with a row of the trail."""
    tab.open(f"/admin/login/?next={path}")
    log_in(tab, role, to=path)
    page = tab.page
    assert page.locator("form.verb-form [type=submit]").first.is_disabled() and OFF in page.inner_text("#content")
    page.get_by_label("Reason").fill("all the same")
    tab.expected.append("status of 403")
    page.eval_on_selector("form.verb-form", "form => form.submit()")
    page.wait_for_selector("h1 >> text=refused")
    assert OFF in page.inner_text("#content")
    verb, target = path.rstrip("/").split("/")[-2:]
    rows = conn.execute(
        "SELECT reason FROM audit_auditevent WHERE NOT allowed AND action = %s AND object_id = %s", [verb, target]
    )
    assert ("forbidden",) in rows.fetchall()


def checked(tab: Tab, reason: str) -> Sequence[str]:
    """What a check of acme's chain finds, from the audit page on."""
    tab.open("/admin/audit/?tenant=acme")
    tab.page.get_by_role("link", name="Check the chain").click()
    does(tab, "Check the chain", reason)
    found: list[str] = tab.page.locator("section", has_text="What was found").locator("td").all_inner_texts()
    return found


def so(conn: Conn, query: str) -> bool:
    row = conn.execute(query).fetchone()
    return bool(row and row[0])
