"""Keys, members and invitations on the pages: what is shown once is nowhere else, and nobody gives what they lack."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.api.makers import audit

if TYPE_CHECKING:
    from tenants.models import Tenant

KEY = re.compile(r"sb_[A-Za-z0-9]{8}_[A-Za-z0-9]{40}")
TOKEN = re.compile(r"token=(sbi_[A-Za-z0-9_-]+)")


def made_key(browser: Any, **members: str) -> tuple[str, str]:
    """(text, path) of a key."""
    page = browser.post("/console/keys/new", {"name": "deploy", "role": "viewer", **members}, status=200)
    (text,) = KEY.findall(page.content.decode())
    return text, str(page.context["url"])


def test_a_key_is_shown_once_and_works(acme: Tenant, conn: Any, console_of: Any) -> None:
    from django.test import Client

    browser = console_of(acme)
    text, path = made_key(browser, scopes="job.read\nschedule.*", expires_at="2040-01-01T00:00")
    call = Client(headers={"Authorization": f"Bearer {text}"})
    assert call.get("/api/v1/jobs").status_code == 200 and call.get("/api/v1/executions").status_code == 403
    for page in (path, "/console/keys", "/console/"):
        assert text not in browser.text(page) and text[12:] not in browser.text(page)
    assert text not in str(dict(browser.client.session.items())) and "job.read" in browser.text(path)
    assert audit(conn, path.rpartition("/")[2]) == ["apikey.create"]


def test_a_key_is_rotated_then_revoked(acme: Tenant, console_of: Any) -> None:
    from django.test import Client

    browser = console_of(acme)
    old, path = made_key(browser)
    page = browser.post(f"{path}/rotate", {"overlap_s": "3600"}, status=200)
    (new,) = KEY.findall(page.content.decode())
    for text in (old, new):
        assert Client(headers={"Authorization": f"Bearer {text}"}).get("/api/v1/jobs").status_code == 200
    assert "It has a successor already." in browser.text(path)
    assert "successor" in browser.post(f"{path}/rotate", {}, status=409).content.decode()
    browser.post(f"{path}/revoke")
    assert Client(headers={"Authorization": f"Bearer {old}"}).get("/api/v1/jobs").status_code == 401
    assert "It is revoked" in browser.text(path)


def test_a_key_that_can_not_be(acme: Tenant, console_of: Any) -> None:
    browser = console_of(acme)
    for members, field in (
        ({"name": ""}, "name"), ({"name": "a\nb"}, "name"), ({"role": "king"}, "role"), ({"scopes": "all"}, "scopes"),
        ({"expires_at": "yesterday"}, "expires_at"), ({"expires_at": "2001-01-01T00:00"}, "expires_at"),
    ):  # fmt: skip
        page = browser.post("/console/keys/new", {"name": "x", "role": "viewer", **members}, status=400)
        assert f'id="error-{field}"' in page.content.decode(), members


def test_keys_and_people_are_for_admins(acme: Tenant, globex: Tenant, console_of: Any) -> None:
    admin, operator = console_of(acme), console_of(acme, "operator")
    _, key = made_key(admin)
    member = f"/console/members/{operator.member.uid}"
    for path in ("/console/keys", key, f"{key}/revoke", "/console/members", member, f"{member}/remove"):
        assert "needs the role admin" in operator.text(path, status=403)
    page = operator.text("/console/")
    assert "/console/keys" not in page and "/console/members" not in page
    stranger = console_of(globex)
    for path in (key, f"{key}/rotate", f"{key}/revoke", member, f"{member}/change", f"{member}/remove"):
        stranger.get(path, status=404)


def test_somebody_is_invited_and_joins(acme: Tenant, console_of: Any) -> None:
    from django.test import Client

    browser = console_of(acme)
    page = browser.post(
        "/console/members/invite", {"email": "New@Acme.test", "name": "Neo", "role": "editor"}, status=200
    )
    (token,) = TOKEN.findall(page.content.decode())
    assert f"http://acme.localhost/console/invitation?token={token}" in page.content.decode()
    assert "new@acme.test" in browser.text("/console/members") and token not in browser.text("/console/members")
    guest = Client(headers={"Host": "acme.localhost"})
    answer = guest.post(
        "/console/invitation", {"token": token, "name": "Neo", "password": "a long one 1", "again": "a long one 1"}
    )
    assert answer.status_code == 302 and "Neo" in guest.get("/console/").content.decode()
    again = browser.post("/console/members/invite", {"email": "new@acme.test", "role": "viewer"}, status=409)
    assert "is a member already" in again.content.decode()


def test_an_invitation_is_taken_back(acme: Tenant, console_of: Any) -> None:
    from tenants.models import Invitation

    browser = console_of(acme)
    browser.post("/console/members/invite", {"email": "new@acme.test", "role": "viewer"}, status=200)
    (key,) = Invitation.objects.values_list("pk", flat=True)
    path = f"/console/invitations/{key}/revoke"
    assert path in browser.text("/console/members")
    browser.post(path)
    assert path not in browser.text("/console/members")
    browser.get(path, status=409)
    wrong = browser.post("/console/members/invite", {"email": "nobody", "role": "king"}, status=400)
    assert 'class="error"' in wrong.content.decode()


def test_a_member_gets_another_role_and_leaves(acme: Tenant, console_of: Any) -> None:
    admin, viewer = console_of(acme), console_of(acme, "viewer")
    path = f"/console/members/{viewer.member.uid}"
    seen = admin.get(f"{path}/change").context["form"]["revision"].value
    admin.post(f"{path}/change", {"name": "Vi", "role": "editor", "revision": seen})
    assert "Vi" in admin.text(path) and "New job" in viewer.text("/console/jobs")
    stale = admin.post(f"{path}/change", {"name": "X", "role": "admin", "revision": seen}, status=409)
    assert "It has changed since you looked" in stale.content.decode()
    admin.post(f"{path}/sign-out", {"revision": "2"})
    assert viewer.client.get("/console/").status_code == 302, "signed out"
    token = TOKEN.findall(admin.post(f"{path}/reset", {"revision": "2"}, status=200).content.decode())
    assert len(token) == 1
    now = admin.get(f"{path}/remove").context["form"]["revision"].value
    admin.post(f"{path}/remove", {"revision": now})
    admin.get(path, status=404)


def test_the_last_admin_stays(acme: Tenant, console_of: Any) -> None:
    admin = console_of(acme)
    path = f"/console/members/{admin.member.uid}"
    page = admin.post(f"{path}/change", {"name": "", "role": "viewer", "revision": "1"}, status=409)
    assert "The last admin stays" in page.content.decode()
    assert "The last admin stays" in admin.post(f"{path}/remove", {"revision": "1"}, status=409).content.decode()
    assert "this is you" in admin.text(path)


def test_a_stranger_of_the_tenant_is_sent_to_the_login(acme: Tenant) -> None:
    from django.test import Client

    nobody = Client(headers={"Host": "acme.localhost"})
    for path in ("keys", "members", "webhooks", f"keys/{UUID(int=1)}", "members/invite"):
        for answer in (nobody.get(f"/console/{path}"), nobody.post(f"/console/{path}")):
            assert answer.status_code == 302 and answer["Location"].startswith("/console/login"), path
