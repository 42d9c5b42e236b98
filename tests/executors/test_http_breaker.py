"""Circuit breakers in the executor, with a desk that a test answers for; the shared part is in tests/flow."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any
from uuid import UUID, uuid4

import pytest

from kernel.clock import monotonic_s
from tests.executors.receiver import Receiver
from tests.executors.works import Results, make_work
from workers.executors.base import Result
from workers.executors.http import HttpExecutor
from workers.executors.http_breaker import TROUBLE, Breakers, Shut

FAILURES = 4


class DeskOfATest:
    """Notes what it is told; claims are answered with `token`, or not at all."""

    def __init__(self) -> None:
        self.opened: list[tuple[Any, int, str]] = []
        self.trials: list[tuple[Any, UUID, bool | None]] = []
        self.claims: list[Future[UUID | None]] = []
        self.token: UUID | None = None
        self.answers = True
        self.claimed = threading.Event()

    def open(self, key: Any, *, failures: int, reason: str) -> None:
        self.opened.append((key, failures, reason))

    def claim(self, key: Any, *, lease_s: float) -> "Future[UUID | None]":
        answer: Future[UUID | None] = Future()
        self.claims.append(answer)
        if self.answers:
            answer.set_result(self.token)
        self.claimed.set()
        return answer

    def tried(self, key: Any, token: UUID, *, worked: bool | None, reason: str) -> None:
        self.trials.append((key, token, worked))


@pytest.fixture
def desk() -> DeskOfATest:
    return DeskOfATest()


@pytest.fixture
def breakers(desk: DeskOfATest) -> Breakers:
    return Breakers(desk, failures=FAILURES, window_s=60, open_s=30)


@pytest.fixture
def call(running: Callable[[Any], Any], results: Results, breakers: Breakers) -> Iterator[Callable[..., Result]]:
    executor: HttpExecutor = running(HttpExecutor(slots=10, breakers=breakers))

    def make(url: str, **changes: Any) -> Result:
        target = {"url": url, **changes.pop("target", {})}
        executor.submit([work := make_work("http", target, **changes)], results)
        return results.of(work)

    yield make


def class_of(result: Result) -> str:
    return str((result.error or {}).get("class", ""))


@pytest.mark.parametrize("path", ["/status/500", "/status/503", "/close", "/garbage"])
def test_trouble_opens_it_and_runs_are_put_off(
    call: Callable[..., Result], desk: DeskOfATest, receiver: Receiver, path: str
) -> None:
    for _ in range(FAILURES):
        assert call(receiver.url(path)).outcome == "failed"
    ((key, failures, _),) = desk.opened
    assert (key, failures) == ((1, f"127.0.0.1:{receiver.port}"), FAILURES)
    came = len(receiver.requests)
    result = call(receiver.url("/ok"))
    assert (result.outcome, class_of(result), result.retryable) == ("returned", "breaker_open", True)
    assert result.error and result.error["destination"] == f"127.0.0.1:{receiver.port}"
    assert result.retry_after_s and 25 < result.retry_after_s < 40
    assert len(receiver.requests) == came, "nothing was sent"


def test_time_outs_open_it(call: Callable[..., Result], desk: DeskOfATest, receiver: Receiver) -> None:
    for number in range(FAILURES):
        assert call(receiver.url(f"/hold/{number}"), timeout_s=0.2).outcome == "timed_out"
    assert len(desk.opened) == 1


@pytest.mark.parametrize(
    "target",
    [
        {"url": "/status/404"},
        {"url": "/status/429"},
        {"url": "/status/410"},
        {"url": "/status/503", "success_status": [503]},
        {"url": "/ok", "success_if": {"pointer": "", "exists": False}},
        {"url": "/redirect/crlf", "redirects": {"follow": True}},
        {"url": "/ok", "body": "{{ payload.missing }}"},
    ],
)
def test_what_is_no_trouble_of_the_destination_does_not(
    call: Callable[..., Result], desk: DeskOfATest, receiver: Receiver, target: dict[str, Any]
) -> None:
    for _ in range(FAILURES * 3):
        call(receiver.url(target["url"]), target={name: value for name, value in target.items() if name != "url"})
    assert desk.opened == []


def test_it_is_of_one_tenant_and_one_destination(
    call: Callable[..., Result], receiver: Receiver, desk: DeskOfATest
) -> None:
    for _ in range(FAILURES):
        call(receiver.url("/status/500"))
    assert call(receiver.url()).outcome == "returned"
    assert call(receiver.url(), tenant_id=2).outcome == "succeeded"
    assert call(receiver.url(host="localhost")).outcome == "succeeded"


def test_good_calls_among_the_bad_keep_it_closed(
    call: Callable[..., Result], receiver: Receiver, desk: DeskOfATest
) -> None:
    for _ in range(FAILURES * 2):
        for path in ("/status/500", "/ok", "/ok"):
            call(receiver.url(path))
    assert desk.opened == []


@pytest.mark.parametrize(("path", "worked"), [("/ok", True), ("/status/404", True), ("/status/500", False)])
def test_one_call_tries_when_its_time_has_come(
    call: Callable[..., Result], breakers: Breakers, desk: DeskOfATest, receiver: Receiver, path: str, worked: bool
) -> None:
    key = (1, f"127.0.0.1:{receiver.port}")
    breakers.shut = {key: Shut(monotonic_s() - 1, "was down")}
    assert call(receiver.url(path)).outcome == "returned", "another one tries"
    assert receiver.requests == []
    desk.token = uuid4()
    call(receiver.url(path))
    assert desk.trials == [(key, desk.token, worked)]
    assert len(receiver.requests) == 1


def test_a_trial_that_is_cancelled_says_nothing(
    running: Callable[[Any], Any], results: Results, breakers: Breakers, desk: DeskOfATest, receiver: Receiver
) -> None:
    key = (1, f"127.0.0.1:{receiver.port}")
    breakers.shut, desk.token = {key: Shut(monotonic_s() - 1, "was down")}, uuid4()
    executor: HttpExecutor = running(HttpExecutor(slots=10, breakers=breakers))
    executor.submit([work := make_work("http", {"url": receiver.url("/hold/1")})], results)
    receiver.wait_held("1")
    executor.cancel(work.execution_id, work.fence)
    assert results.of(work).outcome == "cancelled"
    assert desk.trials == [(key, desk.token, None)]


def test_a_desk_that_does_not_answer_defers_the_call(
    call: Callable[..., Result], breakers: Breakers, desk: DeskOfATest, receiver: Receiver, monkeypatch: Any
) -> None:
    monkeypatch.setattr("workers.executors.http_breaker.DESK_ANSWERS_S", 0.1)
    breakers.shut = {(1, f"127.0.0.1:{receiver.port}"): Shut(monotonic_s() - 1, "was down")}
    desk.answers = False
    assert class_of(call(receiver.url())) == "breaker_open"
    assert desk.claims[0].cancelled(), "so that the desk gives the trial to somebody else"


def test_a_cancel_while_the_desk_is_asked(
    running: Callable[[Any], Any], results: Results, breakers: Breakers, desk: DeskOfATest, receiver: Receiver
) -> None:
    breakers.shut = {(1, f"127.0.0.1:{receiver.port}"): Shut(monotonic_s() - 1, "was down")}
    desk.answers = False
    executor: HttpExecutor = running(HttpExecutor(slots=10, breakers=breakers))
    executor.submit([work := make_work("http", {"url": receiver.url()})], results)
    assert desk.claimed.wait(30)
    executor.cancel(work.execution_id, work.fence)
    assert results.of(work).outcome == "cancelled"
    assert desk.claims[0].cancelled() and desk.trials == []


def test_the_names_of_trouble_are_classes_that_policies_know() -> None:
    from apps.schedules.retry import ERROR_CLASSES

    assert set(ERROR_CLASSES) >= TROUBLE


def test_a_token_endpoint_in_trouble_is_not_the_destination(
    call: Callable[..., Result], desk: DeskOfATest, breakers: Breakers, receiver: Receiver
) -> None:
    auth = {"type": "oauth2_client_credentials", "client_id": "me", "client_secret": "s", "token_url": ""}
    for path, class_ in (("/hold/token", "timeout"), ("/status/503", "token_failed")):
        target = {"auth": auth | {"token_url": receiver.url(path)}}
        for number in range(FAILURES):
            result = call(receiver.url("/ok"), target=target, timeout_s=0.2 if class_ == "timeout" else 10, tenant_id=1)
            assert class_of(result) == class_, number
    assert not desk.opened and not any(request.path == "/ok" for request in receiver.requests)
