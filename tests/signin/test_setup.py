"""Setting a provider up: who may, what is refused, and that its addresses reach nothing inside."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import psycopg
import pytest

from tests.fixtures_api import Api
from tests.fixtures_people import People
from tests.signin.idp import SECRET, Idp
from tests.signin.test_flow import SSO, browser

Conn = psycopg.Connection[Any]


def put(api: Api, body: Any) -> Any:
    return api.put("identity-provider", body, If_Match="*")


def test_reading_replacing_deleting(api: Api, values: dict[str, Any], conn: Conn) -> None:
    assert api.get("identity-provider").status == 404
    made = put(api, values)
    assert made.status == 200 and made.body["has_client_secret"] and "client_secret" not in made.body
    assert api.get("identity-provider").body == made.body
    changed = api.put("identity-provider", {**made.body, "enabled": False}, If_Match=made.etag)
    assert changed.status == 200 and not changed.body["enabled"] and changed.body["has_client_secret"]
    assert api.put("identity-provider", made.body, If_Match=made.etag).status == 412
    assert api.put("identity-provider", made.body).status == 428
    assert not put(api, {**values, "client_secret": ""}).body["has_client_secret"]
    put(api, values)
    assert api.delete("identity-provider", If_Match="*").status == 204
    assert api.get("identity-provider").status == api.delete("identity-provider", If_Match="*").status == 404
    stored = conn.execute(
        "SELECT coalesce(before::text, '') || coalesce(after::text, '') FROM audit_auditevent WHERE allowed"
    ).fetchall()
    assert len(stored) == 5 and not [one for (one,) in stored if SECRET in one]
    assert conn.execute("SELECT count(*) FROM t_acme.secrets_secret").fetchone() == (0,)


def test_the_secret_rests_encrypted_and_jobs_can_not_name_it(api: Api, provider: Any, conn: Conn) -> None:
    row = conn.execute("SELECT name, ciphertext FROM t_acme.secrets_secret").fetchone()
    assert row is not None and row[0] == "@signin.client" and SECRET.encode() not in bytes(row[1])
    assert api.get("secrets").body["items"] == []
    target = {"url": "https://a.example/", "headers": {"X": {"secret": "@signin.client"}}}
    assert api.post("jobs", {"name": "thief", "kind": "http", "target": target}).status == 400


def test_only_a_whole_admin(api: Api, acme_people: People, values: dict[str, Any], provider: Any) -> None:
    for role in ("viewer", "editor", "operator"):
        assert Api(acme_people.keys[role]).get("identity-provider").code == "role_too_low"
    made = api.post("api-keys", {"name": "n", "role": "admin", "scopes": ["provider.*", "apikey.*"]}).body
    narrow = Api(made["key"])
    assert narrow.get("identity-provider").status == 200
    assert put(narrow, values).code == "grant_too_high"
    assert narrow.delete("identity-provider", If_Match="*").code == "grant_too_high"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"issuer": None}, "/issuer"),
        ({"client_id": ""}, "/client_id"),
        ({"client_secret": 5}, "/client_secret"),
        ({"client_secret": "a\nb"}, "/client_secret"),
        ({"domains": "acme.test"}, "/domains"),
        ({"domains": ["*"]}, "/domains/0"),
        ({"domains": ["@acme.test"]}, "/domains/0"),
        ({"domains": ["localhost"]}, "/domains/0"),
        ({"domains": [f"d{n}.test" for n in range(51)]}, "/domains"),
        ({"domains": [], "default_role": "viewer"}, "/domains"),
        ({"default_role": "worker"}, "/default_role"),
        ({"default_role": "root"}, "/default_role"),
        ({"roles": {"x": "viewer"}}, "/role_claim"),
        ({"roles": {"x": "root"}, "role_claim": "g"}, "/roles/x"),
        ({"roles": ["x"], "role_claim": "g"}, "/roles"),
        ({"enabled": "yes"}, "/enabled"),
        ({"unknown": 1}, "/unknown"),
    ],
)
def test_what_is_refused(api: Api, values: dict[str, Any], change: dict[str, Any], pointer: str) -> None:
    answer = put(api, {**values, **change})
    assert answer.status == 400 and pointer in answer.faults, answer.body
    assert api.get("identity-provider").status == 404


ISSUERS = [
    "http://169.254.169.254/latest", "https://169.254.169.254", "https://10.0.0.1", "https://[::1]:9", "https://0x7f.1",
    "http://login.example.com", "http://127.0.0.1.nip.io", "file:///etc/passwd", "gopher://127.0.0.1", "//evil.test",
    "https://user:word@127.0.0.1", "https://127.0.0.1#x", "https://127.0.0.1 /", "https://", "https://127.0.0.1:99999",
    "https://2130706433:22", "https://metadata.google.internal.invalid", "https://127.0.0.1\\@evil.test", "x", "https:///a",
    "https://[fe80::1%25eth0]/", "https://[::ffff:10.0.0.1]/", "https://1.2.3.4.5/",
]  # fmt: skip


@pytest.mark.parametrize("issuer", ISSUERS)
def test_an_issuer_that_is_none_or_inside(other_api: Api, values: dict[str, Any], issuer: str, conn: Conn) -> None:
    """globex may call loopback in these tests; so it is taken away from it here."""
    conn.execute("UPDATE tenants_tenant SET network = '[]' WHERE slug = 'globex'")
    try:
        began = time.monotonic()
        answer = put(other_api, {**values, "issuer": issuer})
        assert answer.status == 400 and "/issuer" in answer.faults
        assert time.monotonic() - began < 15
        assert put(other_api, values).faults == {"/issuer": "identity_provider_unusable"}, "loopback, too"
    finally:
        conn.execute("""UPDATE tenants_tenant SET network = '["127.0.0.0/8", "::1/128"]' WHERE slug = 'globex'""")


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/x", "javascript:alert(1)", "http://evil.test", None, 5, [], {}]
)
def test_an_endpoint_that_is_none(api: Api, values: dict[str, Any], idp: Idp, name: str, url: Any) -> None:
    idp.about[name] = url
    assert put(api, values).faults == {"/issuer": "identity_provider_unusable"}


def test_a_document_that_speaks_for_another(api: Api, values: dict[str, Any], idp: Idp) -> None:
    for issuer in (idp.issuer + "/", "https://login.example.com", None, idp.issuer.upper()):
        idp.about["issuer"] = issuer
        assert put(api, values).status == 400


@pytest.mark.parametrize(
    "answer",
    [
        (302, b"http://169.254.169.254/"), (500, b"{}"), (200, b"not json"), (200, b"[]"), (200, b""), (204, b""),
        (200, b'{"x": "' + b"y" * 600_000 + b'"}'), (200, b"\xff\xfe"),
    ],
)  # fmt: skip
def test_a_document_that_is_none(api: Api, values: dict[str, Any], idp: Idp, answer: tuple[int, bytes]) -> None:
    idp.answers["/.well-known/openid-configuration"] = lambda: answer
    assert put(api, values).faults == {"/issuer": "identity_provider_unusable"}
    assert [path for path, _, _ in idp.seen] == ["/.well-known/openid-configuration"], "and nobody follows"


def test_a_provider_that_dribbles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.signin import fetch

    monkeypatch.setattr(fetch, "WHOLE_S", 0.5)
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def dribble() -> None:
            conn, _ = server.accept()
            with conn:
                while not stop.wait(0.05):
                    try:
                        conn.sendall(b"H")
                    except OSError:
                        return

        thread = threading.Thread(target=dribble)
        thread.start()
        began = time.monotonic()
        with pytest.raises(fetch.ProviderUnusable):
            fetch.fetch_json(f"http://127.0.0.1:{server.getsockname()[1]}/", network=("127.0.0.0/8",))
        assert time.monotonic() - began < 4
        stop.set()
        thread.join()


def test_a_name_that_leads_inside_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: what is looked at is what is called."""
    from apps.signin import fetch

    def inside(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", port))]

    monkeypatch.setattr(socket, "getaddrinfo", inside)
    with pytest.raises(fetch.ProviderUnusable, match="can't be reached"):
        fetch.fetch_json("https://login.example.com/", network=())


def test_a_provider_that_is_down_is_no_fault_of_the_person(idp: Idp, provider: Any, conn: Conn) -> None:
    from apps.signin.provider import forget

    idp.answers["/.well-known/openid-configuration"] = lambda: (503, b"")
    forget()
    answer = browser().get(SSO)
    assert answer.status_code == 502 and b"request id is" in answer.content and b"127.0.0.1" not in answer.content
    assert conn.execute("SELECT reason FROM audit_auditevent WHERE action = 'session.refuse'").fetchone() is not None
