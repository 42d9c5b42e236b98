"""Views that operators keep: whose they are, and what they may lead to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.conftest import HOSTILE, logged_in, operator_of


@pytest.fixture
def grace(database: None) -> Any:
    """An operator with the least role."""
    return operator_of("viewer", "grace")


def kept(browser: Any) -> dict[str, int]:
    from apps.console.saved import views_of

    return {view.name: view.pk for view in views_of(browser)}


def test_views_are_kept_shared_and_forgotten(operator: Any, grace: Any, acme: Any, conn: Any) -> None:
    hers, boss = logged_in(grace), logged_in(operator)
    url = "/admin/tickets/ticket/?state=running&q=acme"
    page = hers.get(url.replace("&q=acme", "%20"))
    assert "/admin/views/?url=%2Fadmin%2Ftickets%2Fticket%2F%3Fstate%3Drunning%2520" in page.content.decode()
    assert "Save this view" in hers.get("/admin/views/", {"url": url}).content.decode()
    answer = hers.post("/admin/views/", {"do": "save", "url": url, "name": f" {HOSTILE[:30]}  now "})
    assert (answer.status_code, answer["Location"]) == (302, url)
    [(name, view)] = kept(grace).items()
    assert not kept(operator) and "&lt;script&gt;" in hers.get("/t/acme/admin/").content.decode(), "in the navigation"
    again = hers.post("/admin/views/", {"do": "save", "url": url, "name": name.upper()})
    assert again.status_code == 400 and "You have a view of this name" in again.content.decode()

    for change in ({"do": "change", "name": "mine"}, {"do": "delete"}):
        assert boss.post("/admin/views/", {"view": view, **change}).status_code == 400, "as if it were not there"
    assert (
        hers.post("/admin/views/", {"do": "change", "view": view, "name": "Running", "shared": "on"}).status_code == 302
    )
    assert kept(operator) == {"Running": view}
    assert boss.post("/admin/views/", {"do": "change", "view": view, "name": "Runs", "shared": "on"}).status_code == 302
    boss.post("/admin/views/", {"do": "save", "url": "/t/acme/admin/", "name": "theirs", "shared": "on"})
    refused = hers.post("/admin/views/", {"do": "delete", "view": kept(operator)["theirs"]})
    assert refused.status_code == 400 and "somebody else" in refused.content.decode()
    assert hers.post("/admin/views/", {"do": "delete", "view": view}).status_code == 302
    assert list(kept(grace)) == ["theirs"]
    rows = conn.execute("SELECT action, object_id FROM audit_auditevent WHERE object_type = 'view' ORDER BY id")
    assert [action for action, key in rows if key == str(view)] == [
        "view.save",
        "view.change",
        "view.change",
        "view.delete",
    ]


@pytest.mark.parametrize(
    "url",
    [
        "", "https://elsewhere.test/", "//elsewhere.test/admin/", "javascript:alert(1)", "/console/", "/admin/\\..",
        "/admin/a b", "/admin/\n", "/t/ACME/admin/", "/admin/" + "x" * 2_000,
    ],
)  # fmt: skip
def test_a_view_leads_to_a_page_of_operators(page: Any, operator: Any, url: str) -> None:
    answer = page.post("/admin/views/", {"do": "save", "url": url, "name": "v"})
    assert answer.status_code == 400 and not kept(operator)
    assert page.post("/admin/views/", {"do": "save", "url": "/admin/", "name": " \t"}).status_code == 400
    assert page.post("/admin/views/", {"do": "delete", "view": "9" * 30}).status_code == 400
