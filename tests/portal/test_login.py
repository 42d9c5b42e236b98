"""Signing in on the tenant's host, and everything that people try at that door."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.fixtures_api import in_parallel
from tests.fixtures_people import PASSWORD, member_of, signed_in

if TYPE_CHECKING:
    from django.test import Client

    from tenants.models import Member, Tenant

Conn = psycopg.Connection[Any]
LOGIN = "/console/login"


def browser(host: str = "acme.localhost", *, checks: bool = False, address: str = "192.0.2.1") -> Client:
    from django.test import Client

    return Client(
        enforce_csrf_checks=checks, headers={"Host": host}, raise_request_exception=False, REMOTE_ADDR=address
    )


def login(client: Client, email: str = "admin@acme.test", password: str = PASSWORD, **more: str) -> Any:
    return client.post(LOGIN, {"email": email, "password": password, **more})


@pytest.fixture
def ada(acme: Tenant) -> Member:
    return member_of(acme)


def trail(conn: Conn) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT action, allowed, reason FROM audit_auditevent ORDER BY id").fetchall()


def test_in_and_out(ada: Member, conn: Conn) -> None:
    client = browser()
    assert client.get(LOGIN).status_code == 200
    answer = login(client)
    assert (answer.status_code, answer["Location"]) == (302, "/console/")
    assert client.get("/console/").status_code == 200
    assert client.get(LOGIN)["Location"] == "/console/", "who is in needs no login"
    assert client.post("/console/logout")["Location"] == LOGIN
    assert client.get("/console/").status_code == 302
    assert [one[0] for one in trail(conn)] == ["session.begin", "session.end"]


def test_any_spelling_of_the_email(ada: Member) -> None:
    assert login(browser(), email="  Admin@ACME.test ").status_code == 302


@pytest.mark.parametrize(
    ("email", "password"),
    [
        ("admin@acme.test", "wrong"),
        ("nobody@acme.test", PASSWORD),
        ("admin@acme.test", ""),
        ("", ""),
        ("admin@acme.test", PASSWORD + " "),
        ("admin@acme.test\x00", PASSWORD),
        ("\ud83d\ude00@acme.test".encode("utf-16", "surrogatepass").decode("utf-16"), PASSWORD),
        ("adm\u0131n@acme.test", PASSWORD),
        ("%", PASSWORD),
        ("' OR 1=1 --", PASSWORD),
        ("x" * 10_000, "y" * 10_000),
    ],
)
def test_what_is_wrong_is_not_said(ada: Member, email: str, password: str) -> None:
    answer = login(browser(), email=email, password=password)
    assert answer.status_code == 401 and b"E-mail or password is wrong." in answer.content
    assert "sessionid" not in answer.cookies
    assert PASSWORD.encode() not in answer.content


def test_whatever_is_wrong_costs_one_hash(ada: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.contrib.auth.hashers import MD5PasswordHasher

    count = 0
    encode = MD5PasswordHasher.encode

    def counted(self: Any, password: str, salt: str) -> str:
        nonlocal count
        count += 1
        return encode(self, password, salt)

    monkeypatch.setattr(MD5PasswordHasher, "encode", counted)
    member = member_of(ada.tenant, "viewer", email="sso@acme.test")
    member.user.set_unusable_password()
    member.user.save(update_fields=["password"])
    count = 0
    for email, password in (
        ("admin@acme.test", "wrong"), ("nobody@acme.test", "wrong"), ("sso@acme.test", "wrong"), ("", "wrong"),
        ("admin@acme.test", "x" * 5_000),
    ):  # fmt: skip
        before = count
        login(browser(), email=email, password=password)
        assert count - before == 1, email


def test_an_account_of_another_tenant_is_none(ada: Member, globex: Tenant) -> None:
    assert login(browser("globex.localhost")).status_code == 401
    member_of(globex, email="admin@acme.test").user.delete()
    assert login(browser("globex.localhost")).status_code == 401


def test_the_same_email_elsewhere_is_another_account(ada: Member, globex: Tenant) -> None:
    from tenants.people import password_set
    from tenants.sessions import actor_of_member
    from tenants.work import database_now

    other = member_of(globex, email="admin@acme.test")
    request = browser().get(LOGIN).wsgi_request
    password_set(
        tenant=globex, actor=actor_of_member(other, request), member_uid=other.uid, password="another secret one",
        now=database_now(),
    )  # fmt: skip
    assert login(browser("globex.localhost"), password="another secret one").status_code == 302
    assert login(browser()).status_code == 302, "here it is as before"


def test_an_operators_password_opens_no_console(acme: Tenant) -> None:
    from django.contrib.auth.models import User

    User.objects.create_superuser("ada@acme.test", "ada@acme.test", PASSWORD)
    assert login(browser(), email="ada@acme.test").status_code == 401


def test_a_members_password_opens_no_admin(ada: Member) -> None:
    client = browser("testserver")
    client.post("/admin/login/", {"username": ada.user.username, "password": PASSWORD})
    assert client.get("/admin/").status_code == 302


def test_a_session_that_was_planted_is_not_used(ada: Member) -> None:
    """Fixation: the key that a stranger chose or knows is not the one that is signed in, nor is what it held."""
    from django.contrib.sessions.backends.db import SessionStore

    session = SessionStore()
    session["evil"] = session["tenant"] = 1
    session.save()
    victim = browser()
    victim.cookies["sessionid"] = str(session.session_key)
    assert login(victim).status_code == 302
    assert victim.cookies["sessionid"].value != session.session_key
    attacker = browser()
    attacker.cookies["sessionid"] = str(session.session_key)
    assert attacker.get("/console/").status_code == 302
    assert "evil" not in victim.session


def test_a_second_login_begins_anew(ada: Member) -> None:
    client = signed_in(ada)
    before = client.cookies["sessionid"].value
    other = member_of(ada.tenant, "viewer")
    login(client, email=other.email)
    assert client.cookies["sessionid"].value != before
    old = browser()
    old.cookies["sessionid"] = before
    assert old.get("/console/").status_code == 302, "the former session is over"


def test_the_cookie(ada: Member, settings: Any) -> None:
    cookie = login(browser()).cookies["sessionid"]
    assert cookie["httponly"] and cookie["samesite"] == "Lax" and not cookie["domain"]
    assert int(cookie["max-age"]) == settings.MEMBER_SESSION_S == 12 * 3_600


def test_a_session_ends_by_itself(ada: Member, conn: Conn) -> None:
    client = signed_in(ada)
    conn.execute("UPDATE django_session SET expire_date = now() - interval '1 second'")
    assert client.get("/console/").status_code == 302


@pytest.mark.parametrize("path", [LOGIN, "/console/logout", "/console/password", "/console/invitation"])
def test_no_form_without_its_token(ada: Member, path: str) -> None:
    client = browser(checks=True)
    client.cookies = signed_in(ada).cookies
    answer = client.post(path, {"email": "admin@acme.test", "password": PASSWORD})
    assert answer.status_code == 403 and b"Nothing was done" in answer.content
    assert client.get("/console/").status_code == 200


def test_with_its_token(ada: Member) -> None:
    client = browser(checks=True)
    client.get(LOGIN)
    token = client.cookies["csrftoken"].value
    assert login(client, csrfmiddlewaretoken=token).status_code == 302


def test_a_form_of_another_origin(ada: Member) -> None:
    client = browser(checks=True)
    client.get(LOGIN)
    sent = {"email": ada.email, "password": PASSWORD, "csrfmiddlewaretoken": client.cookies["csrftoken"].value}
    for origin in ("http://globex.localhost", "http://evil.test", "null"):
        assert client.post(LOGIN, sent, headers={"Origin": origin}).status_code == 403
    assert client.post(LOGIN, sent, headers={"Origin": "http://acme.localhost"}).status_code == 302


def test_only_posts_change(ada: Member) -> None:
    client = signed_in(ada)
    assert client.get("/console/logout").status_code == 405
    assert client.get(f"{LOGIN}?email=admin@acme.test&password={PASSWORD}").status_code == 302
    assert browser().get(f"{LOGIN}?email=admin@acme.test&password={PASSWORD}").status_code == 200


NEXT = [
    "https://evil.test/", "//evil.test", "///evil.test", "/\\evil.test", "\\\\evil.test", "/console/\\evil.test",
    "javascript:alert(1)", "/console\r\nLocation: https://evil.test", "/console/\r\nX: y", "/consolevil", "/admin/",
    "console/", " /console/", "/console/../admin/", "/console/login?next=/console/login", "/console/logout",
    "http:/console/", "http:///console/", "/console/\t", "/console/\u2028", "x" * 5_000, "/console/" + "x" * 3_000, "",
]  # fmt: skip


@pytest.mark.parametrize("back", NEXT)
def test_it_leads_nowhere_else(ada: Member, back: str) -> None:
    assert login(browser(), next=back)["Location"] == "/console/"
    assert signed_in(ada).get(LOGIN, {"next": back})["Location"] == "/console/"


@pytest.mark.parametrize("back", ["/console/", "/console/jobs?state=a,b&x=%2F%2Fevil", "/console/schedules/1#top"])
def test_it_leads_back(ada: Member, back: str) -> None:
    assert login(browser(), next=back)["Location"] == back


def test_what_is_typed_is_shown_harmlessly(acme: Tenant) -> None:
    answer = login(browser(), email='"><script>alert(1)</script>', next='/console/"><script>')
    assert b"<script>" not in answer.content


# --- guessing ---


def test_an_account_can_be_tried_so_often(ada: Member, settings: Any, conn: Conn) -> None:
    settings.FAILED_LOGINS = 3
    answers = [login(browser(address=f"192.0.2.{number}"), password="x") for number in range(5)]
    assert [one.status_code for one in answers] == [401, 401, 401, 429, 429]
    assert 1 <= int(answers[-1]["Retry-After"]) <= 15 * 60 + 1
    assert login(browser(address="192.0.2.99")).status_code == 429, "not even the right one is looked at"
    assert trail(conn) == [("session.refuse", False, "wrong password")] * 3


def test_an_account_that_is_none_is_refused_the_same(acme: Tenant, settings: Any) -> None:
    settings.FAILED_LOGINS = 3
    found = [login(browser(address=f"192.0.2.{n}"), email="no@acme.test", password="x").status_code for n in range(5)]
    assert found == [401, 401, 401, 429, 429]


def test_who_signed_in_from_there_is_not_locked_out(ada: Member, settings: Any) -> None:
    settings.FAILED_LOGINS = 3
    assert login(browser(address="198.51.100.7")).status_code == 302
    for number in range(6):
        login(browser(address=f"192.0.2.{number}"), password="x")
    assert login(browser(address="192.0.2.200")).status_code == 429
    assert login(browser(address="198.51.100.7")).status_code == 302


def test_but_can_not_guess_for_ever_either(ada: Member, settings: Any) -> None:
    settings.FAILED_LOGINS = 3
    assert login(browser()).status_code == 302
    assert [login(browser(), password="x").status_code for _ in range(4)] == [401, 401, 401, 429]


def test_a_login_begins_the_count_anew(ada: Member, settings: Any) -> None:
    settings.FAILED_LOGINS = 3
    for _ in range(4):
        assert login(browser(), password="x").status_code == 401
        assert login(browser()).status_code == 302


def test_one_address_over_many_accounts_and_tenants(ada: Member, globex: Tenant, settings: Any) -> None:
    settings.FAILED_LOGINS = 2
    hosts = ("acme.localhost", "globex.localhost")
    found = [login(browser(hosts[n % 2]), email=f"p{n}@acme.test", password="x").status_code for n in range(12)]
    assert found == [401] * 10 + [429] * 2


def test_an_ipv6_network_is_one_address(ada: Member, settings: Any) -> None:
    settings.FAILED_LOGINS = 1
    found = [
        login(browser(address=f"2001:db8::{n:x}"), email=f"p{n}@a.test", password="x").status_code for n in range(7)
    ]
    assert found == [401] * 5 + [429] * 2


def test_exactly_so_many_of_many_at_once(ada: Member, settings: Any) -> None:
    settings.FAILED_LOGINS = 5
    found = in_parallel(20, lambda n: login(browser(address=f"192.0.2.{n}"), password="x").status_code)
    assert sorted(found) == [401] * 5 + [429] * 15


def test_without_a_broker_each_process_counts(ada: Member, settings: Any) -> None:
    settings.FAILED_LOGINS, settings.BROKER_URL = 2, "redis://127.0.0.1:1/0"
    assert [login(browser(), password="x").status_code for _ in range(4)] == [401, 401, 429, 429]


def test_many_logins_wait_for_each_other_and_do_not_pile_up(
    ada: Member, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenants import guard

    monkeypatch.setattr(guard, "HASH_WAIT_S", 0.01)
    with guard.hashing, guard.hashing:
        answer = login(browser())
        assert answer.status_code == 503 and answer["Retry-After"] == "1"
    assert login(browser()).status_code == 302


# --- the password ---


def change(client: Client, current: str = PASSWORD, new: str = "an even better one", again: str | None = None) -> Any:
    return client.post("/console/password", {"current": current, "password": new, "again": again or new})


def test_a_new_password_ends_the_other_sessions(ada: Member, conn: Conn) -> None:
    here, there = browser(), browser()
    login(here)
    login(there)
    before = here.cookies["sessionid"].value
    assert b"is changed" in change(here).content
    assert here.get("/console/").status_code == 200 and here.cookies["sessionid"].value != before
    assert there.get("/console/").status_code == 302
    assert login(browser()).status_code == 401
    assert login(browser(), password="an even better one").status_code == 302
    assert ("member.password", True, "") in trail(conn)


@pytest.mark.parametrize(
    ("current", "new", "again", "what"),
    [
        ("wrong", "an even better one", None, b"present password is wrong"),
        (PASSWORD, "an even better one", "another", b"differ"),
        (PASSWORD, "short", None, b"too short"),
        (PASSWORD, "password1", None, b"too common"),
        (PASSWORD, "83920174650", None, b"entirely numeric"),
        (PASSWORD, "x" * 1_025, None, b"At most"),
        ("", "", None, b"wrong"),
    ],
)
def test_a_password_that_is_refused(
    ada: Member, current: str, new: str, again: str | None, what: bytes, conn: Conn
) -> None:
    answer = change(signed_in(ada), current, new, again)
    assert answer.status_code == 422 and what in answer.content
    assert login(browser()).status_code == 302, "the old one is good"


def test_a_stolen_session_can_not_guess_the_password(ada: Member, settings: Any) -> None:
    settings.FAILED_LOGINS = 3
    client = signed_in(ada)
    found = [change(client, current=f"guess {n}").status_code for n in range(5)]
    assert found == [422, 422, 422, 429, 429]


def test_who_has_no_password_gets_none_here(ada: Member) -> None:
    """Else a session of an identity provider could become a password."""
    ada.user.set_unusable_password()
    ada.user.save(update_fields=["password"])
    client = signed_in(ada)
    assert b"identity provider" in client.get("/console/password").content
    assert b"identity provider" in change(client, current="").content
    ada.user.refresh_from_db()
    assert not ada.user.has_usable_password()


@pytest.mark.parametrize("status", ["suspended", "provisioning"])
def test_a_tenant_that_is_not_active_is_closed(ada: Member, conn: Conn, status: str) -> None:
    client = signed_in(ada)
    conn.execute("UPDATE tenants_tenant SET status = %s WHERE slug = 'acme'", [status])
    try:
        for answer in (client.get("/console/"), browser().get(LOGIN), login(browser())):
            assert answer.status_code == 403 and status.encode() in answer.content
    finally:
        conn.execute("UPDATE tenants_tenant SET status = 'active' WHERE slug = 'acme'")


def test_pages_of_the_login_keep_to_the_policy(ada: Member) -> None:
    from tests.console.conftest import Strict

    for page in (browser().get(LOGIN), signed_in(ada).get("/console/password"), login(browser(), password="x")):
        strict = Strict()
        strict.feed(page.content.decode())
        assert not strict.found and page["Cache-Control"] == "no-store"
        assert "script-src 'self'" in page["Content-Security-Policy"] and page["X-Frame-Options"] == "DENY"
