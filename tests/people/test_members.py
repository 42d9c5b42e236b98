"""Members and invitations over the API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.fixtures_api import Api, in_parallel
from tests.fixtures_people import PASSWORD, People, member_of, signed_in

if TYPE_CHECKING:
    from django.test import Client

    from tenants.models import Tenant

Conn = psycopg.Connection[Any]
BETTER = "an even better one"


def invite(api: Api, email: str = "new@acme.test", role: str = "editor", **more: Any) -> Any:
    answer = api.post("invitations", {"email": email, "role": role, **more})
    assert answer.status == 201, answer.body
    return answer.body


def token_of(made: Any) -> str:
    found = re.search(r"token=(sbi_[\w-]+)$", made["link"])
    assert found
    return found[1]


def browser(host: str = "acme.localhost") -> Client:
    from django.test import Client

    return Client(headers={"Host": host}, raise_request_exception=False)


def accept(token: str, password: str = BETTER, *, host: str = "acme.localhost", **more: str) -> Any:
    sent = {"token": token, "password": password, "again": password, "name": "New", **more}
    return browser(host).post("/console/invitation", sent)


# --- members ---


def test_reading_and_changing(api: Api, acme: Tenant, conn: Conn) -> None:
    member_of(acme)
    member = member_of(acme, "viewer")
    listed = api.get("members").body["items"]
    assert [one["email"] for one in listed] == ["viewer@acme.test", "admin@acme.test"]
    assert [one["email"] for one in api.get("members?role=viewer,editor").body["items"]] == ["viewer@acme.test"]
    assert len(api.get("members?email=ADMIN@acme.test").body["items"]) == 1
    seen = api.get(f"members/{member.uid}")
    changed = api.patch(f"members/{member.uid}", {"role": "operator", "name": None}, If_Match=seen.etag)
    assert (changed.status, changed.body["role"], changed.body["name"]) == (200, "operator", None)
    assert api.patch(f"members/{member.uid}", {"role": "viewer"}, If_Match=seen.etag).status == 412
    assert api.patch(f"members/{member.uid}", {"role": "viewer"}).status == 428
    query = "SELECT before, after FROM audit_auditevent WHERE action = 'member.update' AND allowed"
    row = conn.execute(query).fetchone()
    assert row == ({"role": "viewer", "name": ""}, {"role": "operator", "name": ""})


def test_pages_of_members(api: Api, acme: Tenant) -> None:
    made = sorted(str(member_of(acme, "viewer", email=f"p{number}@acme.test").uid) for number in range(5))
    first = api.get("members?page_size=3").body
    second = api.get(f"members?page_size=3&cursor={first['next_cursor']}").body
    assert [one["id"] for one in (*first["items"], *second["items"])] == made[::-1] and second["next_cursor"] is None


def test_a_role_counts_from_the_next_request_on(api: Api, acme: Tenant) -> None:
    member = member_of(acme, "admin")
    member_of(acme, "admin", email="other@acme.test")
    client = signed_in(member)
    assert client.get("/api/v1/api-keys").status_code == 200
    api.patch(f"members/{member.uid}", {"role": "viewer"}, If_Match="*")
    assert client.get("/api/v1/api-keys").status_code == 403
    assert client.get("/api/v1/jobs").status_code == 200


def test_who_leaves_is_out_and_can_not_come_back(api: Api, acme: Tenant) -> None:
    from django.contrib.auth.models import User

    member = member_of(acme, "viewer")
    client = signed_in(member)
    assert api.delete(f"members/{member.uid}").status == 428
    assert api.delete(f"members/{member.uid}", If_Match="*").status == 204
    assert client.get("/api/v1/jobs").status_code == 401
    assert not User.objects.filter(pk=member.user_id).exists()
    assert browser().post("/console/login", {"email": member.email, "password": PASSWORD}).status_code == 401
    assert api.delete(f"members/{member.uid}", If_Match="*").status == 404


def test_signed_out_everywhere(api: Api, acme: Tenant) -> None:
    member = member_of(acme, "viewer")
    one, two = signed_in(member), signed_in(member)
    assert api.post(f"members/{member.uid}/sign-out").status == 200
    assert [each.get("/console/").status_code for each in (one, two)] == [302, 302]
    member.refresh_from_db()
    assert signed_in(member).get("/console/").status_code == 200


def test_the_last_admin_stays(api: Api, acme: Tenant) -> None:
    admin = member_of(acme)
    assert api.patch(f"members/{admin.uid}", {"role": "viewer"}, If_Match="*").code == "last_admin"
    assert api.delete(f"members/{admin.uid}", If_Match="*").code == "last_admin"
    member_of(acme, "admin", email="second@acme.test")
    assert api.delete(f"members/{admin.uid}", If_Match="*").status == 204


def test_of_two_admins_who_remove_each_other_one_stays(acme: Tenant, acme_people: People) -> None:
    from tenants.models import Member

    for _ in range(5):
        Member.objects.filter(tenant=acme).delete()
        both = [member_of(acme, "admin", email=f"{Member.objects.count()}-{n}-{_}@acme.test").uid for n in (0, 1)]
        apis = [Api(acme_people.admin) for _ in both]
        found = in_parallel(2, lambda n: apis[n].delete(f"members/{both[n]}", If_Match="*").status)  # noqa: B023
        assert sorted(found) == [204, 409]
        assert Member.objects.filter(tenant=acme, role="admin").count() == 1


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"role": "worker"}, "/role"),
        ({"role": "root"}, "/role"),
        ({"role": None}, "/role"),
        ({"name": "a\nb"}, "/name"),
        ({"name": "x" * 101}, "/name"),
        ({"name": 1}, "/name"),
        ({"email": "x@y.test"}, "/email"),
        ({"password": "x"}, "/password"),
        ({"user": 1}, "/user"),
    ],
)
def test_a_change_that_is_none(api: Api, acme: Tenant, body: Any, pointer: str) -> None:
    member = member_of(acme, "viewer")
    answer = api.patch(f"members/{member.uid}", body, If_Match="*")
    assert answer.status == 400 and pointer in answer.faults


def test_the_other_tenants_people_are_not_there(api: Api, globex: Tenant, other_api: Api) -> None:
    member, made = member_of(globex, "viewer"), invite(other_api, "x@globex.test")
    assert api.get("members").body["items"] == api.get("invitations").body["items"] == []
    for method, path in (
        ("GET", f"members/{member.uid}"), ("PATCH", f"members/{member.uid}"), ("DELETE", f"members/{member.uid}"),
        ("POST", f"members/{member.uid}/reset"), ("POST", f"members/{member.uid}/sign-out"),
        ("GET", f"invitations/{made['id']}"), ("DELETE", f"invitations/{made['id']}"),
    ):  # fmt: skip
        assert api.call(method, path, {}, headers={"If-Match": "*"}).status == 404
    member.refresh_from_db()
    assert member.session_epoch == 1


# --- invitations ---


def test_an_invitation_is_accepted_once(api: Api, acme: Tenant, conn: Conn) -> None:
    made = invite(api, "New@Acme.Test")
    assert (made["email"], made["status"], made["mailed"]) == ("new@acme.test", "open", False)
    assert made["link"].startswith("http://acme.localhost/console/invitation?token=sbi_")
    shown = browser().get(f"/console/invitation?token={token_of(made)}")
    assert shown.status_code == 200 and b"new@acme.test" in shown.content and b"editor" in shown.content
    assert shown["Referrer-Policy"] == "strict-origin"
    client = browser()
    sent = {"token": token_of(made), "password": BETTER, "again": BETTER, "name": "Nia"}
    assert client.post("/console/invitation", sent)["Location"] == "/console/"
    assert client.get("/console/").status_code == 200, "signed in"
    assert accept(token_of(made)).status_code == 404
    (member,) = api.get("members").body["items"]
    assert (member["email"], member["name"], member["role"]) == ("new@acme.test", "Nia", "editor")
    assert api.get(f"invitations/{made['id']}").body["status"] == "accepted"
    assert browser().post("/console/login", {"email": "new@acme.test", "password": BETTER}).status_code == 302
    actions = [row[0] for row in conn.execute("SELECT action FROM audit_auditevent ORDER BY id")]
    assert actions == ["invitation.create", "invitation.accept", "session.begin"]
    assert not conn.execute("SELECT 1 FROM audit_auditevent WHERE after::text LIKE '%sbi\\_%'").fetchall()
    assert not conn.execute("SELECT 1 FROM audit_auditevent WHERE after::text LIKE '%new@acme.test%'").fetchall()


def test_looking_uses_nothing_up(api: Api) -> None:
    token = token_of(invite(api))
    for _ in range(3):
        assert browser().get(f"/console/invitation?token={token}").status_code == 200
        assert browser().head(f"/console/invitation?token={token}").status_code == 200
    assert accept(token).status_code == 302


def test_an_invitation_opens_one_tenant(api: Api, globex: Tenant) -> None:
    token = token_of(invite(api))
    assert browser("globex.localhost").get(f"/console/invitation?token={token}").status_code == 404
    assert accept(token, host="globex.localhost").status_code == 404
    assert accept(token, host="testserver").status_code == 404
    assert accept(token).status_code == 302


@pytest.mark.parametrize("end", ["revoked", "expired", "again"])
def test_an_invitation_that_is_over(api: Api, conn: Conn, end: str) -> None:
    made = invite(api)
    if end == "revoked":
        assert api.delete(f"invitations/{made['id']}").status == 204
        assert api.delete(f"invitations/{made['id']}").status == 204
    elif end == "expired":
        conn.execute("UPDATE tenants_invitation SET expires_at = now()")
    else:
        invite(api, role="admin")
    assert accept(token_of(made)).status_code == 404
    assert api.get(f"invitations/{made['id']}").body["status"] == ("expired" if end == "expired" else "revoked")
    assert api.get("members").body["items"] == []


@pytest.mark.parametrize("token", ["", "sbi_", "sbi_wrong", "x" * 5_000, "sbi_\x00", "sbi_\u00e9", "' OR 1=1"])
def test_what_is_no_token(acme: Tenant, token: str) -> None:
    assert browser().get("/console/invitation", {"token": token}).status_code == 404
    assert accept(token).status_code == 404


def test_one_of_many_accepts(api: Api) -> None:
    token = token_of(invite(api))
    found = in_parallel(6, lambda _: accept(token).status_code)
    assert sorted(found) == [302] + [404] * 5
    assert len(api.get("members").body["items"]) == 1


def test_a_weak_password_uses_nothing_up(api: Api) -> None:
    token = token_of(invite(api))
    for password, text in (("short", b"too short"), ("password1", b"too common"), ("new@acme.test", b"similar")):
        answer = accept(token, password)
        assert answer.status_code == 422 and text in answer.content, password
        assert f'value="{password}'.encode() not in answer.content
    differ = browser().post("/console/invitation", {"token": token, "password": BETTER, "again": "x"})
    assert differ.status_code == 422
    assert accept(token).status_code == 302


def test_a_name_that_is_accepted_is_harmless(api: Api) -> None:
    made = invite(api, name="Given")
    accept(token_of(made), name="  N\x00i\u202ea <b>\n" + "x" * 200)
    (member,) = api.get("members").body["items"]
    assert member["name"].startswith("Nia <b>x") and len(member["name"]) == 100


@pytest.mark.parametrize(
    "email",
    [
        "", "no", "a@b", "@acme.test", "a@acme.test\nBcc: x@evil.test", "a\x00@acme.test", "a@acme.test, b@acme.test",
        "Ada <ada@acme.test>", "\u0430da@acme.test", "ada@\u0430cme.test", "x" * 250 + "@acme.test", 5, None,
        ["a@b.test"],
    ],
)  # fmt: skip
def test_what_is_no_address(api: Api, email: Any) -> None:
    answer = api.post("invitations", {"email": email, "role": "viewer"})
    assert answer.status == 400 and "/email" in answer.faults


def test_a_member_is_not_invited_again(api: Api, acme: Tenant) -> None:
    member_of(acme, "viewer", email="new@acme.test")
    answer = api.post("invitations", {"email": "NEW@acme.test", "role": "admin"})
    assert (answer.status, answer.code) == (409, "member_exists")


def test_an_invitation_never_opens_an_account_that_came_in_between(api: Api, acme: Tenant) -> None:
    token = token_of(invite(api, role="admin"))
    member = member_of(acme, "viewer", email="new@acme.test")
    assert accept(token).status_code == 404
    member.refresh_from_db()
    member.user.refresh_from_db()
    assert member.role == "viewer" and member.user.check_password(PASSWORD)


def test_one_open_invitation_of_many_at_once(acme_people: People, conn: Conn) -> None:
    apis = [Api(acme_people.admin) for _ in range(6)]
    body = {"email": "new@acme.test", "role": "viewer"}
    found = in_parallel(6, lambda number: apis[number].post("invitations", body).status)
    assert set(found) <= {201, 409} and 201 in found
    query = "SELECT count(*) FROM tenants_invitation WHERE revoked_at IS NULL AND accepted_at IS NULL"
    assert conn.execute(query).fetchone() == (1,)


def test_nobody_below_admin_invites(acme_people: People) -> None:
    for role in ("viewer", "editor", "operator"):
        answer = Api(acme_people.keys[role]).post("invitations", {"email": "x@acme.test", "role": "viewer"})
        assert answer.code == "role_too_low"


def test_a_replay_and_a_rehearsal_show_no_link(api: Api, conn: Conn) -> None:
    body = {"email": "new@acme.test", "role": "viewer"}
    rehearsed = api.post("invitations?validate_only=true", body)
    assert rehearsed.status == 200 and rehearsed.body["link"] is None
    assert conn.execute("SELECT count(*) FROM tenants_invitation").fetchone() == (0,)
    first = api.post("invitations", body, Idempotency_Key="i")
    again = api.post("invitations", body, Idempotency_Key="i")
    assert first.body["link"] and again.body == {**first.body, "link": None}


# --- mail ---


@pytest.fixture
def mailing(settings: Any) -> Any:
    from django.core import mail

    settings.EMAIL_URL = "smtp://mail.test"
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    settings.PUBLIC_URL = "https://shardbeat.test:8443"
    mail.outbox = []
    return mail


def test_an_invitation_goes_out_by_mail(api: Api, mailing: Any) -> None:
    made = invite(api)
    (sent,) = mailing.outbox
    assert made["mailed"] and sent.to == ["new@acme.test"] and made["link"] in sent.body
    assert made["link"].startswith("https://acme.localhost:8443/console/invitation?token=")


@pytest.mark.parametrize(
    ("public_url", "host", "expected"),
    [
        ("", "acme.localhost:8080", "http://acme.localhost:8080/"),
        ("", "testserver", "http://acme.localhost/"),
        ("https://shardbeat.test", "testserver:8080", "https://acme.localhost/"),
        ("https://[2001:db8::1]:8443", "testserver", "https://acme.localhost:8443/"),
    ],
)
def test_a_link_leads_where_the_tenant_is(
    acme_people: People, settings: Any, public_url: str, host: str, expected: str
) -> None:
    settings.PUBLIC_URL = public_url
    made = invite(Api(acme_people.admin, host=host))
    assert made["link"].startswith(expected + "console/invitation?token=sbi_")


def test_no_mail_before_it_is_certain(api: Api, mailing: Any) -> None:
    body = {"email": "new@acme.test", "role": "viewer"}
    assert api.post("invitations?validate_only=true", body).status == 200
    assert mailing.outbox == []
    for _ in range(2):
        api.post("invitations", body, Idempotency_Key="m")
    assert len(mailing.outbox) == 1


def test_a_mail_that_fails_takes_nothing_back(api: Api, settings: Any) -> None:
    settings.EMAIL_URL, settings.EMAIL_BACKEND = "smtp://x", "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    assert accept(token_of(invite(api))).status_code == 302


# --- a new password ---


def test_a_new_password_for_who_forgot_it(api: Api, acme: Tenant, conn: Conn) -> None:
    member = member_of(acme, "viewer")
    client = signed_in(member)
    made = api.post(f"members/{member.uid}/reset").body
    assert made["member"] == str(member.uid)
    shown = browser().get(f"/console/invitation?token={token_of(made)}")
    assert b"Choose a new password" in shown.content
    assert client.get("/console/").status_code == 200, "nothing has happened yet"
    assert accept(token_of(made)).status_code == 302
    assert client.get("/console/").status_code == 302, "the former sessions are over"
    assert browser().post("/console/login", {"email": member.email, "password": BETTER}).status_code == 302
    assert browser().post("/console/login", {"email": member.email, "password": PASSWORD}).status_code == 401
    assert accept(token_of(made)).status_code == 404
    assert api.get("members").body["items"][0]["name"] == "Viewer", "the name stays"


def test_a_removed_member_takes_the_link_along(api: Api, acme: Tenant) -> None:
    member = member_of(acme, "viewer")
    made = api.post(f"members/{member.uid}/reset").body
    api.delete(f"members/{member.uid}", If_Match="*")
    assert accept(token_of(made)).status_code == 404
    assert api.get("members").body["items"] == []


def test_a_changed_password_ends_the_link(api: Api, acme: Tenant) -> None:
    member = member_of(acme, "viewer")
    made = api.post(f"members/{member.uid}/reset").body
    client = signed_in(member)
    client.post("/console/password", {"current": PASSWORD, "password": BETTER, "again": BETTER})
    assert accept(token_of(made)).status_code == 404
