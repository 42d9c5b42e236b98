"""A receiver that answers 202: whether its result comes later, and what it is told for that."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.executors.receiver import Receiver
from tests.executors.works import Results, make_work
from workers.executors.http import HttpExecutor

TOKEN = "sbc_token-of-this-attempt"


@pytest.mark.parametrize(
    ("path", "members", "outcome"),
    [
        ("/status/202", {}, "succeeded"),
        ("/later", {}, "accepted"),
        ("/later/sbc_another", {}, "succeeded"),
        ("/status/202", {"completion": "callback"}, "accepted"),
        ("/status/202", {"completion": "response"}, "succeeded"),
        ("/ok", {"completion": "callback"}, "succeeded"),
        ("/status/500", {"completion": "callback"}, "failed"),
        ("/status/202", {"success_status": [200]}, "failed"),
        ("/later", {"success_status": [200]}, "accepted"),
    ],
)
def test_202_is_later_when_the_job_or_the_receiver_says_so(
    receiver: Receiver,
    running: Callable[[Any], Any],
    results: Results,
    path: str,
    members: dict[str, Any],
    outcome: str,
) -> None:
    executor = running(HttpExecutor(slots=1))
    work = make_work("http", {"url": receiver.url(path), **members}, completion=TOKEN)
    executor.submit([work], results)
    assert results.of(work).outcome == outcome
    assert receiver.requests[-1].headers["shardbeat-completion"] == TOKEN


def test_the_receiver_is_told_where_when_that_is_known(
    receiver: Receiver, running: Callable[[Any], Any], results: Results
) -> None:
    executor = running(HttpExecutor(slots=1))
    url = "https://beat.example.com/api/v1/executions/1/complete"
    work = make_work("http", {"url": receiver.url("/ok")}, completion=TOKEN, completion_url=url)
    executor.submit([work], results)
    results.of(work)
    assert receiver.requests[-1].headers["shardbeat-completion-url"] == url


def test_without_a_token_nothing_comes_later(
    receiver: Receiver, running: Callable[[Any], Any], results: Results
) -> None:
    executor = running(HttpExecutor(slots=1))
    work = make_work("http", {"url": receiver.url("/later"), "completion": "callback"})
    executor.submit([work], results)
    assert results.of(work).outcome == "succeeded"
    assert "shardbeat-completion" not in receiver.requests[-1].headers


def test_a_slot_is_free_while_the_other_side_works(
    receiver: Receiver, running: Callable[[Any], Any], results: Results, wait_for: Any
) -> None:
    executor = running(HttpExecutor(slots=1))
    works = [make_work("http", {"url": receiver.url("/later")}, completion=TOKEN) for _ in range(5)]
    executor.submit(works, results)
    assert {result.outcome for result in results.all_of(works)} == {"accepted"}
    wait_for(lambda: executor.free() == 1 and not executor.held())
