"""Operators look after tenants' people."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.console.conftest import save, tick
from tests.fixtures_people import member_of, signed_in

Conn = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def fast(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def actions(conn: Conn) -> list[str]:
    return [row[0] for row in conn.execute("SELECT action FROM audit_auditevent ORDER BY id")]


def test_an_invitation_is_made_and_its_link_shown_once(page: Any, acme: Any, conn: Conn) -> None:
    from tenants.models import Invitation

    data = {"tenant": acme.pk, "email": "New@Acme.test", "name": "", "role": "editor"}
    shown = page.post("/admin/tenants/invitation/add/", data)
    made = Invitation.objects.filter(email="new@acme.test").first()
    assert made is not None
    text = shown.content.decode()
    assert shown.status_code == 200 and "http://acme.localhost/console/invitation?token=sbi_" in text
    assert "no-store" in shown["Cache-Control"]
    again = page.get(f"/admin/tenants/invitation/{made.pk}/change/").content.decode()
    assert "sbi_" not in again and "new@acme.test" in again
    tick(page, "/admin/tenants/invitation/", "invitation.revoke", [made.pk])
    made.refresh_from_db()
    assert made.revoked_at is not None
    assert actions(conn) == ["invitation.create", "invitation.revoke"]


def test_a_member_is_changed_signed_out_and_removed(page: Any, acme: Any, conn: Conn) -> None:
    from django.contrib.auth.models import User

    member_of(acme)
    viewer = member_of(acme, "viewer")
    client, path = signed_in(viewer), f"/admin/tenants/member/{viewer.pk}"
    assert save(page, f"{path}/change/", {"name": "Vera", "role": "editor"}).status_code == 302
    viewer.refresh_from_db()
    assert (viewer.name, viewer.role, viewer.revision) == ("Vera", "editor", 2)
    tick(page, "/admin/tenants/member/", "member.sign_out", [viewer.pk])
    assert client.get("/console/").status_code == 302
    assert page.post(f"{path}/delete/", {"post": "yes"}).status_code == 302
    assert not User.objects.filter(pk=viewer.user_id).exists()
    assert actions(conn) == ["member.update", "member.sign_out", "member.remove"]


def test_the_last_admin_stays_here_too(page: Any, acme: Any) -> None:
    admin = member_of(acme)
    path = f"/admin/tenants/member/{admin.pk}"
    for answer in (
        page.get(save(page, f"{path}/change/", {"name": "", "role": "viewer"})["Location"]),
        page.post(f"{path}/delete/", {"post": "yes"}, follow=True),
    ):
        assert "The last admin stays" in answer.content.decode()
    admin.refresh_from_db()
    assert admin.role == "admin"


def test_logins_of_members_are_not_among_the_operators(page: Any, acme: Any) -> None:
    member = member_of(acme)
    assert member.user.username not in page.get("/admin/auth/user/").content.decode()
    assert page.get(f"/admin/auth/user/{member.user_id}/change/").status_code == 302


def test_the_invitation_of_a_member_is_a_new_password(page: Any, acme: Any, conn: Conn) -> None:
    member = member_of(acme)
    data = {"tenant": acme.pk, "email": member.email, "name": "", "role": "viewer"}
    assert "token=sbi_" in page.post("/admin/tenants/invitation/add/", data).content.decode()
    assert actions(conn) == ["member.reset"]
    bad = page.post("/admin/tenants/invitation/add/", {**data, "email": "no address"}, follow=True)
    assert "ust be an e-mail address" in bad.content.decode()


def test_a_provider_is_switched_off_and_its_secret_on_no_page(page: Any, acme: Any, conn: Conn) -> None:
    from apps.signin.models import Provider
    from kernel.clock import utc_now

    now = utc_now()
    made = Provider.objects.create(
        tenant=acme, issuer="https://login.test", client_id="c", enabled=True, created_at=now, updated_at=now
    )
    assert page.get(f"/admin/signin/provider/{made.pk}/change/").status_code == 200
    tick(page, "/admin/signin/provider/", "provider.switch_off", [made.pk])
    made.refresh_from_db()
    assert (made.enabled, made.revision) == (False, 2)
    assert actions(conn) == ["provider.update"]


def test_a_key_with_scopes(page: Any, acme: Any) -> None:
    from tenants.models import ApiKey

    data = {"tenant": acme.pk, "name": "n", "role": "viewer", "expires_at_0": "", "expires_at_1": ""}
    for bad in ('["nothing"]', "{}", "[]", "[1]", '"job.*"', "not json"):
        assert page.post("/admin/tenants/apikey/add/", {**data, "scopes": bad}).status_code == 200
    assert ApiKey.objects.count() == 0
    assert "sb_" in page.post("/admin/tenants/apikey/add/", {**data, "scopes": '["job.*"]'}).content.decode()
    assert "sb_" in page.post("/admin/tenants/apikey/add/", data).content.decode()
    assert list(ApiKey.objects.order_by("pk").values_list("scopes", flat=True)) == [["job.*"], None]
