"""The HTTP executor against a server on loopback that behaves, and one that does not."""

import asyncio
import json
import socket
import ssl
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from standardwebhooks import Webhook

from kernel.addressrules import USUAL
from kernel.clock import utc_now
from tests.executors.receiver import Receiver
from tests.executors.works import NOMINAL_AT, Results, case, make_work
from workers.executors import address
from workers.executors.address import AddressBlocked, socket_factory
from workers.executors.base import Result
from workers.executors.bounds import RESULT_MAX_BYTES
from workers.executors.http import HttpExecutor

Call = Callable[..., Result]
Running = Callable[[Any], Any]

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NAME = "hooks.example.test"


@pytest.fixture
def executor(running: Running) -> Any:
    return running(HttpExecutor(slots=50))


@pytest.fixture
def call(executor: HttpExecutor, results: Results) -> Call:
    """`call(target, ...)` gives the result of one call."""

    def make(target: Any, **changes: Any) -> Result:
        executor.submit([work := make_work("http", target, **changes)], results)
        return results.of(work)

    return make


def answers(*addresses: str) -> Callable[[str], Any]:
    """A resolver that knows one answer."""

    async def lookup(host: str) -> list[str]:
        return list(addresses)

    return lookup


# -- what is sent ---------------------------------------------------------------------------------------------------


def test_a_call_says_which_run_it_is(call: Call, receiver: Receiver) -> None:
    deadline = datetime(2026, 3, 29, 1, 1, tzinfo=UTC)
    target = {"url": receiver.url("/ok?a=%2F"), "headers": {"X-Team": "café"}}
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert call(target, run_key="r1", attempt=3, deadline=deadline, traceparent=trace).outcome == "succeeded"
    (request,) = receiver.requests
    assert (request.method, request.path, json.loads(request.body)) == ("POST", "/ok?a=%2F", {"n": 1})
    sent = request.headers
    assert sent["idempotency-key"] == "r1"
    assert sent["shardbeat-attempt"] == "3"
    assert len(sent["shardbeat-execution"]) == 36
    assert sent["shardbeat-nominal-time"] == "2026-03-29T01:00:00Z"
    assert sent["shardbeat-deadline"] == "2026-03-29T01:01:00Z"
    assert sent["traceparent"] == trace
    assert sent["content-type"] == "application/json"
    assert sent["host"] == f"127.0.0.1:{receiver.port}"
    assert sent["x-team"].encode("latin-1").decode() == "café"
    assert "webhook-signature" not in sent
    assert "cookie" not in sent


def test_a_run_without_nominal_time_says_none(call: Call, receiver: Receiver) -> None:
    call({"url": receiver.url()}, nominal_at=None)
    assert "shardbeat-nominal-time" not in receiver.requests[0].headers


def test_a_signed_call_can_be_verified(call: Call, receiver: Receiver) -> None:
    call({"url": receiver.url()}, signing_secrets=(SECRET,), run_key="r1", payload={"ü": [1, 2]})
    (request,) = receiver.requests
    assert request.headers["webhook-id"] == "r1"
    assert Webhook(SECRET).verify(request.body, request.headers) == {"ü": [1, 2]}


def test_a_signature_covers_an_empty_body(call: Call, receiver: Receiver) -> None:
    call({"url": receiver.url(), "method": "GET"}, signing_secrets=(SECRET,))
    Webhook(SECRET).verify(receiver.requests[0].body, receiver.requests[0].headers, json_parse=False)


def test_an_unusable_secret_fails_for_good_and_is_not_shown(call: Call, receiver: Receiver) -> None:
    result = call({"url": receiver.url()}, signing_secrets=("whsec_",))
    assert (result.outcome, result.retryable) == ("failed", False)
    assert result.error and result.error["code"] == "bad_secret"
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("target", "payload", "body", "content_type"),
    [
        ({}, {"n": 1}, b'{"n":1}', "application/json"),
        ({}, "text", b'"text"', "application/json"),
        ({}, 2**70, str(2**70).encode(), "application/json"),
        ({}, None, b"", None),
        ({"method": "GET"}, {"n": 1}, b"", None),
        ({"method": "DELETE"}, {"n": 1}, b'{"n":1}', "application/json"),
        ({"body": {"own": True}}, {"n": 1}, b'{"own":true}', "application/json"),
        ({"body": "<a/>"}, {"n": 1}, b"<a/>", "text/plain; charset=utf-8"),
        ({"body": "<a/>", "headers": {"content-type": "text/xml"}}, None, b"<a/>", "text/xml"),
        ({"body": ""}, {"n": 1}, b"", "text/plain; charset=utf-8"),
    ],
)
def test_bodies(call: Call, receiver: Receiver, target: Any, payload: Any, body: bytes, content_type: Any) -> None:
    assert call({"url": receiver.url()} | target, payload=payload).outcome == "succeeded"
    assert receiver.requests[0].body == body
    assert receiver.requests[0].headers.get("content-type") == content_type


@pytest.mark.parametrize(
    "target",
    [
        {"url": "ftp://x/"},
        {"url": "http://127.0.0.1:22/"},
        {"headers": {"X": "a\r\nb"}},
        {"method": "BREW"},
        {},
        {"body": "\ud800"},
    ],
)
def test_a_bad_target_fails_for_good_without_a_call(call: Call, receiver: Receiver, target: Any) -> None:
    result = call(target if "url" in target or not target else {"url": receiver.url()} | target)
    assert (result.outcome, result.retryable) == ("failed", False)
    assert result.error and result.error["class"] == "bad_target"
    assert receiver.connections == 0


# -- what an answer means -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "outcome", "retryable", "retry_after_s", "pause"),
    [
        ("/status/200", "succeeded", True, None, False),
        ("/status/204", "succeeded", True, None, False),
        ("/status/302/Location:_http:", "failed", True, None, False),
        ("/status/400", "failed", True, None, False),
        ("/status/404/Shardbeat-No-Retry:true", "failed", False, None, False),
        ("/status/404/Shardbeat-No-Retry:false", "failed", True, None, False),
        ("/status/410", "failed", False, None, True),
        ("/status/429/Retry-After:_7", "failed", True, 7.0, False),
        ("/status/503/Retry-After:_999999999999999", "failed", True, 86_400.0, False),
        ("/status/503/Retry-After:_soon", "failed", True, None, False),
        ("/status/503/Retry-After:_-5", "failed", True, None, False),
        ("/status/503/Retry-After:_Wed,_21_Oct_2015_07:28:00_GMT", "failed", True, 0.0, False),
        ("/status/503/Retry-After:_Wed,_21_Oct_2099_07:28:00_GMT", "failed", True, 86_400.0, False),
        ("/status/503/Retry-After:_Wed,_99_Oct_99999999999999_07:28:00_GMT", "failed", True, None, False),
        ("/status/500/Retry-After:_7", "failed", True, None, False),
    ],
)
def test_statuses(
    call: Call,
    receiver: Receiver,
    path: str,
    outcome: str,
    retryable: bool,
    retry_after_s: Any,
    pause: bool,
) -> None:
    result = call({"url": receiver.url(path)})
    assert (result.outcome, result.retryable) == (outcome, retryable)
    assert (result.retry_after_s, result.pause_schedule) == (retry_after_s, pause)
    if outcome == "failed":
        assert result.error and result.result
        assert result.error["status"] == result.result["status"]


def test_a_retry_after_date_counts_from_now(running: Running, receiver: Receiver, results: Results) -> None:
    at = datetime(2026, 10, 21, 7, 28, tzinfo=UTC)
    executor = running(HttpExecutor(clock=lambda: at - timedelta(seconds=90)))
    work = make_work("http", {"url": receiver.url("/status/503/Retry-After:_Wed,_21_Oct_2026_07:28:00_GMT")})
    executor.submit([work], results)
    assert results.of(work).retry_after_s == 90


def test_a_target_says_what_success_is(call: Call, receiver: Receiver) -> None:
    for path, outcome in (("/status/404", "succeeded"), ("/status/302", "succeeded"), ("/ok", "failed")):
        assert call({"url": receiver.url(path), "success_status": [302, 404]}).outcome == outcome


def test_redirects_are_not_followed_e23(call: Call, receiver: Receiver) -> None:
    for path in ("/redirect/self", "/redirect/next", "/redirect/crlf"):
        result = call({"url": receiver.url(path), "headers": {"Authorization": "Bearer s3"}})
        assert result.outcome == "failed"
        assert result.error and result.error["status"] == 302
        assert "S3CR3T" not in str(result)
    assert len(receiver.requests) == 3


def test_what_is_kept_of_an_answer(call: Call, receiver: Receiver) -> None:
    result = call({"url": receiver.url("/status/200/Set-Cookie:a=1/X-Request-Id:77/X-Secret:x")}).result
    kept = {"Content-Length": "8", "X-Request-Id": "77"}
    assert result == {"status": 200, "headers": kept, "body": "as asked", "base64": False, "truncated": False}


@pytest.mark.parametrize(("what", "base64"), [("binary", True), ("nul", True), ("utf8", False), ("escapes", False)])
def test_any_body_can_be_stored(call: Call, receiver: Receiver, what: str, base64: bool) -> None:
    result = call({"url": receiver.url(f"/body/{what}")}).result
    assert result and result["base64"] is base64
    assert len(data := orjson.dumps(result)) <= RESULT_MAX_BYTES
    assert b"\\u0000" not in data


@pytest.mark.parametrize(
    ("what", "body", "truncated"),
    [("small", "small", False), ("twice", "one two", False), ("broken", None, True), ("wrong", "", True)],
)
def test_compressed_bodies(call: Call, receiver: Receiver, what: str, body: Any, truncated: bool) -> None:
    result = call({"url": receiver.url(f"/encoded/{what}")})
    assert result.outcome == "succeeded"
    assert result.result and result.result["truncated"] is truncated
    assert body is None or result.result["body"] == body


@pytest.mark.parametrize(
    "path", ["/encoded/bomb", "/endless/chunked", "/endless/overrun", "/endless/huge", "/endless/close"]
)
def test_giant_answers_are_cut_e12(call: Call, receiver: Receiver, path: str) -> None:
    expected = case("http", "E12")["expected"]
    call({"url": receiver.url("/ok")})  # what the first call needs is not the answer's doing
    tracemalloc.start()
    result = call({"url": receiver.url(path)})
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.outcome == "succeeded"
    assert result.result and result.result["truncated"] is expected["truncated"]
    assert len(result.result["body"]) <= expected["stored_bytes_max"]
    assert peak_bytes < expected["worker_rss_growth_mb_max"] * 1_000_000
    assert call({"url": receiver.url("/ok")}).outcome == "succeeded"


# -- time -----------------------------------------------------------------------------------------------------------


def test_a_slow_server_costs_one_slot_until_the_time_out_e11(
    running: Running, receiver: Receiver, results: Results
) -> None:
    async def never(host: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    executor = running(HttpExecutor(lookup=never))
    with socket.create_server(("127.0.0.1", 0)) as stalls:  # accepts in the kernel, and says nothing
        urls = [receiver.url("/hold/1"), receiver.url("/drip/head"), receiver.url("/drip/body")]
        urls += [f"https://127.0.0.1:{stalls.getsockname()[1]}/", f"https://{NAME}/"]
        works = [make_work("http", {"url": url}, timeout_s=0.4) for url in urls]
        executor.submit(works, results)
        for result in results.all_of(works, within_s=1.4):
            assert result.outcome == "timed_out"
            assert 0.39 <= (result.finished_at - result.started_at).total_seconds() < 1.4
    assert executor.held() == set()


# -- where it may go ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", ["E05", "E06"])
def test_a_name_with_an_inside_address_is_blocked(running: Running, results: Results, id_: str) -> None:
    given_case = case("http", id_)
    executor = running(HttpExecutor(lookup=answers(*given_case["answers"])))
    executor.submit([work := make_work("http", {"url": f"https://{given_case['host']}/"}, network=())], results)
    result = results.of(work)
    assert (result.outcome, result.retryable) == ("failed", False)
    assert result.error and result.error["class"] == "address_blocked"
    assert given_case["answers"][0] not in str(result)


@pytest.mark.parametrize("broken", [OSError("no name server"), RuntimeError("bug"), None])
def test_a_resolver_that_fails_blocks_e05(running: Running, results: Results, broken: Any) -> None:
    async def lookup(host: str) -> list[str]:
        if broken:
            raise broken
        return []

    executor = running(HttpExecutor(lookup=lookup))
    executor.submit([work := make_work("http", {"url": f"https://{NAME}/"})], results)
    assert (results.of(work).outcome, results.of(work).retryable) == ("failed", True)


def test_a_name_that_is_no_address_is_blocked(running: Running, results: Results) -> None:
    executor = running(HttpExecutor(lookup=answers("not an address")))
    executor.submit([work := make_work("http", {"url": f"https://{NAME}/"})], results)
    error = results.of(work).error
    assert error and error["class"] == "address_blocked"


def test_a_connection_is_not_lent_to_a_tenant_who_may_not_have_it(
    running: Running, receiver: Receiver, results: Results
) -> None:
    executor = running(HttpExecutor(lookup=answers("127.0.0.1")))
    target = {"url": receiver.url("/ok", host=NAME)}
    first, stranger, again = (make_work("http", target, **more) for more in ({}, {"network": USUAL}, {}))
    for work in (first, stranger, again):
        executor.submit([work], results)
        results.of(work)
    assert results.of(first).outcome == results.of(again).outcome == "succeeded"
    error = results.of(stranger).error
    assert error and error["class"] == "address_blocked"
    assert receiver.connections == 1  # kept and used again, by those who may


def test_the_last_check_is_at_the_socket() -> None:
    inside = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 8000))
    with pytest.raises(AddressBlocked):
        socket_factory(())(inside)
    with pytest.raises(AddressBlocked):
        socket_factory(("127.0.0.0/8",))((*inside[:4], ("127.0.0.1", 22)))
    socket_factory(("127.0.0.0/8",))(inside).close()


def test_the_environment_names_no_proxy(call: Call, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1/")
    assert call({"url": receiver.url()}).outcome == "succeeded"


def test_the_system_resolver_finds_localhost(call: Call, receiver: Receiver) -> None:
    assert call({"url": receiver.url("/ok", host="localhost")}).outcome == "succeeded"


@pytest.mark.parametrize(
    ("path", "class_"), [("/close", "connection_lost"), ("/garbage", "bad_response"), ("/headers", "bad_response")]
)
def test_failures_have_a_class_and_no_url(call: Call, receiver: Receiver, path: str, class_: str) -> None:
    result = call({"url": receiver.url(path + "?token=S3CR3T")})
    assert (result.outcome, result.retryable) == ("failed", True)
    assert result.error and result.error["class"] == class_
    assert "S3CR3T" not in str(result)


def test_a_closed_port_and_a_server_without_tls(call: Call, receiver: Receiver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for url, class_ in (
        (f"http://127.0.0.1:{port}/", "connect_failed"),
        (f"https://127.0.0.1:{receiver.port}/", "tls_failed"),
    ):
        result = call({"url": url})
        assert (result.outcome, result.retryable) == ("failed", True)
        assert result.error and result.error["class"] == class_
        assert "127.0.0.1" not in str(result.error)


def test_certificates_are_verified(running: Running, results: Results, tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, NAME)
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.load_cert_chain(certificate)
    receiver = Receiver(serves)
    receiver.start()
    trusts = ssl.create_default_context(cafile=certificate)
    for context, host, outcome in (
        (None, NAME, "failed"),
        (trusts, NAME, "succeeded"),
        (trusts, "other.test", "failed"),
    ):
        executor = running(HttpExecutor(lookup=answers("127.0.0.1"), ssl_context=context))
        work = make_work("http", {"url": f"https://{host}:{receiver.port}/ok"})
        executor.submit([work], results)
        result = results.of(work)
        assert result.outcome == outcome
        assert outcome == "succeeded" or (result.error and result.error["class"] == "tls_failed")
        executor.stop(0)
    receiver.stop()


def self_signed(folder: Path, name: str) -> Path:
    """A file with a key and a certificate for `name`."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = utc_now()
    certificate = (
        x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(secret + certificate.public_bytes(Encoding.PEM))
    return path


def test_calls_of_many_tenants_at_once(executor: HttpExecutor, receiver: Receiver, results: Results) -> None:
    works = [make_work("http", {"url": receiver.url()}, tenant_id=n % 7, nominal_at=NOMINAL_AT) for n in range(500)]
    executor.submit(works, results)
    assert {result.outcome for result in results.all_of(works)} == {"succeeded"}
    assert len({request.headers["idempotency-key"] for request in receiver.requests}) == 500
    assert receiver.connections <= executor.slots


def test_dead_name_servers_of_one_tenant_leave_threads_for_others(
    executor: HttpExecutor, receiver: Receiver, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def addresses(host: str) -> list[str]:
        if host.startswith("dead"):
            over.wait()
        return ["127.0.0.1"]

    monkeypatch.setattr(address, "system_addresses", addresses)
    dead = [make_work("http", {"url": f"https://dead{n}.test/"}, tenant_id=1) for n in range(address.LOOKUP_THREADS)]
    executor.submit(dead, results)
    executor.submit([work := make_work("http", {"url": receiver.url("/ok", host=NAME)}, tenant_id=2)], results)
    assert results.of(work).outcome == "succeeded"
    assert len(results) == 1
    over.set()
    results.all_of(dead)


def test_executors_need_no_django() -> None:
    modules = "workers.executors.http, workers.executors.python, workers.executors.child"
    program = f"import sys; sys.path[:] = {sys.path!r}; import {modules}; assert 'django' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
