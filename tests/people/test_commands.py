"""Operators' commands for people and keys."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from kernel.clock import utc_now
from tenants.keys import apikey_create, apikey_find
from tenants.models import Invitation, Member
from tests.fixtures_people import PASSWORD, member_of
from tests.people.test_members import accept
from tests.tenants.test_commands import run

if TYPE_CHECKING:
    from tenants.models import Tenant

ADA = ("--tenant", "acme", "--email", "ada@acme.test")


def asked(*args: str) -> Any:
    code, out, err = run(*args, "--format", "json")
    assert (code, err) == (0, ""), err
    return json.loads(out)


def test_the_first_admin(acme: Tenant) -> None:
    assert asked("member_add", *ADA, "--role", "admin", "--dry-run")["link"] == ""
    assert Invitation.objects.count() == 0
    code, out, _ = run("member_add", *ADA, "--role", "admin")
    assert code == 0 and out.startswith("http://acme.localhost/console/invitation?token=sbi_")
    assert accept(out.strip().partition("token=")[2]).status_code == 302
    (found,) = asked("member_list", "--tenant", "acme")["members"]
    assert (found["email"], found["role"]) == ("ada@acme.test", "admin")


def test_with_a_password_from_standard_input(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, code in (("short\n", 2), (f"{PASSWORD}\n", 0), (f"{PASSWORD}\n", 2)):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        says = "" if code else "It could be done.\n"
        assert run("member_add", *ADA, "--password-stdin", "--dry-run")[:2] == (code, says)
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert run("member_add", *ADA, "--password-stdin")[0] == code
    assert Member.objects.filter(email="ada@acme.test").get().user.check_password(PASSWORD)


def test_changing_a_member(acme: Tenant) -> None:
    member_of(acme)
    member = member_of(acme, "viewer", email="ada@acme.test")
    assert asked("member_change", *ADA, "--role", "editor", "--dry-run")["role"] == "editor"
    member.refresh_from_db()
    assert member.role == "viewer"
    asked("member_change", *ADA, "--role", "editor")
    asked("member_change", *ADA, "--sign-out")
    member.refresh_from_db()
    assert (member.role, member.session_epoch) == ("editor", 2)
    assert "token=sbi_" in asked("member_change", *ADA, "--reset")["link"]
    asked("member_change", *ADA, "--remove")
    assert run("member_change", *ADA, "--remove")[0] == 2
    code, _, err = run("member_change", "--tenant", "acme", "--email", "admin@acme.test", "--remove")
    assert code == 2 and "last admin" in err


@pytest.mark.parametrize("args", [("--email", "no"), ("--email", "a@b.test", "--tenant", "nobody")])
def test_what_is_refused(acme: Tenant, args: tuple[str, ...]) -> None:
    assert run("member_add", "--tenant", "acme", *args)[0] == 2


def test_keys(acme: Tenant) -> None:
    made = asked("apikey_create", "--tenant", "acme", "--role", "editor", "--scope", "job.*", "--scope", "*.read")
    assert made["scopes"] == ["*.read", "job.*"]
    assert run("apikey_create", "--tenant", "acme", "--scope", "nothing")[0] == 2
    key = ("--tenant", "acme", "--prefix", made["api_key"][:11])
    assert "api_key" not in asked("apikey_rotate", *key, "--dry-run")
    new = asked("apikey_rotate", *key, "--overlap-s", "0")["api_key"]
    assert apikey_find(made["api_key"], now=utc_now()) is None
    found = apikey_find(new, now=utc_now())
    assert found is not None and found.scopes == ["*.read", "job.*"]
    assert run("apikey_rotate", *key)[0] == 2
    assert run("apikey_rotate", *key, "--overlap-s", "-1")[0] == 2
    asked("apikey_rotate", "--tenant", "acme", "--prefix", new, "--revoke")
    assert apikey_find(new, now=utc_now()) is None


def test_a_key_of_another_tenant(acme: Tenant, globex: Tenant) -> None:
    _, text = apikey_create(tenant=globex, name="g")
    assert run("apikey_rotate", "--tenant", "acme", "--prefix", text[:11])[0] == 2
