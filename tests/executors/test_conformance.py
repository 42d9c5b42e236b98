"""What every executor promises, against each of them with real servers and processes."""

import random
import threading
from typing import Any
from uuid import uuid4

import orjson
import pytest

from tests.executors.rigs import Rig
from tests.executors.works import WAIT_S, Results, key_of
from workers.executors.base import Result, Work
from workers.executors.bounds import ERROR_MAX_BYTES, RESULT_MAX_BYTES


def test_success_brings_a_result_and_frees_the_slot(rig: Rig, results: Results, wait_for: Any) -> None:
    executor = rig.executor()
    work = rig.work("ok")
    executor.submit([work], results)
    result = results.of(work)
    assert (result.outcome, result.error, result.pause_schedule) == ("succeeded", None, False)
    assert result.started_at <= result.finished_at
    assert result.started_at.utcoffset() is not None
    wait_for(lambda: executor.free() == executor.slots)
    assert executor.held() == set()


def test_failure_says_why_and_may_be_retried(rig: Rig, results: Results) -> None:
    executor = rig.executor()
    executor.submit([work := rig.work("fail")], results)
    result = results.of(work)
    assert (result.outcome, result.retryable, result.retry_after_s) == ("failed", True, None)
    assert result.error and result.error["class"] in ("http_status", "ValueError", "exit_code")


def test_the_other_side_steers_retries(rig: Rig, results: Results) -> None:
    executor = rig.executor()
    for_good, later = rig.work("fail_for_good"), rig.work("ask_for_pause")
    executor.submit([for_good, later], results)
    assert not results.of(for_good).retryable
    assert (results.of(later).retryable, results.of(later).retry_after_s) == (True, 120)


def test_time_out_ends_the_work_and_frees_its_slot(rig: Rig, results: Results) -> None:
    executor = rig.executor()
    held = rig.hold(timeout_s=0.3)
    executor.submit([held.work, after := rig.work("ok")], results)
    held.wait_running()
    result = results.of(held.work)
    assert result.outcome == "timed_out"
    assert result.result is None or result.result["exit_code"] is None  # what was said until then may be kept
    assert result.error and result.error["class"] == "timeout"
    assert 0.29 <= (result.finished_at - result.started_at).total_seconds() < 2
    assert results.of(after).outcome == "succeeded"


def test_waiting_does_not_use_up_the_time_out(rig: Rig, results: Results) -> None:
    executor = rig.executor()
    first, second = rig.hold(timeout_s=0.6), rig.hold(timeout_s=0.6)
    executor.submit([first.work, second.work], results)
    first.wait_running()
    assert results.of(first.work).outcome == "timed_out"
    second.wait_running()
    second.release()
    assert results.of(second.work).outcome == "succeeded"


def test_cancel_while_running(rig: Rig, results: Results) -> None:
    executor = rig.executor()
    held = rig.hold()
    executor.submit([held.work], results)
    held.wait_running()
    assert executor.cancel(*key_of(held.work))
    assert results.of(held.work, within_s=3).outcome == "cancelled"
    executor.submit([after := rig.work("ok")], results)
    assert results.of(after).outcome == "succeeded"


def test_cancel_while_waiting_leaves_the_running_one_alone(rig: Rig, results: Results) -> None:
    executor = rig.executor()
    held, waiting = rig.hold(), rig.hold()
    executor.submit([held.work, waiting.work], results)
    held.wait_running()
    assert executor.cancel(*key_of(waiting.work))
    assert results.of(waiting.work).outcome == "cancelled"
    assert executor.held() == {key_of(held.work)}
    held.release()
    assert results.of(held.work).outcome == "succeeded"


def test_cancel_of_what_is_not_held_is_false(rig: Rig, results: Results, wait_for: Any) -> None:
    executor = rig.executor()
    assert not executor.cancel(uuid4(), 1)
    executor.submit([work := rig.work("ok")], results)
    assert not executor.cancel(work.execution_id, work.fence + 1)
    results.of(work)
    wait_for(lambda: not executor.held())
    assert not executor.cancel(*key_of(work))


def test_the_other_side_dies_and_only_its_work_with_it(rig: Rig, results: Results) -> None:
    executor = rig.executor()
    held, dies = rig.hold(), rig.work("dies")
    others = [rig.work("ok") for _ in range(20)]
    executor.submit([held.work, *others[:10], dies, *others[10:]], results)
    held.wait_running()
    rig.kill(executor, held)
    assert results.of(held.work, within_s=5).outcome == rig.ends_when_killed
    assert results.of(held.work).retryable
    assert results.of(dies).outcome == rig.ends_when_killed
    assert {result.outcome for result in results.all_of(others)} == {"succeeded"}


def test_big_output_is_cut_to_its_bound(rig: Rig, results: Results) -> None:
    executor = rig.executor()
    executor.submit([work := rig.work("big")], results)
    result = results.of(work)
    assert result.outcome == "succeeded"
    assert result.result and result.result["truncated"] is True
    assert 40_000 < len(orjson.dumps(result.result)) <= RESULT_MAX_BYTES


def test_hostile_output_costs_only_its_own_work(rig: Rig, results: Results) -> None:
    executor = rig.executor(parallel=2)
    works = rig.hostile()
    good = [rig.work("ok") for _ in works]
    executor.submit([work for pair in zip(works, good, strict=True) for work in pair], results)
    assert {result.outcome for result in results.all_of(good)} == {"succeeded"}
    for result in results.all_of(works):
        assert_can_be_stored(result)
    assert max(results.times.values()) == 1


def test_stop_lets_the_running_finish_and_returns_the_waiting(rig: Rig, results: Results) -> None:
    executor = rig.executor()
    held, waiting = rig.hold(), [rig.work("ok") for _ in range(5)]
    executor.submit([held.work, *waiting], results)
    held.wait_running()
    stopping = threading.Thread(target=executor.stop, args=(WAIT_S,))
    stopping.start()
    assert {result.outcome for result in results.all_of(waiting)} == {"returned"}
    executor.submit([late := rig.work("ok")], results)
    assert results.of(late).outcome == "returned"
    held.release()
    stopping.join(WAIT_S)
    assert results.of(held.work).outcome == "succeeded"
    assert executor.held() == set()


def test_stop_returns_what_outlives_the_grace_period(rig: Rig, results: Results) -> None:
    executor = rig.executor()
    held, waiting = rig.hold(), rig.hold()
    executor.submit([held.work, waiting.work], results)
    held.wait_running()
    executor.stop(0.05)
    assert {result.outcome for result in results.all_of([held.work, waiting.work], within_s=0)} == {"returned"}
    assert set(results.times.values()) == {1}


def test_the_same_work_twice_is_one_work(rig: Rig, results: Results, wait_for: Any) -> None:
    executor = rig.executor()
    held = rig.hold()
    executor.submit([held.work], results)
    held.wait_running()
    executor.submit([held.work, held.work], results)
    wait_for(lambda: executor.free() == executor.slots - 1)  # slots may change between the two looks
    held.release()
    results.of(held.work)
    wait_for(lambda: not executor.held())
    assert results.times[key_of(held.work)] == 1


def test_a_work_is_held_until_its_result_was_taken_but_its_slot_is_free_before(rig: Rig) -> None:
    executor = rig.executor()
    seen: list[bool] = []
    called = threading.Event()

    def done(work: Work, result: Result) -> None:
        seen.append(key_of(work) in executor.held() and executor.free() == executor.slots)
        called.set()

    executor.submit([rig.work("ok")], done)
    assert called.wait(WAIT_S)
    assert seen == [True]


def test_a_receiver_of_results_that_fails_stops_nothing(rig: Rig, results: Results, wait_for: Any) -> None:
    executor = rig.executor()

    def done(work: Work, result: Result) -> None:
        raise RuntimeError("no database")

    executor.submit([rig.work("ok")], done)
    executor.submit([work := rig.work("ok")], results)
    assert results.of(work).outcome == "succeeded"
    wait_for(lambda: executor.free() == executor.slots)


@pytest.mark.parametrize("seed", range(3))
def test_exactly_one_result_each_whatever_happens(rig: Rig, results: Results, seed: int) -> None:
    dice = random.Random(seed)
    executor = rig.executor(parallel=2)
    works = [rig.work(dice.choice(["ok"] * 20 + ["fail", "dies", "big"])) for _ in range(rig.many)]
    step = rig.many // 6
    for at in range(0, len(works), step):
        executor.submit(works[at : at + step], results)
        for work in dice.sample(works[: at + step], step // 5):
            executor.cancel(*key_of(work))
    results.wait(lambda: len(results) >= rig.many * 2 // 3)
    executor.stop(dice.choice([0, WAIT_S]))
    assert len(results.all_of(works, within_s=0)) == rig.many
    assert set(results.times.values()) == {1}
    assert executor.held() == set()


def assert_can_be_stored(result: Result) -> None:
    """Within the bounds, and JSON that PostgreSQL takes."""
    for value, most in ((result.result, RESULT_MAX_BYTES), (result.error, ERROR_MAX_BYTES)):
        data = orjson.dumps(value)
        assert len(data) <= most
        assert b"\\u0000" not in data.replace(b"\\\\", b"")
