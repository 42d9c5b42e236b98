"""Redirects: off unless asked for; then every hop is a target of its own, and only what may goes along."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from kernel.clock import utc_now
from kernel.httprules import check_url
from tests.executors.receiver import Receiver
from tests.executors.works import LOOPBACK, Results, case, make_work
from workers.executors.base import Result
from workers.executors.http import HttpExecutor
from workers.executors.http_redirects import RedirectFailed, Request, next_request

Call = Callable[..., Result]
FOLLOW = {"redirects": {"follow": True}}
INSIDE = "internal.example.test"


@pytest.fixture
def call(running: Callable[[Any], Any], results: Results) -> Call:
    async def lookup(host: str) -> list[str]:
        return ["10.0.0.7"] if host == INSIDE else ["127.0.0.1"]

    executor: HttpExecutor = running(HttpExecutor(slots=20, lookup=lookup))

    def make(target: Any, **changes: Any) -> Result:
        executor.submit([work := make_work("http", target, **changes)], results)
        return results.of(work)

    return make


@pytest.fixture
def other() -> Iterator[Receiver]:
    server = Receiver()
    server.start()
    yield server
    server.stop()


def class_of(result: Result) -> str:
    assert result.outcome == "failed" and result.error
    return str(result.error["class"])


# -- following ------------------------------------------------------------------------------------------------------


def test_a_redirect_is_followed_when_asked_for(call: Call, receiver: Receiver) -> None:
    result = call({"url": receiver.url("/redirect/hops/3?a=1"), **FOLLOW})
    assert (result.outcome, result.result and result.result["redirects"]) == ("succeeded", 3)
    assert result.result and result.result["url"] == receiver.url("/ok")
    assert [request.path for request in receiver.requests][1:] == ["/redirect/hops/2", "/redirect/hops/1", "/ok"]
    assert {request.headers["idempotency-key"] for request in receiver.requests} == {
        receiver.requests[0].headers["idempotency-key"]
    }


@pytest.mark.parametrize("redirects", [None, {"follow": False}, {"follow": False, "max_hops": 5}])
def test_a_redirect_is_not_followed_otherwise(call: Call, receiver: Receiver, redirects: Any) -> None:
    result = call({"url": receiver.url("/redirect/hops/1"), "redirects": redirects})
    assert class_of(result) == "http_status"
    assert len(receiver.requests) == 1


def test_a_status_that_is_a_success_is_the_end(call: Call, receiver: Receiver) -> None:
    result = call({"url": receiver.url("/redirect/hops/1"), "success_status": [302], **FOLLOW})
    assert result.outcome == "succeeded"
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("status", "method", "second", "has_body"),
    [
        (301, "POST", "GET", False),
        (302, "POST", "GET", False),
        (303, "POST", "GET", False),
        (307, "POST", "POST", True),
        (308, "POST", "POST", True),
        (301, "PUT", "PUT", True),
        (302, "PATCH", "PATCH", True),
        (303, "PUT", "GET", False),
        (303, "DELETE", "GET", False),
        (303, "HEAD", "HEAD", False),
        (307, "DELETE", "DELETE", True),
        (302, "GET", "GET", False),
    ],
)
def test_methods_and_bodies(
    call: Call, receiver: Receiver, status: int, method: str, second: str, has_body: bool
) -> None:
    call({"url": receiver.redirect_url(status, "/ok"), "method": method, **FOLLOW})
    first, last = receiver.requests
    assert (first.method, last.method, bool(last.body)) == (method, second, has_body)
    assert ("content-type" in last.headers) == has_body
    assert has_body is False or last.body == first.body


@pytest.mark.parametrize("status", [300, 304, 305, 306])
def test_other_statuses_lead_nowhere(call: Call, receiver: Receiver, status: int) -> None:
    assert class_of(call({"url": receiver.redirect_url(status, "/ok"), **FOLLOW})) == "http_status"
    assert len(receiver.requests) == 1


def test_a_redirect_without_a_location_is_an_answer(call: Call, receiver: Receiver) -> None:
    assert class_of(call({"url": receiver.url("/status/302"), **FOLLOW})) == "http_status"


# -- bounds: E23 ----------------------------------------------------------------------------------------------------


def test_chains_of_public_case_e23(call: Call, receiver: Receiver) -> None:
    expected = case("http", "E23")["expected"]
    found = {}
    for chain, path in (
        ("self-redirect", "/redirect/self"),
        ("20 hops", "/redirect/hops/20"),
        ("location with CR/LF", "/redirect/crlf"),
    ):
        receiver.requests.clear()
        result = call({"url": receiver.url(path), "method": "GET", **FOLLOW})
        found[chain] = f"{result.outcome} ({class_of(result)})", len(receiver.requests)
    assert found["self-redirect"] == (expected["state"], 1)
    assert found["20 hops"] == (expected["state"], expected["max_hops"] + 1)
    assert found["location with CR/LF"] == (expected["crlf"], 1)


@pytest.mark.parametrize(
    ("where", "path"),
    [
        ("next", "/a/b/next"),
        ("../next", "/a/next"),
        ("?page=2", "/a/b/c?page=2"),
        ("/top", "/top"),
        ("#part", "/a/b/c?q=1"),
        ("//{host}/x", "/x"),
    ],
)
def test_a_relative_location_is_resolved_against_the_current_url_e23(where: str, path: str) -> None:
    current = check_url("https://a.example.test/a/b/c?q=1", ())
    request = Request("GET", current, headers())
    if where == "#part":
        with pytest.raises(RedirectFailed) as failed:
            next_request(request, 302, where, network=(), seen={("GET", str(current))})
        assert failed.value.class_ == "too_many_redirects"
        return
    made = next_request(request, 302, where.format(host="b.example.test"), network=(), seen=set())
    assert made.url.path == path
    assert made.url.host == ("b.example.test" if where.startswith("//") else "a.example.test")


@pytest.mark.parametrize(("max_hops", "hops", "outcome"), [(1, 1, "succeeded"), (1, 2, "failed"), (5, 5, "succeeded")])
def test_a_target_may_allow_fewer(call: Call, receiver: Receiver, max_hops: int, hops: int, outcome: str) -> None:
    target = {"url": receiver.url(f"/redirect/hops/{hops}"), "redirects": {"follow": True, "max_hops": max_hops}}
    assert call(target).outcome == outcome
    assert len(receiver.requests) == min(hops, max_hops) + 1


def test_a_circle_ends_at_its_second_round(call: Call, receiver: Receiver) -> None:
    """Two URLs that lead to each other, as the same method."""
    target = {"url": receiver.url("/redirect/next"), "method": "GET", **FOLLOW}
    assert class_of(call(target)) == "too_many_redirects"
    assert len(receiver.requests) == 2


def test_one_deadline_for_the_whole_chain_e23(call: Call, receiver: Receiver) -> None:
    began = utc_now()
    where = receiver.redirect_url(302, receiver.redirect_url(302, "/trickle"))
    result = call({"url": where, "method": "GET", **FOLLOW}, timeout_s=0.6)
    assert result.outcome == "timed_out"
    assert timedelta(seconds=0.55) < utc_now() - began < timedelta(seconds=2)


# -- what goes along: E09 -------------------------------------------------------------------------------------------


def headers(**given: str) -> Any:
    from multidict import CIMultiDict

    return CIMultiDict({name.replace("_", "-"): value for name, value in given.items()})


def test_credentials_of_public_case_e09() -> None:
    given = case("http", "E09")
    own = {**given["headers"], "X-Of-Mine": "named as a secret"}
    own |= {"webhook-signature": "v1,x", "Shardbeat-Completion": "the token of this run"}
    request = Request("GET", check_url(given["url"], ()), headers(), secret_headers=frozenset({"x-of-mine"}))
    request.headers.update(own)
    answer = given["response"]
    made = next_request(request, answer["status"], answer["location"], network=(), seen=set())
    assert list(made.headers) == given["expected"]["second_request_headers"]


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("https://a.example.test/", "https://a.example.test/x", True),
        ("https://a.example.test/", "https://A.example.test:443/x", True),
        ("https://a.example.test/", "https://b.example.test/", False),
        ("https://a.example.test/", "https://a.example.test.evil.test/", False),
        ("https://a.example.test/", "https://sub.a.example.test/", False),
        ("https://a.example.test/", "https://a.example.test:8443/", False),
        ("http://a.example.test/", "https://a.example.test/", False),
        ("http://a.example.test/", "http://a.example.test:80/", True),
    ],
)
def test_credentials_stay_with_their_origin_e09(first: str, second: str, kept: bool) -> None:
    names = ("Authorization", "Cookie", "X-Api-Key", "X-Auth-Token", "Api_Key", "X-Session-Id", "X-Hub-Signature")
    rules = ("* 1024-65535",)
    request = Request("GET", check_url(first, rules), headers(X_Trace="ok", **dict.fromkeys(names, "s3")))
    made = next_request(request, 302, second, network=rules, seen=set())
    assert made.headers["X-Trace"] == "ok"
    assert [name.replace("_", "-") in made.headers for name in names] == [kept] * len(names)


def test_a_body_with_a_secret_stays_with_its_origin() -> None:
    request = Request("POST", check_url("https://a.example.test/", ()), headers(), b"{}", secret_body=True)
    with pytest.raises(RedirectFailed) as failed:
        next_request(request, 307, "https://b.example.test/", network=(), seen=set())
    assert failed.value.class_ == "redirect_refused"
    assert next_request(request, 307, "/x", network=(), seen=set()).body == b"{}"
    assert next_request(request, 303, "https://b.example.test/", network=(), seen=set()).body is None


def test_credentials_on_the_wire_e09(call: Call, receiver: Receiver, other: Receiver) -> None:
    """Another port is another origin; cookies that the first one sets are nobody's."""
    own = {"Authorization": "Bearer s3", "X-Mine": {"secret": "MINE"}, "X-Trace": "ok"}
    target = {"url": receiver.redirect_url(307, other.url()), "headers": own, **FOLLOW}
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    assert call(target, secrets={"MINE": "s3"}, signing_secrets=(secret,)).outcome == "succeeded"
    first, second = receiver.requests[0].headers, other.requests[0].headers
    assert {"authorization", "x-mine", "x-trace", "webhook-signature"} <= set(first)
    assert {"authorization", "x-mine", "webhook-signature", "cookie"} & set(second) == set()
    assert (second["x-trace"], second["idempotency-key"]) == ("ok", first["idempotency-key"])
    assert second["host"] == f"127.0.0.1:{other.port}"


# -- where it may lead ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "class_", "retryable"),
    [
        ("http://10.0.0.1/", "address_blocked", False),
        ("http://169.254.169.254/latest/meta-data/", "address_blocked", False),
        ("http://0xa9fea9fe/", "address_blocked", False),
        ("http://[::ffff:10.0.0.1]/", "address_blocked", False),
        (f"http://{INSIDE}/", "address_blocked", False),
        ("file:///etc/passwd", "redirect_refused", False),
        ("gopher://127.0.0.1:6379/_x", "redirect_refused", False),
        ("http://user:pass@127.0.0.1/", "redirect_refused", False),
        ("http://127.0.0.1:22/", "redirect_refused", False),
        ("http://127.0.0.1:6379/", "redirect_refused", False),
        ("http://a.example.test\\@127.0.0.1/", "bad_location", True),
        ("http:///x", "bad_location", True),
        ("http://[::1/", "bad_location", True),
        ("/a b", "bad_location", True),
        ("/x%0d%0aX-Injected:1", "bad_location", True),
        ("/x%00", "bad_location", True),
        ("http:x", "bad_location", True),
    ],
)
def test_every_hop_is_checked(call: Call, receiver: Receiver, where: str, class_: str, retryable: bool) -> None:
    result = call({"url": receiver.redirect_url(302, where), **FOLLOW}, network=("127.0.0.0/8",))
    assert (class_of(result), result.retryable) == (class_, retryable)
    assert len(receiver.requests) == 1
    assert "169.254" not in str(result) and "passwd" not in str(result)


def test_a_location_that_is_too_long_is_refused() -> None:
    request = Request("GET", check_url("https://a.example.test/", ()), headers())
    with pytest.raises(RedirectFailed) as failed:
        next_request(request, 302, "/" + "x" * 5_000, network=(), seen=set())
    assert failed.value.class_ == "bad_location"


def test_https_does_not_become_http() -> None:
    request = Request("GET", check_url("https://a.example.test/", ()), headers())
    with pytest.raises(RedirectFailed) as failed:
        next_request(request, 302, "http://a.example.test/", network=(), seen=set())
    assert (failed.value.class_, failed.value.retryable) == ("redirect_refused", False)


def test_a_name_that_changes_its_address_between_hops_is_blocked(
    running: Callable[[Any], Any], receiver: Receiver, results: Results
) -> None:
    """The second connection is judged by the second answer, and each socket once more."""
    asked: list[str] = []

    async def lookup(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["192.168.0.9"]

    executor: HttpExecutor = running(HttpExecutor(slots=5, lookup=lookup))
    where = receiver.redirect_url(302, f"http://rebind.test:{receiver.port}/ok", host="first.test")
    executor.submit([work := make_work("http", {"url": where, **FOLLOW}, network=LOOPBACK)], results)
    result = results.of(work)
    assert (asked, class_of(result)) == (["first.test", "rebind.test"], "address_blocked")


def test_cancel_reaches_a_chain(running: Callable[[Any], Any], receiver: Receiver, results: Results) -> None:
    executor: HttpExecutor = running(HttpExecutor(slots=5))
    work = make_work("http", {"url": receiver.redirect_url(302, receiver.url("/hold/chain")), **FOLLOW})
    executor.submit([work], results)
    receiver.wait_held("chain")
    executor.cancel(work.execution_id, work.fence)
    assert results.of(work).outcome == "cancelled"
