"""audit_verify and erase_person: exit codes, answers, and heads that were kept outside."""

from __future__ import annotations

import io
import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from django.core.management import call_command
from django.test import Client

from tenants.models import Tenant
from tests.audit.hands import a_person, as_owner, seal_all, write
from tests.commands import run_command
from tests.fixtures_people import member_of

Conn = psycopg.Connection[Any]


def run(*args: str) -> tuple[int, Any, str]:
    """Exit code, the answer in JSON, and what was said on standard error."""
    code, out, err = run_command(*args, "--format", "json")
    return code, json.loads(out or "null"), err


def text(*args: str) -> str:
    out = io.StringIO()
    with suppress(SystemExit):
        call_command(*args, stdout=out)
    return out.getvalue()


def test_a_whole_trail(conn: Conn, acme: Tenant, globex: Tenant) -> None:
    for tenant in (acme, globex, None):
        write(conn, tenant, 3)
    seal_all(conn)
    write(conn, acme)
    code, answer, _ = run("audit_verify")
    assert code == 0 and answer["findings"] == []
    assert {name: (one["links"], one["waiting"]) for name, one in answer["chains"].items()} == {
        "acme": (3, 1), "globex": (3, 0), "operators": (3, 0),
    }  # fmt: skip
    assert "acme: 3 links, 1 rows wait, head " in text("audit_verify", "--tenant", "acme")
    assert run("audit_verify", "--tenant", "nobody")[0] == 2


def test_findings_exit_1(conn: Conn, acme: Tenant, globex: Tenant) -> None:
    rows = write(conn, acme, 3)
    write(conn, globex)
    seal_all(conn)
    with as_owner() as owner:
        owner.execute("UPDATE audit_auditevent SET reason = 'x' WHERE id = %s", [rows[1]])
    code, answer, _ = run("audit_verify", "--tenant", "acme")
    assert code == 1
    assert [(one["kind"], one["number"], one["event"]) for one in answer["chains"]["acme"]["findings"]] == [
        ("changed", 2, rows[1])
    ]
    assert run("audit_verify", "--tenant", "globex")[0] == 0
    assert f"changed number 2 event {rows[1]}" in text("audit_verify")


def test_nothing_at_all(conn: Conn, acme: Tenant) -> None:
    assert run("audit_verify") == (0, {"chains": {}, "findings": []}, "")
    assert "nothing" in text("audit_verify")


def test_heads_that_were_kept_find_a_database_that_was_set_back(
    conn: Conn, acme: Tenant, globex: Tenant, tmp_path: Path
) -> None:  # fmt: skip
    """Everything was put back to an earlier time, with the sealer's row: only what was noted outside can tell."""
    write(conn, acme, 2)
    seal_all(conn)
    before = conn.execute("SELECT * FROM audit_sealstate").fetchone()
    write(conn, acme, 3)
    write(conn, globex)
    seal_all(conn)
    kept = tmp_path / "heads.json"
    kept.write_text(json.dumps(run("audit_verify", "--heads-only")[1]))
    assert run("audit_verify", "--expect", str(kept))[0] == 0
    with as_owner() as owner:
        owner.execute("DELETE FROM audit_seal WHERE number > 2 OR tenant_id = %s", [globex.pk])
        owner.execute("DELETE FROM audit_auditevent WHERE id NOT IN (SELECT event_id FROM audit_seal)")
        owner.execute("DELETE FROM audit_sealstate")
        owner.execute(f"INSERT INTO audit_sealstate VALUES ({', '.join(['%s'] * len(before or ()))})", before)
    assert run("audit_verify")[0] == 0
    code, answer, _ = run("audit_verify", "--expect", str(kept))
    assert code == 1
    assert [one["kind"] for one in answer["chains"]["acme"]["findings"]] == ["cut_off"]
    assert [one["kind"] for one in answer["findings"]] == ["cut_off"]


def test_what_is_expected_must_be_an_answer(conn: Conn, acme: Tenant, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("[]")
    for path in (broken, tmp_path / "none.json"):
        code, _, told = run("audit_verify", "--expect", str(path))
        assert code == 2 and str(path) in told


def test_erasing_a_person(conn: Conn, acme: Tenant, globex: Tenant) -> None:
    member = member_of(acme, email="ada@acme.test")
    subject = f"member:{member.uid}"
    write(conn, acme, by=replace(a_person(acme), subject=subject))
    write(conn, globex, by=a_person(globex, member.user_id))
    seal_all(conn)
    code, answer, _ = run("erase_person", "--user", "ada@acme.test", "--dry-run")
    assert (code, answer["trails"], answer["login_exists"]) == (0, ["acme", "globex"], True)
    code, answer, _ = run("erase_person", "--user", "ada@acme.test", "--tenant", "acme", "--reason", "asked for it")
    assert (code, answer["trails"]) == (0, ["acme"])
    user_id = member.user_id
    member.user.delete()
    rows = conn.execute(
        "SELECT actor, object_id, reason FROM audit_auditevent WHERE action = 'person.erase'"
    ).fetchall()
    assert rows == [("command:erase_person", subject, "asked for it")]
    code, answer, _ = run("erase_person", "--subject", subject)
    assert (code, answer["trails"], answer["login_exists"]) == (1, [], False)
    code, answer, _ = run("erase_person", "--subject", f"user:{user_id}")
    assert (code, answer["trails"]) == (0, ["globex"])
    assert run("audit_verify")[0] == 0
    assert run("erase_person", "--user", "nobody")[0] == 2


def test_erasing_a_person_who_has_left_already(conn: Conn, acme: Tenant, api: Any) -> None:
    """As the help says: the login is removed first. What is kept for idempotency keys names them, too."""
    from tenants.models import Invitation, Member

    invited = api.call(
        "POST", "invitations", {"email": "ada@acme.test", "role": "viewer"}, headers={"Idempotency-Key": "once"}
    ).body
    address = urlsplit(invited["link"])
    password = {"password": "correct horse battery", "again": "correct horse battery", "name": "Ada"}
    browser = Client(headers={"Host": "acme.localhost"})
    assert browser.post(f"{address.path}?{address.query}", password).status_code == 302
    uid = Member.objects.get(email="ada@acme.test").uid
    assert api.delete(f"members/{uid}", If_Match="*").status == 204
    code, answer, _ = run("erase_person", "--user", "Ada@acme.test")
    assert (code, answer["trails"], answer["login_exists"]) == (0, ["acme"], False)
    assert set(answer["subjects"]) == {f"member:{uid}", f"invitation:{invited['id']}"}
    assert not Invitation.objects.exists()
    assert conn.execute("SELECT count(*) FROM api_idempotentanswer").fetchone() == (0,)
    name = re.compile("(?<![0-9a-f])ada(?![0-9a-f])")  # ids may hold these letters
    items = api.get("audit-events").body["items"]
    shown = json.dumps([one for one in items if name.search(json.dumps(one).lower())])
    assert shown == "[]", "nothing readable is left"
    assert run("audit_verify")[0] == 0


def test_erasing_where_an_invitation_is_open(acme: Tenant, api: Any) -> None:
    api.post("invitations", {"email": "ada@acme.test", "role": "viewer"})
    code, answer, _ = run("erase_person", "--user", "ada@acme.test")
    assert (code, answer["login_exists"]) == (0, True)
    api.post("invitations", {"email": "bob@acme.test", "role": "viewer"})
    assert run("erase_person", "--user", "bob@acme.test", "--dry-run")[1]["trails"] == ["acme"]
    assert len(api.get("invitations").body["items"]) == 2
