"""What the trail says of persons: nowhere in plain text, readable while their key is there, gone with it."""

from __future__ import annotations

import base64
import os
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from apps.audit import chain, personal
from apps.audit.actors import Actor
from apps.audit.erasing import person_erase
from apps.audit.models import AuditEvent
from apps.audit.services import Entry, record_many
from tenants.models import Tenant
from tests.audit.hands import a_person, kinds, seal_all, verified, whole, write
from tests.fixtures_flow import NOW, count

Conn = psycopg.Connection[Any]
COMMAND = Actor(name="command:test", role="admin")


def read(conn: Conn) -> list[personal.Opened]:
    return personal.opened(conn, list(AuditEvent.objects.order_by("pk")))


def everything(conn: Conn) -> str:
    rows = conn.execute("SELECT e::text || encode(coalesce(personal, ''), 'escape') FROM audit_auditevent e")
    keys = conn.execute("SELECT k::text FROM audit_subjectkey k")
    return "\n".join(row[0] for row in [*rows, *keys])


def test_nothing_personal_is_in_plain_text(conn: Conn, acme: Tenant) -> None:
    write(conn, acme, by=a_person(acme), about="invitation:5", personal={"email": "bob@acme.test"})
    stored = everything(conn)
    for text in ("ada@", "192.0.2.7", "Firefox", "bob@"):  # nothing that a random id or key may hold
        assert text not in stored
    assert "user:7" in stored and "invitation:5" in stored
    one = read(conn)[0]
    assert (one.name, one.address, one.agent) == ("member:ada@acme.test (admin)", "192.0.2.7", "Firefox/130")
    assert one.about == {"email": "bob@acme.test"} and not one.erased


def test_a_machine_has_a_name_in_plain_text_and_its_address_not(conn: Conn, acme: Tenant) -> None:
    key = Actor(name="key:deploy (admin)", role="admin", tenant_id=acme.pk, subject="key:1", address="192.0.2.9")
    write(conn, acme, by=key)
    assert "key:deploy (admin)" in everything(conn) and "192.0.2.9" not in everything(conn)
    assert read(conn)[0].address == "192.0.2.9"


def test_the_system_and_commands_have_nothing_to_encrypt(conn: Conn, acme: Tenant, settings: Any) -> None:
    settings.SECRETS_KEYS = ""
    write(conn, acme, by=COMMAND)
    assert count(conn, "SELECT count(*) FROM audit_subjectkey") == 0


def test_rows_of_a_person_share_a_key_in_one_tenant_only(conn: Conn, acme: Tenant, globex: Tenant) -> None:
    for tenant in (acme, acme, globex, None):
        write(conn, tenant, 2, by=a_person(tenant))
    rows = conn.execute("SELECT tenant_id FROM audit_subjectkey ORDER BY 1").fetchall()
    assert rows == [(0,), (acme.pk,), (globex.pk,)]


def test_erasing_destroys_and_the_chain_stays(conn: Conn, acme: Tenant, globex: Tenant) -> None:
    for tenant in (acme, globex):
        write(conn, tenant, 2, by=a_person(tenant))
    write(
        conn, acme, by=a_person(acme, 8, name="member:eve (viewer)"), about="user:7", personal={"email": "ada@x.test"}
    )
    seal_all(conn)
    assert person_erase(subject="user:7", actor=COMMAND, now=NOW, tenant_id=acme.pk) == [acme.pk]
    seal_all(conn)
    shown = read(conn)
    assert [(one.name, one.erased) for one in shown[:2]] == [("", True)] * 2
    assert [one.name for one in shown[2:4]] == ["member:ada@acme.test (admin)"] * 2  # globex is another matter
    assert shown[4].name == "member:eve (viewer)" and shown[4].about == {} and shown[4].erased
    report = verified(conn, acme)
    assert report.findings == [] and report.erased == 3 and report.links == 4
    assert kinds(conn, globex) == [] and whole(conn) == []
    assert person_erase(subject="user:7", actor=COMMAND, now=NOW) == [globex.pk]
    assert person_erase(subject="user:7", actor=COMMAND, now=NOW) == []


def test_whoever_acts_after_an_erasure_begins_anew(conn: Conn, acme: Tenant) -> None:
    write(conn, acme, by=a_person(acme))
    person_erase(subject="user:7", actor=COMMAND, now=NOW)
    write(conn, acme, by=a_person(acme))
    shown = read(conn)
    assert [one.erased for one in shown] == [True, False, False]


def test_a_key_of_a_transaction_that_was_rolled_back_is_not_remembered(conn: Conn, acme: Tenant) -> None:
    with pytest.raises(ZeroDivisionError), conn.transaction():
        write(conn, acme, by=a_person(acme))
        raise ZeroDivisionError
    write(conn, acme, by=a_person(acme))
    assert not read(conn)[0].erased


def test_a_settled_key_is_remembered(conn: Conn, acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    write(conn, acme, by=a_person(acme))
    conn.execute("UPDATE audit_subjectkey SET created_at = created_at - interval '10 minutes'")
    write(conn, acme, by=a_person(acme))
    monkeypatch.setattr(personal, "_FIND", "SELECT 1 / 0 WHERE %s <> '' AND %s > 0")
    write(conn, acme, by=a_person(acme))
    assert [one.name for one in read(conn)] == ["member:ada@acme.test (admin)"] * 3


def test_ciphertext_of_another_row_subject_or_tenant_is_not_read(conn: Conn, acme: Tenant, globex: Tenant) -> None:
    write(conn, acme, by=a_person(acme))
    row = AuditEvent.objects.get()
    conn.execute("UPDATE audit_subjectkey SET subject = 'user:8'")
    assert personal.opened(conn, [row])[0] == personal.Opened(erased=True)
    row.personal = b"short"
    assert personal.opened(conn, [row])[0].erased


def test_keys_follow_a_new_key_encryption_key(conn: Conn, acme: Tenant, settings: Any) -> None:
    old = settings.SECRETS_KEYS
    write(conn, acme, by=a_person(acme))
    write(conn, None, by=a_person(None))
    seal_all(conn)
    new = "newer:" + base64.b64encode(os.urandom(32)).decode()
    settings.SECRETS_KEYS = f"{new},{old}"
    assert personal.rewrap(conn, dry_run=True) == (2, []) == personal.rewrap(conn, dry_run=False, batch=1)
    assert chain.rewrap(conn, dry_run=True) == (1, []) == chain.rewrap(conn, dry_run=False)
    settings.SECRETS_KEYS = new
    assert [one.erased for one in read(conn)] == [False, False]
    assert kinds(conn, acme) == [] and whole(conn) == []
    settings.SECRETS_KEYS = old
    assert [one.erased for one in read(conn)] == [True, True]  # unreadable here, and no error
    assert personal.rewrap(conn, dry_run=False)[1] and chain.rewrap(conn, dry_run=False)[1]


def test_what_can_not_be_stored_is_no_error(conn: Conn, acme: Tenant) -> None:
    odd = replace(a_person(acme), name="x" * 5000 + "\ud800", agent="\ud83d")
    record_many([Entry("a" * 99, "b" * 99, "c" * 99)], actor=odd, now=NOW, tenant_id=acme.pk, conn=conn)
    assert read(conn)[0].name.startswith("xxx")


def test_many_rows_are_one_statement(conn: Conn, acme: Tenant) -> None:
    entries = [Entry("job.create", "job", n, after={"n": n, "when": NOW, "5": "five"}) for n in range(1_000)]
    record_many(entries, actor=a_person(acme), now=NOW, tenant_id=acme.pk, conn=conn)
    assert count(conn, "SELECT count(DISTINCT txid) FROM audit_auditevent") == 1
    assert count(conn, "SELECT count(*) FROM audit_auditevent WHERE after ->> '5' = 'five'") == 1_000
