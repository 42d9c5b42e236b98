"""Targets that send small things without end: they cost their own call, and nobody else's."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.executors.receiver import FLOODS, Receiver
from tests.executors.works import Results, make_work
from workers.executors.http import HttpExecutor

FLOOD_TIMEOUT_S = 60.0  # a call that ends sooner was ended by a limit
SENT_MAX_BYTES = 80_000_000  # what buffers of the kernel on both sides may take before a closed connection is noticed
REFUSED = {"continue", "hints", "big_hints", "blank", "head", "name"}  # before there was an answer


@pytest.fixture
def hostile() -> Iterator[Receiver]:
    server = Receiver()
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_ends_at_a_limit(
    running: Callable[[Any], Any], hostile: Receiver, receiver: Receiver, results: Results, flood: str, wait_for: Any
) -> None:
    executor: HttpExecutor = running(HttpExecutor(slots=100))
    floods = [make_work("http", {"url": hostile.url(f"/flood/{flood}")}, timeout_s=FLOOD_TIMEOUT_S) for _ in range(4)]
    others = [make_work("http", {"url": receiver.url()}, tenant_id=2) for _ in range(50)]
    executor.submit(floods, results)
    executor.submit(others, results)
    assert {result.outcome for result in results.all_of(others)} == {"succeeded"}
    for result in results.all_of(floods):
        if flood in REFUSED:
            assert (result.outcome, result.retryable) == ("failed", True)
            assert result.error and result.error["class"] == "bad_response"
        else:
            assert result.outcome == "succeeded"
            assert result.result and (result.result["truncated"] or flood == "answers")
    wait_for(lambda: not hostile.serving)  # each connection was closed
    assert hostile.sent_bytes < SENT_MAX_BYTES


def test_no_turn_of_the_loop_takes_much_of_a_flood(
    running: Callable[[Any], Any], hostile: Receiver, results: Results
) -> None:
    """Counted in turns of the loop, not in time: while a body is read, others get their turns."""
    executor: HttpExecutor = running(HttpExecutor(slots=10))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.run_coroutine_threadsafe(count(), executor._loop)
    executor.submit([work := make_work("http", {"url": hostile.url("/hold/1")})], results)
    hostile.wait_held("1")
    hostile.release("1")
    results.of(work)
    before = turns
    executor.submit([work := make_work("http", {"url": hostile.url("/flood/chunks")})], results)
    assert results.of(work).outcome == "succeeded"
    counting.cancel()
    assert turns - before > 40  # 65,536 chunks are kept, about a thousand between two turns


@pytest.mark.parametrize("count", [0, 1, 8])
def test_a_few_informational_answers_are_fine(
    running: Callable[[Any], Any], receiver: Receiver, results: Results, count: int
) -> None:
    executor: HttpExecutor = running(HttpExecutor(slots=10))
    works = [make_work("http", {"url": receiver.url(f"/hinted/{count}")}) for _ in range(2)]
    for work in works:
        executor.submit([work], results)
        result = results.of(work)
        assert result.outcome == "succeeded"
        assert result.result and result.result["body"] == "ok"
    assert receiver.connections == 1
