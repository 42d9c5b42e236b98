"""Signing in with an identity provider, over real HTTP; and what is tried against it."""

from __future__ import annotations

import base64
import hmac
import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import psycopg
import pytest

from tests.fixtures_api import Api
from tests.fixtures_flow import at_once
from tests.fixtures_people import PASSWORD, member_of
from tests.signin.idp import Idp, secret_of

if TYPE_CHECKING:
    from django.test import Client

    from tenants.models import Tenant

Conn = psycopg.Connection[Any]
SSO, CALLBACK = "/console/sso", "/console/sso/callback"


def browser(host: str = "acme.localhost", address: str = "192.0.2.1") -> Client:
    from django.test import Client

    return Client(headers={"Host": host}, raise_request_exception=False, REMOTE_ADDR=address)


def sign_in(idp: Idp, client: Client | None = None, **query: str) -> Any:
    """The whole way; the answer to the callback."""
    client = client or browser()
    begun = client.get(SSO, query)
    assert begun.status_code == 302, begun.content
    return client.get(CALLBACK, idp.authorize(begun["Location"]))


def ok(answer: Any) -> bool:
    return answer.status_code == 302 and answer["Location"].startswith("/console/") and "sessionid" in answer.cookies


@pytest.fixture
def ada(acme: Tenant, provider: dict[str, Any]) -> Any:
    """Somebody whom the provider knows, too."""
    return member_of(acme, "viewer", email="ada@acme.test")


def test_a_member_signs_in(idp: Idp, ada: Any, conn: Conn) -> None:
    client = browser()
    assert b"company's login" in client.get("/console/login").content.replace(b"&#x27;", b"'")
    answer = sign_in(idp, client, next="/console/jobs?a=1")
    assert ok(answer) and answer["Location"] == "/console/jobs?a=1"
    assert client.get("/console/").status_code == 200
    assert answer.cookies["shardbeat_sso"]["max-age"] == 0, "used up"
    rows = conn.execute("SELECT action, reason FROM audit_auditevent WHERE action LIKE 'session%'").fetchall()
    assert rows == [("session.begin", "identity provider")]


def test_what_the_provider_is_asked(idp: Idp, ada: Any) -> None:
    client = browser()
    begun = client.get(SSO)
    asked = dict(parse_qsl(urlsplit(begun["Location"]).query))
    assert asked["redirect_uri"] == "http://acme.localhost/console/sso/callback"
    assert set(asked["scope"].split()) == {"openid", "email", "profile"}
    assert min(len(asked[name]) for name in ("state", "nonce", "code_challenge")) >= 43
    cookie = begun.cookies["shardbeat_sso"]
    assert cookie["httponly"] and cookie["samesite"] == "Lax" and cookie["path"] == SSO and not cookie["domain"]
    again = dict(parse_qsl(urlsplit(client.get(SSO)["Location"]).query))
    assert not {again[name] for name in ("state", "nonce", "code_challenge")} & set(asked.values())


@pytest.mark.parametrize("ways", [None, ["client_secret_basic"], ["client_secret_post"]])
def test_the_client_proves_itself(idp: Idp, ada: Any, ways: list[str] | None) -> None:
    idp.about["token_endpoint_auth_methods_supported"] = ways
    assert ok(sign_in(idp))
    (_, form, headers) = next(one for one in idp.seen if one[0] == "/token")
    assert ("client_secret" in form) == (ways == ["client_secret_post"]) != ("Authorization" in headers)
    assert form["code_verifier"]


def test_a_subject_stays_the_member_whatever_its_email(idp: Idp, ada: Any) -> None:
    assert ok(sign_in(idp))
    idp.claims = {"email": "changed@elsewhere.test", "email_verified": False}
    client = browser()
    assert ok(sign_in(idp, client))
    assert client.get("/console/").status_code == 200


def test_the_session_is_of_this_tenant_alone(idp: Idp, ada: Any, globex: Tenant) -> None:
    member_of(globex, "admin", email="ada@acme.test")
    client = browser()
    sign_in(idp, client)
    other = browser("globex.localhost")
    other.cookies = client.cookies
    assert other.get("/console/").status_code == 302
    assert other.get(SSO).status_code == 404, "it has no provider"


def test_a_session_of_a_provider_becomes_no_password(idp: Idp, provider: Any, api: Api, acme: Tenant) -> None:
    api.post("invitations", {"email": "ada@acme.test", "role": "editor"})
    client = browser()
    assert ok(sign_in(idp, client))
    answer = client.post(
        "/console/password", {"current": "", "password": "an even better one", "again": "an even better one"}
    )
    assert b"identity provider" in answer.content
    (member,) = api.get("members").body["items"]
    assert (member["role"], member["has_password"], member["name"]) == ("editor", False, "Ada")


# --- who gets in ---


def test_a_stranger_does_not(idp: Idp, provider: Any, api: Api) -> None:
    answer = sign_in(idp)
    assert answer.status_code == 403 and b"Ask for an invitation" in answer.content
    assert api.get("members").body["items"] == []


@pytest.mark.parametrize(
    "claims",
    [
        {"email_verified": False},
        {"email_verified": None},
        {"email_verified": "true"},
        {"email_verified": 1},
        {"email": None},
        {"email": ["ada@acme.test"]},
        {"email": "ada@evil.test"},
        {"email": "ada@acme.test.evil.test"},
        {"email": "ada@evil.test\n@acme.test"},
        {"email": '"ada@evil.test"@acme.test '},
        {"email": "\u0430da@acme.test"},
        {"email": "ada@sub.acme.test"},
    ],
)
def test_an_email_that_anybody_may_claim_opens_nothing(idp: Idp, ada: Any, claims: dict[str, Any]) -> None:
    idp.claims = claims
    answer = sign_in(idp)
    assert answer.status_code == 403 and "sessionid" not in answer.cookies


def test_an_email_that_went_to_somebody_else_is_not_the_old_account(idp: Idp, ada: Any) -> None:
    assert ok(sign_in(idp))
    idp.claims = {"sub": "s-2"}
    answer = sign_in(idp)
    assert answer.status_code == 403 and b"Another login" in answer.content


def test_a_removed_member_does_not_come_back(idp: Idp, ada: Any, api: Api) -> None:
    client = browser()
    assert ok(sign_in(idp, client))
    api.delete(f"members/{ada.uid}", If_Match="*")
    assert client.get("/console/").status_code == 302
    assert sign_in(idp).status_code == 403


def test_an_account_that_was_switched_off(idp: Idp, ada: Any) -> None:
    ada.user.is_active = False
    ada.user.save(update_fields=["is_active"])
    assert sign_in(idp).status_code == 403


def test_roles_by_claim(idp: Idp, values: dict[str, Any], api: Api, acme: Tenant) -> None:
    values |= {"role_claim": "groups", "roles": {"ops": "operator", "dev": "editor"}, "default_role": "viewer"}
    assert api.put("identity-provider", values, If_Match="*").status == 200
    for groups, role in (
        (["dev", "ops"], "operator"), (["dev"], "editor"), ([], "editor"), (None, "editor"), ("ops", "operator"),
        ([{"x": 1}, 3, "admin"], "operator"),
    ):  # fmt: skip
        idp.claims = {"groups": groups}
        assert ok(sign_in(idp)), groups
        assert api.get("members").body["items"][0]["role"] == role, groups
    idp.claims = {"sub": "s-2", "email": "bob@acme.test"}
    assert ok(sign_in(idp))
    assert api.get("members?email=bob@acme.test").body["items"][0]["role"] == "viewer"


def test_who_comes_first_in_two_windows_is_one_member(idp: Idp, values: dict[str, Any], api: Api) -> None:
    api.put("identity-provider", {**values, "default_role": "viewer"}, If_Match="*")
    windows = [browser() for _ in range(4)]
    backs = [idp.authorize(one.get(SSO)["Location"]) for one in windows]
    answers = at_once(
        *[lambda one=one, back=back: one.get(CALLBACK, back) for one, back in zip(windows, backs, strict=True)]
    )
    assert all(ok(one) for one in answers)
    assert len(api.get("members").body["items"]) == 1


def test_the_plan_has_room_for_who_comes(idp: Idp, values: dict[str, Any], api: Api, plan: Any) -> None:
    api.put("identity-provider", {**values, "default_role": "viewer"}, If_Match="*")
    assert api.post("invitations", {"email": "bob@acme.test", "role": "editor"}).status == 201
    plan(max_members=1)
    answer = sign_in(idp)
    assert answer.status_code == 403 and b"no place for one more member" in answer.content
    idp.claims = {"sub": "s-2", "email": "bob@acme.test"}
    assert ok(sign_in(idp)), "who is invited has a place"
    assert ok(sign_in(idp)), "and who is there comes again"
    assert [one["email"] for one in api.get("members").body["items"]] == ["bob@acme.test"]


def test_a_claim_never_takes_the_last_admin(idp: Idp, values: dict[str, Any], api: Api, acme: Tenant) -> None:
    values |= {"role_claim": "groups", "roles": {"dev": "editor"}}
    api.put("identity-provider", values, If_Match="*")
    member_of(acme, "admin", email="ada@acme.test")
    idp.claims = {"groups": ["dev"]}
    assert ok(sign_in(idp))
    assert api.get("members").body["items"][0]["role"] == "admin"


def test_a_password_goes_on_beside_it(idp: Idp, ada: Any) -> None:
    assert ok(sign_in(idp))
    answer = browser().post("/console/login", {"email": "ada@acme.test", "password": PASSWORD})
    assert answer.status_code == 302


# --- tokens that are not good ---


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"nonce": 5},
        {"aud": "another"},
        {"aud": ["shardbeat", "another"]},
        {"aud": ["shardbeat", "another"], "azp": "another"},
        {"aud": None},
        {"iss": "http://127.0.0.1:1"},
        {"iss": None},
        {"exp": 1},
        {"exp": None},
        {"exp": "soon"},
        {"iat": int(time.time()) - 3_600},
        {"iat": int(time.time()) + 3_600},
        {"iat": None},
        {"nbf": int(time.time()) + 3_600},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "x" * 256},
        {"sub": "a\x00b"},
        {"at_hash": "wrong"},
        {"azp": "another"},
    ],
)
def test_a_token_that_is_for_something_else(idp: Idp, ada: Any, claims: dict[str, Any]) -> None:
    idp.claims = claims
    answer = sign_in(idp)
    assert answer.status_code == 403 and "sessionid" not in answer.cookies, claims


def right_claims(idp: Idp, nonce: str) -> dict[str, Any]:
    now = int(time.time())
    return {
        "iss": idp.issuer, "aud": "shardbeat", "sub": "s-1", "exp": now + 300, "iat": now, "nonce": nonce,
        "email": "ada@acme.test", "email_verified": True,
    }  # fmt: skip


def unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in (header, claims))
    return ".".join(parts)


@pytest.mark.parametrize("forgery", ["none", "hs256 with the public key", "another key", "text", "empty", "long"])
def test_a_token_that_somebody_else_made(idp: Idp, ada: Any, forgery: str) -> None:
    from joserfc.jwk import RSAKey

    client = browser()
    begun = client.get(SSO)
    back = idp.authorize(begun["Location"])
    claims = right_claims(idp, dict(parse_qsl(urlsplit(begun["Location"]).query))["nonce"])
    if forgery == "none":
        idp.token = unsigned({"alg": "none"}, claims) + "."
    elif forgery == "hs256 with the public key":
        text = unsigned({"alg": "HS256", "kid": "k1"}, claims)
        mac = hmac.digest(idp.key.as_pem(private=False), text.encode(), "sha256")
        idp.token = f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    elif forgery == "another key":
        other = RSAKey.generate_key(2048, {"kid": "k1"}, private=True)
        idp.token = idp.forged(claims, algorithm="RS256", key=other)
    else:
        idp.token = {"text": "a.b.c", "empty": " ", "long": "x" * 20_000}[forgery]
    answer = client.get(CALLBACK, back)
    assert answer.status_code == 403 and "sessionid" not in answer.cookies


def test_a_shared_secret_among_the_keys_verifies_nothing(idp: Idp, ada: Any) -> None:
    client = browser()
    begun = client.get(SSO)
    back = idp.authorize(begun["Location"])
    claims = right_claims(idp, dict(parse_qsl(urlsplit(begun["Location"]).query))["nonce"])
    key = secret_of("x" * 40)
    idp.answers["/keys"] = lambda: (
        200,
        b'{"keys": [{"kty": "oct", "kid": "k1", "k": "' + str(key.as_dict()["k"]).encode() + b'"}]}',
    )
    idp.token = idp.forged(claims, algorithm="HS256", key=key)
    assert client.get(CALLBACK, back).status_code == 403


def test_keys_that_change_are_read_again(idp: Idp, ada: Any) -> None:
    from joserfc.jwk import RSAKey

    from apps.signin import provider

    assert ok(sign_in(idp))
    idp.key = RSAKey.generate_key(2048, {"kid": "k1"}, private=True)
    assert sign_in(idp).status_code == 403, "asked a moment ago"
    provider._asked.clear()
    assert ok(sign_in(idp))


# --- answers that belong to something else ---


def test_the_answer_to_another_login(idp: Idp, ada: Any) -> None:
    """Login CSRF: a victim's browser gets the code of an attacker."""
    attacker, victim = browser(), browser()
    answer = idp.authorize(attacker.get(SSO)["Location"])
    assert victim.get(CALLBACK, answer).status_code == 403, "nothing was begun there"
    victim.get(SSO)
    assert victim.get(CALLBACK, answer).status_code == 403, "something else was"
    assert "sessionid" not in victim.cookies


def test_an_answer_works_once(idp: Idp, ada: Any) -> None:
    client = browser()
    begun = client.get(SSO)
    back = idp.authorize(begun["Location"])
    kept = client.cookies["shardbeat_sso"].value
    assert ok(client.get(CALLBACK, back))
    other = browser()
    other.cookies["shardbeat_sso"] = kept
    assert other.get(CALLBACK, back).status_code == 403, "the provider gives a code's tokens once"


@pytest.mark.parametrize("change", [{"state": "x"}, {"state": ""}, {"code": ""}, {"code": "x"}, {"code": "y" * 5_000}])
def test_a_changed_answer(idp: Idp, ada: Any, change: dict[str, str]) -> None:
    client = browser()
    back = idp.authorize(client.get(SSO)["Location"])
    assert client.get(CALLBACK, {**back, **change}).status_code == 403


def test_what_the_provider_refuses(idp: Idp, ada: Any) -> None:
    client = browser()
    state = idp.authorize(client.get(SSO)["Location"])["state"]
    answer = client.get(CALLBACK, {"state": state, "error": "access_denied", "error_description": "<script>x</script>"})
    assert answer.status_code == 403 and b"<script>" not in answer.content
    assert answer["Referrer-Policy"] == "strict-origin", "the page has a form: its browser must send its Origin"


def test_another_providers_answer(idp: Idp, ada: Any) -> None:
    """Mix-up (RFC 9207)."""
    client = browser()
    back = idp.authorize(client.get(SSO)["Location"])
    assert client.get(CALLBACK, {**back, "iss": "https://evil.test"}).status_code == 403
    idp.about["authorization_response_iss_parameter_supported"] = True
    from apps.signin.provider import forget

    forget()
    assert sign_in(idp).status_code == 403, "it says that it names itself, and did not"
    client = browser()
    back = idp.authorize(client.get(SSO)["Location"])
    assert ok(client.get(CALLBACK, {**back, "iss": idp.issuer}))


def test_a_cookie_that_was_made_up_changed_or_of_another_tenant(
    idp: Idp, ada: Any, values: dict[str, Any], other_api: Api, globex: Tenant
) -> None:
    client = browser()
    back = idp.authorize(client.get(SSO)["Location"])
    right = client.cookies["shardbeat_sso"].value
    for wrong in ("", "x", right[:-3] + "abc", right + "x", "e30:1:x"):
        client.cookies["shardbeat_sso"] = wrong
        assert client.get(CALLBACK, back).status_code == 403
    assert other_api.put("identity-provider", values, If_Match="*").status == 200
    member_of(globex, "admin", email="ada@acme.test")
    there = browser("globex.localhost")
    there.cookies["shardbeat_sso"] = right
    assert there.get(CALLBACK, back).status_code == 403


def test_a_login_that_was_begun_too_long_ago(idp: Idp, ada: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.signin import flow

    client = browser()
    back = idp.authorize(client.get(SSO)["Location"])
    monkeypatch.setattr(flow, "LIFE_S", -1)
    assert client.get(CALLBACK, back).status_code == 403


def test_a_change_of_the_provider_ends_what_was_begun(idp: Idp, ada: Any, api: Api, values: dict[str, Any]) -> None:
    client = browser()
    back = idp.authorize(client.get(SSO)["Location"])
    assert api.put("identity-provider", values, If_Match="*").status == 200
    assert client.get(CALLBACK, back).status_code == 403


@pytest.mark.parametrize("back", ["https://evil.test", "//evil.test", "/console/\\evil.test", "/admin/"])
def test_it_leads_nowhere_else(idp: Idp, ada: Any, back: str) -> None:
    assert sign_in(idp, next=back)["Location"] == "/console/"


def test_a_planted_session_is_not_used(idp: Idp, ada: Any) -> None:
    from django.contrib.sessions.backends.db import SessionStore

    session = SessionStore()
    session["tenant"] = 1
    session.save()
    client = browser()
    client.cookies["sessionid"] = str(session.session_key)
    assert ok(sign_in(idp, client))
    assert client.cookies["sessionid"].value != session.session_key


def test_only_gets(idp: Idp, ada: Any) -> None:
    assert browser().post(SSO).status_code == browser().post(CALLBACK).status_code == 405


def test_steps_are_counted(idp: Idp, ada: Any, settings: Any) -> None:
    settings.FAILED_LOGINS = 1
    assert [browser().get(SSO).status_code for _ in range(7)] == [302] * 5 + [429] * 2
    assert browser(address="192.0.2.77").get(SSO).status_code == 302


# --- switched off ---


def test_off_by_default_and_when_switched_off(idp: Idp, ada: Any, api: Api, values: dict[str, Any]) -> None:
    for path in (SSO, CALLBACK):
        assert browser("globex.localhost").get(path).status_code == 404
    client = browser()
    back = idp.authorize(client.get(SSO)["Location"])
    api.put("identity-provider", {**values, "enabled": False}, If_Match="*")
    assert client.get(CALLBACK, back).status_code == client.get(SSO).status_code == 404
    assert b"sso" not in client.get("/console/login").content
    api.delete("identity-provider", If_Match="*")
    assert client.get(SSO).status_code == 404
    assert browser().post("/console/login", {"email": "ada@acme.test", "password": PASSWORD}).status_code == 302
