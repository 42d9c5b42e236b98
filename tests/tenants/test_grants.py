"""The application's role: it works with rows and can't change what is defined or what has been written down."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from apps.audit.services import record
from tenants import door
from tenants.models import Tenant
from tests.fixtures_flow import NOW, actor, count

Conn = psycopg.Connection[Any]
FORBIDDEN = [
    "UPDATE audit_auditevent SET actor = 'nobody'",
    "DELETE FROM audit_auditevent",
    "TRUNCATE audit_auditevent",
    "ALTER TABLE audit_auditevent ADD COLUMN x int",
    "DROP TABLE audit_auditevent",
    "UPDATE audit_seal SET number = 7",
    "DELETE FROM audit_seal",
    "TRUNCATE audit_seal",
    "ALTER TABLE audit_seal DISABLE TRIGGER ALL",
    "INSERT INTO audit_sealstate (id) VALUES (2)",
    "DELETE FROM audit_sealstate",
    "TRUNCATE audit_sealstate",
    "ALTER TABLE audit_auditevent DISABLE TRIGGER ALL",
    "CREATE TABLE public.mine (id int)",
    "CREATE TABLE t_acme.mine (id int)",
    "CREATE SCHEMA t_mine",
    "DROP SCHEMA t_acme CASCADE",
    "ALTER TABLE t_acme.executions_execution DROP COLUMN state",
    "DROP TABLE t_acme.executions_execution",
    "TRUNCATE t_acme.executions_execution",
    "TRUNCATE tickets_ticket",
    "ALTER TABLE tickets_ticket DROP CONSTRAINT ticket_state_is_known",
    "DROP INDEX ticket_ready",
    "CREATE INDEX mine ON tickets_ticket (tenant_id)",
    "CREATE FUNCTION public.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE TRIGGER mine AFTER INSERT ON audit_auditevent EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE ROLE mine",
    "COPY tickets_ticket TO PROGRAM 'true'",
    "SELECT pg_read_file('/etc/passwd')",
]

REFUSED = {
    "audit_auditevent": ("UPDATE", "DELETE"), "audit_seal": ("UPDATE", "DELETE"),
    "audit_sealstate": ("INSERT", "DELETE"),
}  # fmt: skip


@pytest.fixture
def event(acme: Tenant) -> None:
    record(actor=actor(acme), action="test", object_type="test", object_id=1, now=NOW, tenant_id=acme.pk)


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_the_application_can_not(conn: Conn, event: None, statement: str) -> None:
    with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable)) as caught:
        conn.execute(statement)
    assert isinstance(caught.value, psycopg.errors.InsufficientPrivilege), caught.value


def test_a_grant_of_what_it_does_not_own_changes_nothing(conn: Conn, event: None) -> None:
    before = count(conn, "SELECT count(*) FROM audit_auditevent")
    conn.execute("GRANT ALL ON audit_auditevent TO CURRENT_USER")  # a warning only
    for statement in ("DELETE FROM audit_auditevent", "UPDATE audit_auditevent SET actor = ''"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(statement)
    assert count(conn, "SELECT count(*) FROM audit_auditevent") == before


def test_the_application_can_not_become_the_owner(conn: Conn) -> None:
    row = conn.execute("SELECT tableowner FROM pg_tables WHERE tablename = 'audit_auditevent'").fetchone()
    assert row is not None
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute(f"SET ROLE {row[0]}")


def test_the_application_works_with_rows(conn: Conn, event: None, acme: Tenant) -> None:
    """Reads and writes in every table of both kinds of schema, but for the trail, which only grows."""
    tables = conn.execute(
        "SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('public', 't_acme') ORDER BY 1, 2"
    ).fetchall()
    assert len(tables) > 30
    for schema, table in tables:
        for privilege in ("SELECT", "INSERT", "UPDATE", "DELETE"):
            allowed = count(conn, "SELECT has_table_privilege(%s, %s)::int", f"{schema}.{table}", privilege)
            refused = privilege in REFUSED.get(table, ())
            assert bool(allowed) != refused, (schema, table, privilege)


def test_only_its_own_sessions_can_be_ended(conn: Conn, second: Conn) -> None:
    """What a takeover needs, and no more."""
    with door.connect("test owner", owner=True) as owner, pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("SELECT pg_terminate_backend(%s)", [owner.info.backend_pid])
    assert conn.execute("SELECT pg_terminate_backend(%s)", [second.info.backend_pid]).fetchone() == (True,)
    second.close()
