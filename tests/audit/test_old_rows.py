"""Rows of before the chain: operators' names become numbers, and then they are sealed like all others."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import psycopg

from tenants.models import Tenant
from tests.audit.hands import as_owner, kinds, seal_all
from tests.fixtures_flow import count

Conn = psycopg.Connection[Any]
OLD = """
INSERT INTO audit_auditevent (at, tenant_id, actor, action, object_type, object_id, allowed, reason, request_id)
VALUES (now(), %s, %s, 'job.update', 'job', '1', true, '', '')
"""


def test_names_become_numbers_once(conn: Conn, acme: Tenant) -> None:
    from django.contrib.auth.models import User

    users = {name: User.objects.create_user(name).pk for name in ("ada", "a_a", "axa", "100%")}
    names = ["admin:ada", "admin:a_a", "member:axa (viewer)", "admin:100%", "admin:gone", "key:ada (admin)", "ada"]
    for name in names:
        conn.execute(OLD, [acme.pk, name])
    migration = import_module("apps.audit.migrations.0004_chain")
    with as_owner() as owner:
        owner.execute(migration.NUMBERS)
    rows = conn.execute("SELECT actor, subject FROM audit_auditevent ORDER BY id").fetchall()
    numbers = [f"user:{users[name]}" for name in ("ada", "a_a", "axa", "100%")]
    assert rows == [*((one, one) for one in numbers), ("admin:gone", ""), ("key:ada (admin)", ""), ("ada", "")]
    trigger = "SELECT count(*) FROM pg_trigger WHERE tgname = 'audit_append_only' AND tgenabled = 'O'"
    seal_all(conn)
    assert kinds(conn, acme) == [] and count(conn, trigger) == 1
