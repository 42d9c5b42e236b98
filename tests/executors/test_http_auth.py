"""Calls that prove who makes them: bearer, basic, OAuth 2, signatures, client certificates; over real connections."""

import asyncio
import base64
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook

from kernel.httprules import validate_target
from kernel.webhooksign import hmac_key, new_ed25519_secret, new_hmac_secret, public_half
from tests.executors.authority import Authority
from tests.executors.receiver import Receiver, Request, response
from tests.executors.works import LOOPBACK, Results, make_work
from workers.executors.base import Result
from workers.executors.http import HttpExecutor
from workers.executors.http_sessions import CERTIFICATES_MOST, ClientCertificate, Sessions
from workers.executors.http_tokens import Tokens

Running = Callable[[Any], Any]
Call = Callable[..., Result]
NAME = "hooks.example.test"
BEARER = {"type": "bearer", "token": {"secret": "TOKEN"}}
SECRETS = {"TOKEN": "S3CR3T-7f1", "PW": "pass wörd:1", "ID": "my client"}


class Guard(Receiver):
    """/token issues tokens; /guarded lets only the newest one in; /echo repeats headers."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.life_s: Any = 3600
        self.issued = 0
        self.accepts_issued = True
        self.answers: list[bytes] = []  # of the token endpoint, before it issues
        self.peers: list[Any] = []

    async def _do_token(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        if self.answers:
            writer.write(self.answers.pop(0))
            return
        self.issued += 1
        answer = {"access_token": f"t0ken-{self.issued}", "token_type": "Bearer", "expires_in": self.life_s}
        writer.write(response(200, json.dumps(answer).encode(), "Content-Type: application/json"))

    async def _do_guarded(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        good = self.accepts_issued and request.headers.get("authorization") == f"Bearer t0ken-{self.issued}"
        writer.write(response(200 if good else 401, b"you sent " + request.headers.get("authorization", "").encode()))

    async def _do_peer(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        certificate = writer.get_extra_info("peercert")
        name = certificate["subject"][0][0][1] if certificate else "nobody"
        self.peers.append(name)
        writer.write(response(200, name.encode()))

    async def _do_away(self, request: Request, rest: str, writer: asyncio.StreamWriter) -> None:
        host, _, path = rest.partition("/")
        writer.write(response(307, b"", f"Location: https://{host}/{path}"))

    def came(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path.startswith(path)]


@pytest.fixture
def guard() -> Iterator[Guard]:
    server = Guard()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def executor(running: Running) -> Any:
    return running(HttpExecutor(slots=50))


@pytest.fixture
def call(executor: HttpExecutor, results: Results) -> Call:
    def make(target: Any, **changes: Any) -> Result:
        executor.submit([work := make_work("http", target, **{"secrets": SECRETS, **changes})], results)
        return results.of(work)

    return make


def body_of(result: Result) -> Any:
    assert result.result is not None
    return result.result["body"]


def oauth2(guard: Guard, **more: Any) -> dict[str, Any]:
    return {
        "type": "oauth2_client_credentials", "token_url": guard.url("/token"), "client_id": {"secret": "ID"},
        "client_secret": {"secret": "PW"}, **more,
    }  # fmt: skip


# --- bearer and basic ---


def test_a_bearer_token(call: Call, guard: Guard) -> None:
    target = {"url": guard.url(), "auth": {"type": "bearer", "token": {"secret": "TOKEN"}}}
    assert call(target).outcome == "succeeded"
    assert guard.requests[0].headers["authorization"] == "Bearer S3CR3T-7f1"


def test_basic_with_any_character(call: Call, guard: Guard) -> None:
    target = {"url": guard.url(), "auth": {"type": "basic", "username": "üser", "password": {"secret": "PW"}}}
    assert call(target).outcome == "succeeded"
    scheme, _, pair = guard.requests[0].headers["authorization"].partition(" ")
    assert (scheme, base64.b64decode(pair).decode()) == ("Basic", "üser:pass wörd:1")


@pytest.mark.parametrize(
    "auth",
    [
        {"type": "bearer", "token": {"secret": "BROKEN"}},
        {"type": "basic", "username": "a:b", "password": {"secret": "PW"}},
        {"type": "signature", "scheme": "ed25519", "secrets": [{"secret": "HMAC"}]},
        {"type": "signature", "scheme": "hmac-sha256", "secrets": [{"secret": "TOKEN"}]},
        {"type": "mtls", "certificate": {"secret": "TOKEN"}, "key": {"secret": "TOKEN"}},
        {"type": "bearer"},
        {"type": "unknown"},
    ],
)
def test_what_can_not_be_sent_is_not_sent(call: Call, guard: Guard, auth: Any) -> None:
    secrets = {**SECRETS, "BROKEN": "a\r\nX-Injected: 1", "HMAC": new_hmac_secret()}
    result = call({"url": guard.url(), "auth": auth}, secrets=secrets)
    assert result.error and (result.error["class"], result.retryable) == ("bad_target", False)
    assert not guard.requests
    assert not any(value in json.dumps(dict(result.error)) for value in secrets.values())


# --- OAuth 2 ---


@pytest.mark.parametrize("style", ["header", "body"])
def test_a_token_is_fetched_once_and_kept(call: Call, guard: Guard, style: str) -> None:
    auth = oauth2(guard, scope="read write", audience="https://api.example.com", auth_style=style)
    for _ in range(3):
        assert call({"url": guard.url("/guarded"), "auth": auth}).outcome == "succeeded"
    (asked,) = guard.came("/token")
    form = {name: value[0] for name, value in parse_qs(asked.body.decode()).items()}
    expected = {"grant_type": "client_credentials", "scope": "read write", "audience": "https://api.example.com"}
    if style == "body":
        expected |= {"client_id": "my client", "client_secret": "pass wörd:1"}
    else:
        pair = base64.b64decode(asked.headers["authorization"].removeprefix("Basic ")).decode()
        assert pair == "my+client:pass+w%C3%B6rd%3A1"
    assert (asked.method, form) == ("POST", expected)
    assert "idempotency-key" not in asked.headers


def test_many_calls_at_once_fetch_one_token(executor: HttpExecutor, guard: Guard, results: Results) -> None:
    target = {"url": guard.url("/guarded"), "auth": oauth2(guard)}
    works = [make_work("http", target, secrets=SECRETS) for _ in range(20)]
    executor.submit(works, results)
    assert {result.outcome for result in results.all_of(works)} == {"succeeded"}
    assert guard.issued == 1


def test_tokens_are_not_shared_between_tenants_or_configurations(call: Call, guard: Guard) -> None:
    guard.accepts_issued = False
    call({"url": guard.url(), "auth": oauth2(guard)}, tenant_id=1)
    call({"url": guard.url(), "auth": oauth2(guard)}, tenant_id=2)
    call({"url": guard.url(), "auth": oauth2(guard, scope="x")}, tenant_id=1)
    call({"url": guard.url(), "auth": oauth2(guard)}, tenant_id=1, secrets={**SECRETS, "PW": "n3w"})
    assert guard.issued == 4


def test_a_token_that_is_refused_is_renewed_once(call: Call, guard: Guard) -> None:
    target = {"url": guard.url("/guarded"), "auth": oauth2(guard), "method": "POST", "body": {"n": 1}}
    assert call(target).outcome == "succeeded"
    guard.issued += 1  # the one that is kept is not good any more
    assert call(target).outcome == "succeeded"
    assert len(guard.came("/token")) == 2 and len(guard.came("/guarded")) == 3
    assert {request.body for request in guard.came("/guarded")} == {b'{"n":1}'}
    guard.accepts_issued = False
    refused = call(target)
    assert refused.error and (refused.error["class"], refused.error["status"]) == ("http_status", 401)
    assert len(guard.came("/token")) == 3 and len(guard.came("/guarded")) == 5
    assert call(target, tenant_id=9).outcome == "failed"
    assert len(guard.came("/token")) == 4 and len(guard.came("/guarded")) == 6, "a new one that is refused is no use"


def test_a_short_life_is_renewed_before_its_end(guard: Guard, running: Running, results: Results) -> None:
    time = [1000.0]
    executor = HttpExecutor(slots=5)
    executor._caller = type(executor._caller)(executor._sessions, executor._clock, tokens=Tokens(lambda: time[0]))
    running(executor)
    guard.life_s = 100
    target = {"url": guard.url("/guarded"), "auth": oauth2(guard)}

    def outcome() -> str:
        executor.submit([work := make_work("http", target, secrets=SECRETS)], results)
        return results.of(work).outcome

    for at, issued in ((1000.0, 1), (1074.0, 1), (1076.0, 2), (1300.0, 3)):
        time[0] = at
        assert (outcome(), guard.issued) == ("succeeded", issued), at
    time[0] += 80
    guard.answers.append(response(503, b""))
    assert outcome() == "succeeded", "what is still good bridges an outage of the token endpoint"
    time[0] += 30
    guard.answers.append(response(503, b""))
    assert outcome() == "failed"


@pytest.mark.parametrize(
    ("answer", "retryable", "said"),
    [
        (response(401, b'{"error": "invalid_client", "hint": "S3CR3T-7f1"}'), False, "401 (invalid_client)"),
        (response(400, b'{"error": "S3CR3T-7f1"}'), False, "answered 400."),
        (response(503, b"later", "Retry-After: 7"), True, "answered 503."),
        (response(429, b"later", "Retry-After: 7"), True, "answered 429."),
        (response(302, b"", "Location: /elsewhere"), False, "answered 302."),
        (response(200, b"no json"), True, "no usable token"),
        (response(200, b'["a"]'), True, "no usable token"),
        (response(200, b'{}'), True, "no usable token"),
        (response(200, b'{"access_token": "a\\nb"}'), True, "no usable token"),
        (response(200, b'{"access_token": "a", "token_type": "mac"}'), True, "no usable token"),
        (response(200, b'{"access_token": "a", "expires_in": "soon"}'), True, "no usable token"),
        (b"\x00garbage\r\n\r\n", True, "The token endpoint's answer is not valid HTTP."),
    ],
)  # fmt: skip
def test_without_a_token_the_target_is_not_called(
    call: Call, guard: Guard, answer: bytes, retryable: bool, said: str
) -> None:  # fmt: skip
    guard.answers.append(answer)
    result = call({"url": guard.url("/guarded"), "auth": oauth2(guard)})
    assert result.error and result.error["class"] == "token_failed"
    assert said in result.error["message"] and result.retryable is retryable
    assert result.retry_after_s == (7.0 if b"Retry-After" in answer else None)
    assert not guard.came("/guarded")
    assert not any(value in str(result) for value in SECRETS.values())


def test_a_token_endpoint_inside_is_not_called(call: Call, guard: Guard) -> None:
    auth = oauth2(guard) | {"token_url": "http://10.0.0.1/token"}
    result = call({"url": guard.url("/guarded"), "auth": auth})
    assert result.error and (result.error["class"], result.error["code"]) == ("bad_target", "address_not_public")
    auth = oauth2(guard) | {"token_url": "http://localhost:1/token"}
    assert call({"url": guard.url("/guarded"), "auth": auth}, network=LOOPBACK).outcome == "failed"


def test_a_token_endpoint_that_hangs_takes_the_calls_own_time(call: Call, guard: Guard) -> None:
    auth = oauth2(guard) | {"token_url": guard.url("/hold/token")}
    result = call({"url": guard.url("/guarded"), "auth": auth}, timeout_s=0.3)
    assert result.outcome == "timed_out" and result.error
    assert "outcome_unknown" not in result.error, "the target has not been called"
    assert result.retryable


# --- signatures ---


def test_signatures_of_two_secrets(call: Call, guard: Guard) -> None:
    new, old = new_hmac_secret(), new_hmac_secret()
    auth = {"type": "signature", "scheme": "hmac-sha256", "secrets": [{"secret": "NEW"}, {"secret": "OLD"}]}
    target = {"url": guard.url(), "auth": auth, "body": {"ü": 1}}
    assert call(target, secrets={"NEW": new, "OLD": old}, signing_secrets=(new_hmac_secret(),)).outcome == "succeeded"
    (request,) = guard.requests
    assert request.headers["webhook-signature"].count("v1,") == 2
    for secret in (new, old):
        Webhook(secret).verify(request.body.decode(), request.headers)


def test_the_tenants_own_two_secrets_sign_other_calls(call: Call, guard: Guard) -> None:
    new, old = new_hmac_secret(), new_hmac_secret()
    assert call({"url": guard.url()}, signing_secrets=(new, old)).outcome == "succeeded"
    for secret in (new, old):
        Webhook(secret).verify(guard.requests[0].body.decode(), guard.requests[0].headers)


def test_ed25519_signatures(call: Call, guard: Guard) -> None:
    secret = new_ed25519_secret()
    auth = {"type": "signature", "scheme": "ed25519", "secrets": [{"secret": "KEY"}]}
    assert call({"url": guard.url(), "auth": auth}, secrets={"KEY": secret}, run_key="r1").outcome == "succeeded"
    (request,) = guard.requests
    version, _, signature = request.headers["webhook-signature"].partition(",")
    signed = f"r1.{request.headers['webhook-timestamp']}.".encode() + request.body
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_half(secret).removeprefix("whpk_")))
    public.verify(base64.b64decode(signature), signed)
    assert (version, request.headers["webhook-id"]) == ("v1a", "r1")


def test_secrets_of_the_standards_own_examples() -> None:
    assert len(hmac_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")) == 24


# --- client certificates ---


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def secure(authority: Authority) -> Iterator[Guard]:
    """A server that lets in only who has a certificate."""
    server = Guard(authority.server(NAME, asks=True))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def secure_call(authority: Authority, running: Running, results: Results) -> Call:
    async def lookup(host: str) -> list[str]:
        return ["127.0.0.1"]

    executor = running(HttpExecutor(lookup=lookup, ssl_context=authority.trusted(), make_tls=authority.trusted))

    def make(target: Any, **changes: Any) -> Result:
        executor.submit([work := make_work("http", target, **changes)], results)
        return results.of(work)

    make.executor = executor  # type: ignore[attr-defined]  # for a look inside
    return make


def mtls(url: str) -> dict[str, Any]:
    return {"url": url, "auth": {"type": "mtls", "certificate": {"secret": "CERT"}, "key": {"secret": "KEY"}}}


def pair(authority: Authority, name: str) -> dict[str, str]:
    certificate, key = authority.issue(name)
    return {"CERT": certificate, "KEY": key}


def test_a_client_certificate_is_shown(authority: Authority, secure: Guard, secure_call: Call) -> None:
    url = f"https://{NAME}:{secure.port}/peer"
    result = secure_call(mtls(url), secrets=pair(authority, "acme"))
    assert result.outcome == "succeeded" and body_of(result) == "acme"
    without = secure_call({"url": url})
    assert without.outcome == "failed" and without.error
    assert without.error["class"] in ("tls_failed", "connection_lost")


def test_connections_with_a_certificate_are_not_shared(
    authority: Authority, secure: Guard, secure_call: Call
) -> None:  # fmt: skip
    target, first, second = mtls(f"https://{NAME}:{secure.port}/peer"), pair(authority, "a"), pair(authority, "b")
    for tenant_id, secrets in ((1, first), (1, first), (2, first), (1, second), (2, second), (1, first)):
        assert secure_call(target, tenant_id=tenant_id, secrets=secrets).outcome == "succeeded"
    assert secure.peers == ["a", "a", "a", "b", "b", "a"]
    assert secure.connections == 4, "one for each tenant and certificate"


def test_another_origin_does_not_get_the_certificate(
    authority: Authority, secure: Guard, secure_call: Call
) -> None:  # fmt: skip
    other = Guard(authority.server("other.example.test", asks=False))
    other._tls.verify_mode = ssl.CERT_OPTIONAL  # type: ignore[union-attr]  # it was given
    other._tls.load_verify_locations(authority.path)  # type: ignore[union-attr]  # it was given
    other.start()
    target = mtls(f"https://{NAME}:{secure.port}/away/other.example.test:{other.port}/peer")
    target["redirects"] = {"follow": True}
    result = secure_call(target, secrets=pair(authority, "acme"))
    assert result.outcome == "succeeded" and body_of(result) == "nobody"
    other.stop()


@pytest.mark.parametrize("what", ["other key", "no pem", "password"])
def test_a_certificate_that_can_not_be_used(
    authority: Authority, secure: Guard, secure_call: Call, what: str
) -> None:  # fmt: skip
    certificate, key = authority.issue("acme")
    if what == "other key":
        key = authority.issue("acme")[1]
    elif what == "no pem":
        key = "S3CR3T-7f1"
    else:
        certificate, key = authority.issue("acme", password="pw")
    result = secure_call(mtls(f"https://{NAME}:{secure.port}/peer"), secrets={"CERT": certificate, "KEY": key})
    assert result.error and (result.error["code"], result.retryable) == ("bad_certificate", False)
    assert key not in str(result)


def test_contexts_are_bounded_and_forgotten(authority: Authority) -> None:
    time, made = [0.0], [0]

    def make_tls() -> ssl.SSLContext:
        made[0] += 1
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    async def lookup(host: str) -> list[str]:
        return []

    async def use() -> None:
        sessions = Sessions(lookup, True, make_tls, clock=lambda: time[0])
        certificate = ClientCertificate(*authority.issue("acme"))

        async def once(tenant_id: int) -> Any:
            async with sessions.lease((), tenant_id, certificate) as session:
                assert not session.closed
                return session

        one, *_ = await asyncio.gather(*(once(1) for _ in range(5)))
        assert made[0] == 1 and not one.closed, "made once, also when many want it at once"
        async with sessions.lease((), 1, certificate) as held:
            for tenant_id in range(2, CERTIFICATES_MOST + 10):
                await once(tenant_id)
            assert len(sessions) == CERTIFICATES_MOST and not held.closed
        time[0] += 301.0
        await once(99)
        assert len(sessions) == 1 and held.closed
        await sessions.close()

    asyncio.run(use())


# --- what is saved ---


@pytest.mark.parametrize(
    ("auth", "faults"),
    [
        (BEARER, {}),
        ([{"type": "mtls", "certificate": "PEM", "key": {"secret": "A"}}, BEARER], {}),
        ({"type": "bearer", "token": "written here"}, {"/target/auth/token": "secret_required"}),
        ({"type": "bearer"}, {"/target/auth/token": "required"}),
        ({"type": "bearer", "token": {"secret": "no no"}}, {"/target/auth/token/secret": "invalid_name"}),
        ({"type": "basic", "password": {"secret": "A"}, "more": 1},
         {"/target/auth/username": "required", "/target/auth/more": "unknown_field"}),
        ({"type": "digest"}, {"/target/auth/type": "choice"}),
        ("bearer", {"/target/auth": "choice"}),
        ([], {"/target/auth": "empty"}),
        ([BEARER] * 2, {"/target/auth/1": "contradiction"}),
        ({"type": "signature", "scheme": "rsa", "secrets": [{"secret": "A"}] * 3},
         {"/target/auth/scheme": "choice", "/target/auth/secrets": "type"}),
        ({"type": "signature", "scheme": "ed25519", "secrets": ["whsk_x"]},
         {"/target/auth/secrets/0": "secret_required"}),
        ({"type": "oauth2_client_credentials", "token_url": "http://10.0.0.1/", "client_id": "a",
          "client_secret": {"secret": "A"}}, {"/target/auth/token_url": "address_not_public"}),
        ({"type": "oauth2_client_credentials", "token_url": {"secret": "U"}, "client_id": "a", "auth_style": "query",
          "client_secret": {"secret": "A"}}, {"/target/auth/auth_style": "choice"}),
    ],
)  # fmt: skip
def test_faults_of_auth(auth: Any, faults: dict[str, str]) -> None:
    found = validate_target({"url": "https://hooks.example.com/", "auth": auth}, base="/target")
    assert {fault.pointer: fault.code for fault in found} == faults


def test_auth_and_the_rest_of_the_target_must_agree() -> None:
    (fault,) = validate_target({"url": "https://e.org/", "headers": {"AUTHORIZATION": "x"}, "auth": BEARER})
    assert (fault.pointer, fault.code) == ("/auth", "contradiction")
    (fault,) = validate_target(mtls("http://e.org/"))
    assert (fault.pointer, fault.code) == ("/auth", "contradiction")


# --- echoes ---


@pytest.mark.parametrize(
    "target",
    [
        {"auth": {"type": "bearer", "token": {"secret": "TOKEN"}}},
        {"auth": {"type": "basic", "username": "me", "password": {"secret": "TOKEN"}}},
        {"headers": {"X-Anything": {"secret": "TOKEN", "prefix": "a "}}},
        {"headers": {"Authorization": "Bearer S3CR3T-7f1", "Cookie": "a=S3CR3T-7f1; b=S3CR3T-7f1"}},
        {"headers": {"X-Api-Key": "S3CR3T-7f1"}, "success_if": {"pointer": "/no", "equals": 1}},
    ],
)
def test_what_was_sent_in_secret_is_not_kept_when_it_comes_back(call: Call, guard: Guard, target: Any) -> None:
    result = call({"url": guard.url("/echo"), **target})
    kept = json.dumps([result.result, dict(result.error or {})])
    pair = base64.b64encode(b"me:S3CR3T-7f1").decode()
    assert "***" in kept and "S3CR3T-7f1" not in kept and pair not in kept
    assert guard.requests[0].headers["idempotency-key"] in kept, "all else is kept"


def test_an_oauth2_token_is_not_kept_when_it_comes_back(call: Call, guard: Guard) -> None:
    result = call({"url": guard.url("/guarded"), "auth": oauth2(guard)})
    assert body_of(result) == "you sent ***"


def test_the_token_that_ends_a_run_is_not_kept_when_it_comes_back(call: Call, guard: Guard) -> None:
    result = call({"url": guard.url("/echo")}, completion="c0mpletion-t0ken")
    assert guard.requests[0].headers["shardbeat-completion"] == "c0mpletion-t0ken"
    assert "c0mpletion-t0ken" not in body_of(result) and "***" in body_of(result)
