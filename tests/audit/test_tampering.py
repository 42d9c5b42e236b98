"""Whatever the owner of the database does to sealed rows is found, and said of the row that it was done to."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tenants.models import Tenant
from tests.audit.hands import a_person, as_owner, kinds, seal_all, verified, whole, write

Conn = psycopg.Connection[Any]
COLUMNS = {
    "uid": "gen_random_uuid()", "txid": "txid + 1", "at": "at + interval '1 microsecond'", "actor": "'nobody'",
    "role": "'viewer'", "subject": "'user:8'", "action": "'job.read'", "object_type": "'jib'", "object_id": "'99'",
    "allowed": "NOT allowed", "before": "'{\"n\": 1.0}'", "after": "NULL", "reason": "'because'",
    "request_id": "'another'", "personal": "personal || '\\x00'", "about": "''", "about_personal": "NULL",
}  # fmt: skip


@pytest.fixture
def trail(conn: Conn, acme: Tenant, globex: Tenant) -> list[int]:
    """Six sealed rows of acme, and some of others."""
    write(conn, globex, 2)
    rows = write(conn, acme, 6, by=a_person(acme), about="user:9", personal={"email": "bob@acme.test"})
    write(conn, None, 1)
    seal_all(conn)
    return rows


def test_every_column_is_covered(conn: Conn) -> None:
    """A column that comes later must come into the digest."""
    rows = conn.execute("SELECT attname FROM pg_attribute WHERE attrelid = 'audit_auditevent'::regclass AND attnum > 0")
    assert {row[0] for row in rows} == {*COLUMNS, "id", "tenant_id"}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_changed_row(conn: Conn, acme: Tenant, trail: list[int], column: str) -> None:
    with as_owner() as owner:
        owner.execute(f"UPDATE audit_auditevent SET {column} = {COLUMNS[column]} WHERE id = %s", [trail[2]])
    found = kinds(conn, acme)
    assert ("changed", trail[2]) in found
    assert {event for kind, event in found if kind != "key_gone"} == {trail[2]}


def test_a_row_that_was_given_to_another_tenant(conn: Conn, acme: Tenant, globex: Tenant, trail: list[int]) -> None:
    with as_owner() as owner:
        owner.execute("UPDATE audit_auditevent SET tenant_id = %s WHERE id = %s", [globex.pk, trail[2]])
    assert kinds(conn, acme) == [("changed", trail[2])]


def test_removed_rows(conn: Conn, acme: Tenant, trail: list[int]) -> None:
    with as_owner() as owner:
        owner.execute("DELETE FROM audit_auditevent WHERE id = ANY(%s)", [[trail[0], trail[3], trail[5]]])
    assert kinds(conn, acme) == [("removed", trail[0]), ("removed", trail[3]), ("removed", trail[5])]


def test_rows_that_were_removed_with_their_links(conn: Conn, acme: Tenant, trail: list[int]) -> None:
    with as_owner() as owner:
        for table, column in (("audit_auditevent", "id"), ("audit_seal", "event_id")):
            owner.execute(f"DELETE FROM {table} WHERE {column} = ANY(%s)", [trail[2:4]])
    assert [kind for kind, _ in kinds(conn, acme)] == ["seal_removed"]


def test_rows_whose_links_were_numbered_anew(conn: Conn, acme: Tenant, trail: list[int]) -> None:
    with as_owner() as owner:
        owner.execute("DELETE FROM audit_auditevent WHERE id = %s", [trail[2]])
        owner.execute("DELETE FROM audit_seal WHERE event_id = %s", [trail[2]])
        for number in (4, 5, 6):
            owner.execute("UPDATE audit_seal SET number = number - 1 WHERE tenant_id = %s AND number = %s",
                          [acme.pk, number])  # fmt: skip
    assert ("changed", trail[3]) in kinds(conn, acme)
    assert whole(conn) == ["cut_off"]


def test_an_end_that_was_cut_off(conn: Conn, acme: Tenant, trail: list[int]) -> None:
    """The chain itself is whole: only the count of all links, which nobody can forge, says so."""
    with as_owner() as owner:
        owner.execute("DELETE FROM audit_auditevent WHERE id = ANY(%s)", [trail[4:]])
        owner.execute("DELETE FROM audit_seal WHERE event_id = ANY(%s)", [trail[4:]])
    assert kinds(conn, acme) == []
    assert whole(conn) == ["cut_off"]
    with as_owner() as owner:
        owner.execute("UPDATE audit_sealstate SET total = total - 2")
    assert whole(conn) == ["state_changed"]
    write(conn, acme)
    seal_all(conn)
    assert whole(conn) == ["alarm"]  # it stays, in the trail


def test_a_whole_chain_that_was_removed(conn: Conn, acme: Tenant, trail: list[int]) -> None:
    with as_owner() as owner:
        owner.execute("DELETE FROM audit_auditevent WHERE id = ANY(%s)", [trail])
        owner.execute("DELETE FROM audit_seal WHERE tenant_id = %s", [acme.pk])
    assert whole(conn) == ["cut_off"]


@pytest.mark.parametrize("txid", ["1", "(SELECT max(txid) FROM audit_auditevent)", "9000000000000000"])
def test_a_row_that_was_put_in(conn: Conn, acme: Tenant, trail: list[int], txid: str) -> None:
    with as_owner() as owner:
        row = owner.execute(
            "INSERT INTO audit_auditevent (id, txid, at, tenant_id, actor, action, object_type, object_id, allowed,"
            f" reason, request_id) VALUES (-5, {txid}, now(), %s, 'key:x', 'job.update', 'job', '1', true, '', '')"
            " RETURNING id", [acme.pk],
        ).fetchone()  # fmt: skip
    seal_all(conn)
    assert row is not None
    assert kinds(conn, acme) == [("inserted", row[0])]


def test_a_row_that_was_put_in_with_a_link(conn: Conn, acme: Tenant, trail: list[int]) -> None:
    with as_owner() as owner:
        owner.execute(
            "INSERT INTO audit_auditevent (id, at, tenant_id, actor, action, object_type, object_id, allowed, reason,"
            " request_id) VALUES (-5, now(), %s, 'key:x', 'job.update', 'job', '1', true, '', '')", [acme.pk],
        )  # fmt: skip
        owner.execute("INSERT INTO audit_seal VALUES (-5, %s, 7, now(), sha256('guess'))", [acme.pk])
    assert kinds(conn, acme) == [("changed", -5)]


def test_rows_that_were_exchanged(conn: Conn, acme: Tenant, trail: list[int]) -> None:
    with as_owner() as owner:
        owner.execute("UPDATE audit_seal SET event_id = -1 WHERE event_id = %s", [trail[1]])
        owner.execute("UPDATE audit_seal SET event_id = %s WHERE event_id = %s", [trail[1], trail[4]])
        owner.execute("UPDATE audit_seal SET event_id = %s WHERE event_id = -1", [trail[4]])
    assert kinds(conn, acme) == [("moved", trail[4]), ("moved", trail[1])]


def test_rows_whose_numbers_were_exchanged(conn: Conn, acme: Tenant, trail: list[int]) -> None:
    with as_owner() as owner:
        for old, new in ((trail[1], -1), (trail[4], trail[1]), (-1, trail[4])):
            owner.execute("UPDATE audit_auditevent SET id = %s WHERE id = %s", [new, old])
    assert kinds(conn, acme) == [("changed", trail[1]), ("changed", trail[4])]


def test_a_chain_that_was_made_anew_without_the_key(conn: Conn, acme: Tenant, trail: list[int], settings: Any) -> None:
    """The owner knows how links are made, and lacks SECRETS_KEYS."""
    from apps.audit.chain import DIGEST, FIRST, link

    with as_owner() as owner:
        owner.execute("UPDATE audit_auditevent SET actor = 'key:innocent' WHERE id = %s", [trail[2]])
        before = FIRST
        rows = owner.execute(
            f"SELECT s.number, s.sealed_at, {DIGEST} FROM audit_seal s JOIN audit_auditevent e ON e.id = s.event_id"
            " WHERE s.tenant_id = %s ORDER BY 1", [acme.pk],
        ).fetchall()  # fmt: skip
        for number, at, digest in rows:
            before = link(b"a guess" * 4, before, tenant_id=acme.pk, number=number, sealed_at=at, digest=digest)
            owner.execute("UPDATE audit_seal SET head = %s WHERE tenant_id = %s AND number = %s",
                          [before, acme.pk, number])  # fmt: skip
    assert {kind for kind, _ in kinds(conn, acme)} == {"changed"}


def test_a_key_of_the_chains_that_was_put_in(conn: Conn, acme: Tenant, trail: list[int]) -> None:
    with as_owner() as owner:
        owner.execute("UPDATE audit_sealstate SET wrapped = NULL, kek_id = ''")
    assert whole(conn) == ["key_gone"]
    write(conn, acme)
    seal_all(conn)
    assert "alarm" in whole(conn)
    assert len(verified(conn, acme).findings) == 6  # of what was sealed under the other key


def test_a_key_of_a_person_that_nobody_has_erased(conn: Conn, acme: Tenant, trail: list[int]) -> None:
    conn.execute("DELETE FROM audit_subjectkey WHERE subject = 'user:7'")
    assert [kind for kind, _ in kinds(conn, acme)] == ["key_gone"]


def test_the_other_chains_are_not_touched(conn: Conn, acme: Tenant, globex: Tenant, trail: list[int]) -> None:
    with as_owner() as owner:
        owner.execute("UPDATE audit_auditevent SET actor = 'x' WHERE tenant_id = %s", [acme.pk])
    assert len(kinds(conn, acme)) == 6 and kinds(conn, globex) == kinds(conn, None) == []


@pytest.mark.parametrize("at", ["'infinity'", "'-infinity'", "'4000-01-01 BC'", "(at::text || ' BC')::timestamptz"])
def test_a_time_that_is_none_is_no_way_out(conn: Conn, acme: Tenant, trail: list[int], at: str) -> None:
    with as_owner() as owner:
        owner.execute(f"UPDATE audit_auditevent SET at = {at} WHERE id = %s", [trail[2]])
    assert kinds(conn, acme) == [("changed", trail[2])]
