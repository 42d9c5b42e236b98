"""Roles of operators: what each may, and the command that gives them."""

from __future__ import annotations

from typing import Any

import orjson

from tests.commands import run_command
from tests.console.conftest import operator_of

LEVELS_OF = {
    "viewer": "view", "responder": "view respond", "operator": "view respond operate",
    "platform": "view respond operate platform", "auditor": "view audit",
}  # fmt: skip
STOCK_OF = {
    "viewer": ("tickets.view_ticket", "tickets.change_ticket"),
    "responder": ("tickets.change_ticket", "operations.change_operation"),
    "operator": ("tenants.change_plan", "tickets.add_subscription"),
    "platform": ("tenants.delete_tenant", "auth.change_user"),
    "auditor": ("audit.view_auditevent", "audit.change_auditevent"),
}  # fmt: skip


def test_what_each_role_may(database: None) -> None:
    from django.contrib.auth.backends import ModelBackend
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from apps.console.roles import LEVELS, lacks, may

    for role, levels in LEVELS_OF.items():
        user = operator_of(role)
        assert [level for level in LEVELS if may(user, level)] == levels.split()
        held, missing = STOCK_OF[role]
        assert user.has_perm(held) and not user.has_perm(missing), role
        assert not lacks(user, "view")
    assert "platform" in lacks(User.objects.get(username="operator"), "platform")
    assert may(User.objects.create_superuser("root"), "audit")
    with CaptureQueriesContext(connection) as read:
        some = User.objects.get(username="operator")
        assert some.has_perm("console.operate") and some.has_module_perms("tickets") and not some.has_perm("auth.x")
        assert ModelBackend().has_perm(some, "console.view") and not some.has_perm("console.view", some)
    assert len(read) == 2, "the user, and what they may do"
    out = User.objects.get(username="viewer")
    out.is_staff = False
    assert not may(out, "view")


def test_the_command_gives_and_takes_roles(database: None, conn: Any) -> None:
    from django.contrib.auth.models import User

    User.objects.create_user("grace", is_staff=True)
    User.objects.create_user("eve")
    code, said, _ = run_command("operator_role", "--login", "grace", "--role", "responder", "--role", "auditor")
    assert (code, said.strip()) == (0, "grace: responder, auditor (before: no role)")
    assert "responder" in run_command("operator_role", "--login", "grace", "--role", "none", "--dry-run")[1]
    assert run_command("operator_role", "--login", "grace")[1].strip() == "grace: responder, auditor"
    changed = orjson.loads(run_command("operator_role", "--login", "grace", "--role", "viewer", "--format", "json")[1])
    assert changed["before"] == ["responder", "auditor"] and changed["roles"] == ["viewer"]
    rows = conn.execute("SELECT before, after FROM audit_auditevent WHERE action = 'operator.roles' ORDER BY id")
    assert [row[1]["roles"] for row in rows] == [["responder", "auditor"], ["viewer"]]
    User.objects.create_superuser("root")
    assert run_command("operator_role", "--login", "root")[1].strip() == "root: superuser: everything"
    for login in ("eve", "nobody"):  # no operator, and nobody at all
        assert run_command("operator_role", "--login", login, "--role", "viewer")[0] == 2
        assert run_command("operator_role", "--login", login)[0] == 2
