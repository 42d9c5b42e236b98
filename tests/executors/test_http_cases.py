"""The cases of public bug reports that are about a call's answer, its time, and whether it is made again.

E02, E04, E08, E14 are in test_http_rules, E05 and E06 in test_http_executor, E09 and E23 in test_http_redirects.
"""

import asyncio
import json
import resource
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from kernel.addressrules import USUAL
from kernel.httprules import validate_target
from tests.executors.receiver import FLOODS, Receiver
from tests.executors.works import LOOPBACK, Results, case, make_work
from workers.executors.base import Result
from workers.executors.bounds import RESULT_MAX_BYTES
from workers.executors.http import HttpExecutor
from workers.executors.http_body import BODY_MAX_BYTES

Call = Callable[..., Result]
Running = Callable[[Any], Any]


@pytest.fixture
def executor(running: Running) -> Any:
    return running(HttpExecutor(slots=50))


@pytest.fixture
def call(executor: HttpExecutor, results: Results) -> Call:
    def make(target: Any, **changes: Any) -> Result:
        executor.submit([work := make_work("http", target, **changes)], results)
        return results.of(work)

    return make


# -- E11: whatever stalls, a call ends at its deadline ----------------------------------------------------------------


@pytest.mark.parametrize(
    "server",
    [
        *("accepts, never answers", "1 header byte per second", "TLS handshake stalls", "DNS answer after 10 s"),
        *("accepts no connection", "answers a part of the body", "body byte by byte", "redirects to what stalls"),
    ],
)
def test_a_bad_server_costs_one_slot_for_the_time_out_e11(
    running: Running, receiver: Receiver, results: Results, server: str, wait_for: Any
) -> None:
    given = case("http", "E11")
    assert server in given["servers"] or server not in str(given)
    timeout_s = given["timeout_s"] / 10  # the whole case, ten times as fast

    async def lookup(host: str) -> list[str]:
        await asyncio.Event().wait()  # a resolver that does not answer in time
        return []

    executor: HttpExecutor = running(HttpExecutor(slots=1, lookup=lookup))
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:  # a backlog that is full: further connections get no answer at all
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
    stalls = socket.create_server(("127.0.0.1", 0))  # accepts in the kernel, and says nothing
    url = {
        "accepts, never answers": receiver.url("/hold/1"),
        "1 header byte per second": receiver.url("/trickle"),
        "TLS handshake stalls": f"https://127.0.0.1:{stalls.getsockname()[1]}/",
        "DNS answer after 10 s": "https://slow.example.test/",
        "accepts no connection": f"http://127.0.0.1:{full.getsockname()[1]}/",
        "answers a part of the body": receiver.url("/drip/body"),
        "body byte by byte": receiver.url("/trickle_body"),
        "redirects to what stalls": receiver.redirect_url(302, receiver.url("/hold/1")),
    }[server]
    work = make_work("http", {"url": url, "redirects": {"follow": True}}, timeout_s=timeout_s)
    behind = make_work("http", {"url": receiver.url()})
    executor.submit([work, behind], results)
    result = results.of(work)
    assert result.outcome == "timed_out"
    took_s = (result.finished_at - result.started_at).total_seconds()
    ends_by_s = given["expected"]["each_run_ends_by_s"] / 10
    assert timeout_s * 0.98 <= took_s < ends_by_s + 0.5  # half a second more for a busy machine
    assert results.of(behind).outcome == "succeeded"
    wait_for(lambda: (executor.held(), executor.free()) == (set(), 1), "nothing to be stuck")
    for each in (full, stalls, *fillers):
        each.close()


@pytest.mark.parametrize("server", ["accepts no connection", "TLS handshake stalls", "DNS answer after 10 s"])
def test_a_connect_time_out_is_told_apart_and_retried(running: Running, results: Results, server: str) -> None:
    async def lookup(host: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    executor: HttpExecutor = running(HttpExecutor(slots=1, lookup=lookup))
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
    stalls = socket.create_server(("127.0.0.1", 0))
    url = {
        "accepts no connection": f"http://127.0.0.1:{full.getsockname()[1]}/",
        "TLS handshake stalls": f"https://127.0.0.1:{stalls.getsockname()[1]}/",
        "DNS answer after 10 s": "https://slow.example.test/",
    }[server]
    work = make_work("http", {"url": url, "connect_timeout_s": 0.2}, timeout_s=10)
    executor.submit([work], results)
    result = results.of(work)
    assert (result.outcome, result.retryable) == ("failed", True)
    assert result.error and result.error["class"] == "connect_timeout"
    assert 0.19 <= (result.finished_at - result.started_at).total_seconds() < 1.5
    for each in (full, stalls, *fillers):
        each.close()


# -- E12: a giant answer is cut ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *("/encoded/bomb", "/encoded/deflate_bomb", "/encoded/raw_deflate_bomb", "/encoded/bomb_in_members"),
        *("/endless/chunked", "/endless/overrun", "/endless/huge", "/endless/close", "/endless/gzip"),
    ],
)
@pytest.mark.parametrize("condition", [False, True])
def test_giant_answers_e12(call: Call, receiver: Receiver, path: str, condition: bool) -> None:
    expected = case("http", "E12")["expected"]
    more = {"success_if": {"pointer": "/ok", "equals": True}} if condition else {}
    call({"url": receiver.url("/json/%7B%22ok%22:true%7D"), **more})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = call({"url": receiver.url(path), **more})
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1_000
    assert grown_mb < expected["worker_rss_growth_mb_max"]
    assert result.result and result.result["truncated"] is expected["truncated"]
    assert len(orjson.dumps(result.result)) <= min(RESULT_MAX_BYTES, expected["stored_bytes_max"])
    if condition:
        assert result.outcome == "failed" and result.error and result.error["class"] == "bad_json"
    else:
        assert result.outcome == "succeeded"  # by status code, with the flag
    assert call({"url": receiver.url("/status/500")}).outcome == "failed"


def test_every_flood_has_a_test_of_its_own() -> None:
    """Small things without end: test_http_floods."""
    assert len(FLOODS) == 12


# -- E14: header injection --------------------------------------------------------------------------------------------


def test_headers_are_refused_at_save_and_at_send_e14(call: Call, receiver: Receiver) -> None:
    given = case("http", "E14")
    for pair, valid in zip(given["pairs"], given["expected"]["valid"], strict=True):
        target = {"url": receiver.url(), "headers": dict([pair])}
        saved, sent = not validate_target(target, LOOPBACK), call(target).outcome == "succeeded"
        # "café" is our choice where the case leaves one: accepted, and sent as UTF-8.
        assert (saved, sent) == (valid is not False, valid is not False), pair
    assert [request.headers["x-t"].encode("latin-1").decode() for request in receiver.requests] == ["café", "ok"]


@pytest.mark.parametrize(
    "value", ["a\r\nX-Injected: 1", "a\nb", "a\x00b", "a\rb", "a\x7fb", "a\x0bb", "\ud800", "x" * 9_000]
)
def test_values_are_checked_after_rendering_e14(call: Call, receiver: Receiver, value: str) -> None:
    result = call({"url": receiver.url(), "headers": {"X-T": "<{{ payload.v }}>"}}, payload={"v": value})
    assert (result.outcome, result.retryable) == ("failed", False)
    assert result.error and (result.error["class"], result.error["code"]) in (
        ("bad_target", "invalid_value"),
        ("bad_target", "too_long"),
    )
    assert receiver.connections == 0


# -- E17: a maybe is not repeated -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE", "GET", "HEAD", "OPTIONS"])
def test_a_time_out_after_the_request_was_sent_is_a_maybe_e17(call: Call, receiver: Receiver, method: str) -> None:
    """What follows from it is in tests/flow/test_settle."""
    result = call({"url": receiver.url(f"/hold/{method}"), "method": method}, timeout_s=0.3, run_key="r1")
    assert (result.outcome, result.retryable) == ("timed_out", True)
    assert result.error
    assert result.error.get("outcome_unknown", False) is (method in ("POST", "PATCH"))
    assert [request.headers["idempotency-key"] for request in receiver.requests] == ["r1"]


@pytest.mark.parametrize("stage", ["dns", "connect"])
def test_a_time_out_before_the_request_was_sent_is_none_e17(running: Running, results: Results, stage: str) -> None:
    async def lookup(host: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    executor: HttpExecutor = running(HttpExecutor(slots=1, lookup=lookup))
    with socket.create_server(("127.0.0.1", 0)) as stalls:
        url = "https://slow.test/" if stage == "dns" else f"https://127.0.0.1:{stalls.getsockname()[1]}/"
        executor.submit([work := make_work("http", {"url": url}, timeout_s=0.2)], results)
        result = results.of(work)
    assert (result.outcome, result.error and result.error["class"]) == ("timed_out", "timeout")
    assert result.error and "outcome_unknown" not in result.error


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "outcome", "class_"),
    [
        ('{"status": "ok"}', "succeeded", None),
        ('\ufeff{"status": "ok"}', "succeeded", None),
        ('{"status": "failed"}', "failed", "condition_unmet"),
        ("{}", "failed", "condition_unmet"),
        ('"ok"', "failed", "condition_unmet"),
        ("", "failed", "bad_json"),
        ("<html>", "failed", "bad_json"),
        ('{"status": "ok"', "failed", "bad_json"),
        ('{"status": NaN}', "failed", "bad_json"),
        ("[" * 1_200, "failed", "bad_json"),
    ],
)
def test_a_condition_on_the_answer(call: Call, receiver: Receiver, body: str, outcome: str, class_: Any) -> None:
    result = call({"url": receiver.url("/json/" + quote(body)), "success_if": {"pointer": "/status", "equals": "ok"}})
    assert (result.outcome, result.error and result.error["class"], result.retryable) == (outcome, class_, True)
    if result.error:
        assert result.error["status"] == 200
        assert result.result and result.result["body"][:10] == body[:10]


def test_a_condition_compares_all_digits(call: Call, receiver: Receiver) -> None:
    target = {"url": receiver.url("/json/" + quote('{"id": 12345678901234567890124}'))}
    for wanted, outcome in ((12345678901234567890123, "failed"), (12345678901234567890124, "succeeded")):
        assert call({**target, "success_if": {"pointer": "/id", "equals": wanted}}).outcome == outcome


def test_the_status_comes_before_the_condition(call: Call, receiver: Receiver) -> None:
    target = {"url": receiver.url("/status/410"), "success_if": {"pointer": "", "exists": True}}
    result = call(target)
    assert (result.error and result.error["class"], result.pause_schedule) == ("http_status", True)
    result = call({**target, "success_status": ["4xx"]})
    assert (result.error and result.error["class"], result.pause_schedule) == ("bad_json", False)


def test_success_by_class_and_range(call: Call, receiver: Receiver) -> None:
    for status, is_success in ((200, False), (404, True), (418, True), (503, True), (504, False)):
        target = {"url": receiver.url(f"/status/{status}"), "success_status": ["4xx", "500-503"]}
        assert (call(target).outcome == "succeeded") is is_success


def test_a_failed_attempt_keeps_the_beginning_of_the_answer(call: Call, receiver: Receiver) -> None:
    error = call({"url": receiver.url("/status/500")}).error
    assert error and error["excerpt"] == "as asked"
    error = call({"url": receiver.url("/body/big"), "success_status": [404]}).error
    assert error and error["excerpt"] == "x" * 998
    assert len(orjson.dumps(error)) < 4_096
    error = call({"url": receiver.url("/body/binary"), "success_status": [404]}).error
    assert error and "excerpt" not in error


@pytest.mark.parametrize(
    ("charset", "text", "base64"),
    [
        ("utf-8", "grüße", False),
        ("iso-8859-1", "grüße", False),
        ("windows-1252", "„grüße“", False),
        ("utf-16", "grüße", False),
        ("shift_jis", "テスト", False),
        ("nonsense", "plain", False),
        ("idna", "plain", False),
        ("unicode_escape", "plain", False),
    ],
)
def test_a_body_is_text_in_its_charset(call: Call, receiver: Receiver, charset: str, text: str, base64: bool) -> None:
    result = call({"url": receiver.url(f"/charset/{charset}/{quote(text)}")}).result
    assert result and (result["body"], result["base64"]) == (text, base64)


def test_a_cut_goes_through_no_character(call: Call, receiver: Receiver) -> None:
    result = call({"url": receiver.url("/body/utf8")}).result
    assert result and (result["truncated"], result["base64"]) == (True, False)
    assert set(result["body"]) == {"é"}
    assert BODY_MAX_BYTES == 65_536


# -- templates on the wire --------------------------------------------------------------------------------------------


def test_a_target_is_filled_with_the_run(call: Call, receiver: Receiver) -> None:
    target = {
        "url": receiver.url("/ok/{{ payload.id }}?at={{ nominal_at | date }}&t={{ tenant.slug }}"),
        "headers": {"X-Run": "{{ run_key }}/{{ attempt }}", "X-Team": "{{ labels.team }}"},
        "body": {"job": "{{ job.name }}", "id": "{{ payload.id }}", "by": '{{ schedule.name | default("hand") }}'},
    }
    result = call(target, payload={"id": "a/b c"}, run_key="r9", attempt=3, job_name="nightly", labels={"team": "x"})
    assert result.outcome == "succeeded"
    (request,) = receiver.requests
    assert request.path == "/ok/a%2Fb%20c?at=2026-03-29&t=acme"
    assert (request.headers["x-run"], request.headers["x-team"]) == ("r9/3", "x")
    assert json.loads(request.body) == {"job": "nightly", "id": "a/b c", "by": "hand"}
    assert request.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "part",
    [{"body": "{{ payload.missing }}"}, {"headers": {"X": "{{ labels.no }}"}}, {"body": ["{{ payload | date }}"]}],
)
def test_a_template_that_does_not_fit_the_run_fails_for_good(call: Call, receiver: Receiver, part: Any) -> None:
    result = call({"url": receiver.url(), **part})
    assert (result.outcome, result.retryable) == ("failed", False)
    assert result.error and result.error["class"] == "bad_template"
    assert receiver.connections == 0


def test_a_value_that_looks_like_a_template_is_text(call: Call, receiver: Receiver) -> None:
    assert call({"url": receiver.url(), "body": "{{ payload }}"}, payload="{{ run_key }}").outcome == "succeeded"
    assert receiver.requests[0].body == b"{{ run_key }}"


# -- where it may go --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "outcome"),
    [
        (("127.0.0.0/8",), "succeeded"),
        (("127.0.0.1/32 {port}",), "succeeded"),
        (("127.0.0.0/8 1-65535",), "succeeded"),
        (("127.0.0.0/8 1024",), "failed"),
        (("127.0.0.0/8", "!127.0.0.1/32"), "failed"),
        (("127.0.0.0/8", "!127.0.0.0/8 {port}"), "failed"),
        (("* {port}",), "failed"),
        (USUAL, "failed"),
        ((), "failed"),
    ],
)
def test_rules_of_reach_are_asked_at_the_socket(
    running: Running, receiver: Receiver, results: Results, network: tuple[str, ...], outcome: str
) -> None:
    async def lookup(host: str) -> list[str]:
        return ["127.0.0.1"]

    executor: HttpExecutor = running(HttpExecutor(slots=1, lookup=lookup))
    rules = tuple(rule.format(port=receiver.port) for rule in network)
    for host in ("127.0.0.1", "name.test"):
        executor.submit([work := make_work("http", {"url": receiver.url(host=host)}, network=rules)], results)
        assert results.of(work).outcome == outcome


def test_the_first_address_that_answers_is_taken(running: Running, receiver: Receiver, results: Results) -> None:
    """RFC 8305: an address that says nothing delays a call by a fraction of a second."""
    full = socket.create_server(("127.0.0.2", receiver.port), backlog=0)
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())

    async def lookup(host: str) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    executor: HttpExecutor = running(HttpExecutor(slots=1, lookup=lookup))
    executor.submit([work := make_work("http", {"url": receiver.url(host="two.test")}, timeout_s=5)], results)
    result = results.of(work)
    assert result.outcome == "succeeded"
    assert (result.finished_at - result.started_at).total_seconds() < 2
    for each in (full, *fillers):
        each.close()
