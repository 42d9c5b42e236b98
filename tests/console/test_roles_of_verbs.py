"""Every role and every verb, over HTTP: who may, who may not, and the row about each refusal. Stock actions, too."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.console.conftest import logged_in, operator_of
from tests.console.test_roles import LEVELS_OF

Conn = psycopg.Connection[Any]
NOTHING = "0"  # no verb has such a target
STOCK = (  # what is done to ticked rows of stock pages, and the level that it takes
    ("/admin/due/dueentry/", "dueentry.unpark", "respond"),
    ("/admin/tickets/ticket/", "ticket.cancel", "respond"),
    ("/admin/tickets/breaker/", "breaker.reset", "respond"),
    ("/t/acme/admin/deadletters/deadletter/", "deadletter.replay", "respond"),
    ("/t/acme/admin/deadletters/deadletter/", "deadletter.resolve", "respond"),
    ("/t/acme/admin/operations/operation/", "operation.pause", "operate"),
    ("/t/acme/admin/operations/operation/", "operation.cancel", "operate"),
    ("/admin/tenants/tenant/", "tenant.suspend", "operate"),
    ("/admin/tenants/apikey/", "apikey.revoke", "platform"),
    ("/admin/tenants/member/", "member.sign_out", "platform"),
)


@pytest.mark.parametrize("role", [*LEVELS_OF, "none"])
def test_each_verb_asks_for_its_level(database: None, acme: Any, conn: Conn, role: str) -> None:
    from apps.console.verbs.offering import verb_url
    from apps.console.verbs.registry import all_verbs

    levels = LEVELS_OF.get(role, "").split()
    user = operator_of(role)
    client = logged_in(user)
    refused = []
    for name, verb in all_verbs().items():
        answer = client.post(verb_url(verb, NOTHING, tenant="acme"), {"reason": "to see", "version": "none"})
        if verb.level in levels:
            assert answer.status_code in (200, 404), (name, answer.status_code)
        else:
            assert answer.status_code == 403, (name, answer.status_code)
            assert "Your role may not do this" in answer.content.decode(), name
            refused.append((name, False, "forbidden", "to see"))
    rows = conn.execute(
        "SELECT action, allowed, reason, after->>'reason' FROM audit_auditevent WHERE subject = %s ORDER BY id",
        [f"user:{user.pk}"],
    )
    assert rows.fetchall() == refused, "what is not there was not refused"


def test_stock_actions_follow_the_same_roles(database: None, acme: Any, conn: Conn) -> None:
    from django.contrib.admin import site
    from django.contrib.auth.models import User
    from django.test import RequestFactory

    from apps.console.tenant_site import tenant_site

    request = RequestFactory().get("/")
    for role in (*LEVELS_OF, "none"):
        levels = LEVELS_OF.get(role, "").split()
        request.user = operator_of(role)
        for path, action, level in STOCK:
            table = ".".join(path.strip("/").split("/")[-2:])
            of_site = tenant_site if path.startswith("/t/") else site
            found = next(one for model, one in of_site._registry.items() if model._meta.label_lower == table)
            assert (action in found.get_actions(request)) == (level in levels), (role, path, action)
            assert found.has_view_permission(request) == (role != "none"), (role, path)
    viewer = User.objects.get(username="viewer")
    for path, action, _ in STOCK:  # sent all the same
        assert logged_in(viewer).post(path, {"action": action, "_selected_action": "0"}).status_code == 403, path
    rows = conn.execute("SELECT object_id, reason FROM audit_auditevent WHERE NOT allowed ORDER BY id")
    assert rows.fetchall() == [(path.removeprefix("/t/acme"), "permission") for path, _, _ in STOCK]


def test_every_verb_that_a_page_offers_is_there() -> None:
    import re
    from inspect import getsource
    from pathlib import Path

    from apps.console.verbs.registry import all_verbs

    offered = {
        name
        for page in Path("templates").rglob("*.html")
        for name in re.findall(r'\{% verb_button "([^"]+)"', page.read_text())
    }
    assert offered <= set(all_verbs()), offered - set(all_verbs())
    assert all(verb.label and verb.level for verb in all_verbs().values())
    one_way = {name for name, verb in all_verbs().items() if not re.search(r"undo\b|Step\(", getsource(type(verb).do))}
    marked = {name for name, verb in all_verbs().items() if verb.hard}
    assert one_way - marked == {"audit.verify"}, "what has no way back is red, but for what changes nothing"
