"""The Python executor with real child processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kernel.clock import utc_now
from tests.executors.rigs import REGISTRY, PythonRig
from tests.executors.works import NOMINAL_AT, WAIT_S, Results, case, key_of
from workers.executors.pace import FIRST_DEPTH, Pace
from workers.executors.python import PythonExecutor

pytestmark = pytest.mark.parametrize("rig", ["python"], indirect=True)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_callable_knows_its_run(rig: PythonRig, results: Results) -> None:
    executor = rig.executor()
    work = rig.work("ok", run_key="r1", attempt=3, payload={"ü": [1, 2**70, None]})
    executor.submit([work], results)
    value = results.of(work).result
    assert value and value.pop("pid") != os.getpid()
    assert value == {
        "payload": {"ü": [1, str(2**70), None]},
        "run_key": "r1",
        "attempt": 3,
        "nominal_at": NOMINAL_AT.isoformat(),
        "deadline": work.deadline.isoformat(),
        "tenant": "acme",
        "execution_id": str(work.execution_id),
    }


def test_a_failure_says_where_and_can_be_stored(rig: PythonRig, results: Results) -> None:
    executor = rig.executor()
    executor.submit([work := rig.work("fail")], results)
    error = results.of(work).error
    assert error and error["class"] == "ValueError"
    assert error["message"] == "no such \ufffd customer ?"
    assert error["where"].startswith("sample_tasks.py:")


def test_memory_errors_leave_the_pool_usable_c06(rig: PythonRig, results: Results) -> None:
    given_case = case("worker", "C06")
    executor = rig.executor(parallel=given_case["concurrency"])
    works = [rig.work("run_out_of_memory") for _ in range(given_case["count"])]
    executor.submit(works, results)
    assert {result.outcome for result in results.all_of(works)} == {given_case["expected"]["run_state"]}
    executor.submit([after := rig.work("ok")], results)
    assert results.of(after).outcome == "succeeded"


def test_the_hard_limit_holds_whatever_becomes_of_the_soft_one_c17(rig: PythonRig, results: Results) -> None:
    executor = rig.executor()
    held = rig.hold("ignore_soft_timeout", target={"soft_timeout_s": 0.2}, timeout_s=0.5)
    executor.submit([held.work], results)
    held.wait_running()
    result = results.of(held.work)
    assert result.outcome == "timed_out"
    assert 0.5 <= (result.finished_at - result.started_at).total_seconds() < 1.5
    executor.submit([after := rig.work("ok")], results)
    assert results.of(after).outcome == "succeeded"


def test_a_soft_limit_that_is_heeded_keeps_the_process(rig: PythonRig, results: Results, wait_for: Any) -> None:
    executor = rig.executor()
    held = rig.hold(target={"soft_timeout_s": 0.2})
    executor.submit([held.work], results)
    held.wait_running()
    result = results.of(held.work)
    assert result.outcome == "timed_out"
    assert result.error and result.error["class"] == "soft_timeout"
    assert executor.child_pids() == [held.pid]


def test_cancel_lets_go_of_the_callable_and_keeps_the_process(rig: PythonRig, results: Results) -> None:
    executor = rig.executor()
    held = rig.hold()
    executor.submit([held.work], results)
    held.wait_running()
    executor.cancel(*key_of(held.work))
    assert results.of(held.work).outcome == "cancelled"
    assert executor.child_pids() == [held.pid]


def test_cancel_kills_what_does_not_listen(rig: PythonRig, results: Results) -> None:
    executor = rig.executor()
    held, behind = rig.hold("hold_in_c"), rig.work("ok")
    executor.submit([held.work, behind], results)
    held.wait_running()
    executor.cancel(*key_of(held.work))
    assert results.of(held.work, within_s=3).outcome == "cancelled"
    assert not is_alive(held.pid)
    assert results.of(behind).outcome == "succeeded"


def test_short_works_do_not_wait_behind_a_long_one(rig: PythonRig, results: Results) -> None:
    executor = rig.executor(parallel=2)
    warm = [rig.work("noop") for _ in range(300)]  # so that it learns to send ahead
    executor.submit(warm, results)
    results.all_of(warm)
    held, short = rig.hold(), [rig.work("ok") for _ in range(40)]
    executor.submit([held.work, *short], results)
    held.wait_running()
    assert {result.outcome for result in results.all_of(short)} == {"succeeded"}
    assert executor.held() == {key_of(held.work)}
    held.release()
    assert results.of(held.work).outcome == "succeeded"


def test_long_works_leave_room_for_as_many_as_run(rig: PythonRig, results: Results, wait_for: Any) -> None:
    executor = rig.executor(parallel=2)
    assert executor.slots == executor.free() == 2 * FIRST_DEPTH
    warm = [rig.work("noop") for _ in range(500)]
    executor.submit(warm, results)
    results.all_of(warm)
    wait_for(lambda: executor.free() > 2 * FIRST_DEPTH)  # short works, so there is room for more of them
    holds = [rig.hold() for _ in range(2)]
    executor.submit([held.work for held in holds], results)
    for held in holds:
        held.wait_running()
    wait_for(lambda: (executor.slots, executor.free()) == (2, 0))
    for held in holds:
        held.release()
    results.all_of([held.work for held in holds])
    wait_for(lambda: executor.slots in (2, 4))  # what follows is expected to be long too


def test_a_work_starts_when_its_child_starts_it(rig: PythonRig, results: Results) -> None:
    executor = rig.executor()
    held, behind = rig.hold(), rig.work("ok")
    executor.submit([held.work, behind], results)
    held.wait_running()
    released_at = utc_now()
    held.release()
    assert results.of(held.work).started_at <= released_at <= results.of(behind).started_at


@pytest.mark.parametrize(
    ("runs_s", "depth"),
    [
        ([], 2),
        ([0.0001] * 60, 64),
        ([0.005] * 60, 19),
        ([60.0], 1),
        ([0.0001] * 60 + [60.0], 1),
        ([0.0001] * 60 + [60.0] + [0.0001] * 40, 64),
        ([-1.0] * 60, 64),
    ],
)
def test_depth_follows_run_times(rig: PythonRig, runs_s: list[float], depth: int) -> None:
    pace = Pace(64)
    for ran_s in runs_s:
        pace.saw(ran_s)
    assert pace.depth in (depth, depth + 1)
    assert 1 <= pace.depth <= 64


def test_a_child_that_is_killed_while_idle_is_replaced(rig: PythonRig, results: Results, wait_for: Any) -> None:
    executor = rig.executor()
    (pid,) = wait_for(executor.child_pids)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: executor.child_pids() not in ([pid], []))
    executor.submit([work := rig.work("ok")], results)
    assert results.of(work).outcome == "succeeded"
    assert not is_alive(pid)


def test_children_are_recycled(rig: PythonRig, results: Results) -> None:
    executor = rig.executor(recycle_after=5)
    works = [rig.work("ok") for _ in range(30)]
    for work in works:
        executor.submit([work], results)
        results.of(work)
    pids = [result.result["pid"] for result in results.all_of(works) if result.result]
    assert len(set(pids)) == 6
    assert sorted(pids, key=pids.index) == pids


def test_children_are_set_up_first(rig: PythonRig, results: Results) -> None:
    executor = rig.executor(setup="tests.executors.sample_tasks:prepare")
    executor.submit([work := rig.work("is_prepared")], results)
    assert results.of(work).result is True


def test_works_are_handed_back_when_no_child_starts(rig: PythonRig, results: Results) -> None:
    executor = rig.executor(setup="tests.executors.sample_tasks:no_such_setup")
    works = [rig.work("ok") for _ in range(3)]
    executor.submit(works, results)
    assert {result.outcome for result in results.all_of(works)} == {"returned"}
    assert executor.free() == 0


def test_a_work_that_would_outlive_its_deadline_is_handed_back(rig: PythonRig, results: Results) -> None:
    executor = rig.executor()
    held = rig.hold()
    executor.submit([held.work], results)
    held.wait_running()
    late = rig.work("ok", timeout_s=20, deadline=utc_now() + timedelta(seconds=22))
    patient = rig.work("ok", timeout_s=20, deadline=utc_now() + timedelta(seconds=60))
    executor.submit([late, patient], results)
    assert results.of(late).outcome == "returned"
    assert executor.held() == {key_of(held.work), key_of(patient)}


def test_output_of_callables_is_bounded(rig: PythonRig, results: Results, capfd: pytest.CaptureFixture[str]) -> None:
    executor = rig.executor()
    executor.submit([work := rig.work("print_much")], results)
    assert results.of(work).result == "printed"
    out, err = capfd.readouterr()
    assert out == ""
    assert 60_000 < len(err) < 70_000


def test_children_die_with_their_worker(rig: PythonRig, results: Results, wait_for: Any) -> None:
    held = rig.hold("hold_in_c")  # even one that can't notice
    program = f"""
import sys, threading, uuid
sys.path[:] = {sys.path!r}
from tests.executors.works import make_work
from workers.executors.python import PythonExecutor
executor = PythonExecutor(registry={REGISTRY!r}, children=1)
executor.start()
executor.submit([make_work("python", {{"task": "hold_in_c"}}, payload={held.work.payload!r})], print)
threading.Event().wait()
"""
    worker = subprocess.Popen([sys.executable, "-c", program])
    held.wait_running()
    assert is_alive(held.pid)
    worker.kill()
    worker.wait(WAIT_S)
    wait_for(lambda: not is_alive(held.pid))


def test_stop_leaves_no_process(rig: PythonRig, results: Results, wait_for: Any, running: Callable[[Any], Any]) -> None:
    executor = rig.executor(parallel=2)
    wait_for(lambda: len(executor.child_pids()) == 2)
    pids = executor.child_pids()
    held = rig.hold()
    executor.submit([held.work], results)
    held.wait_running()
    executor.stop(0)
    assert not any(map(is_alive, pids))
    executor.stop(0)  # twice is fine


def test_stop_before_start_is_fine(rig: PythonRig, results: Results) -> None:
    executor = PythonExecutor(registry=REGISTRY)
    executor.stop(0)
    executor.submit([work := rig.work("ok")], results)
    assert results.of(work).outcome == "returned"


@pytest.mark.parametrize("how", ["write_garbage", "fork_and_return"])
def test_a_work_that_corrupts_its_childs_pipe_costs_at_most_what_that_child_held(
    rig: PythonRig, results: Results, how: str
) -> None:
    """After garbage nobody can say what the child has run: what it held is lost with it, and tried again."""
    executor = rig.executor(parallel=2)
    good = [rig.work("ok") for _ in range(6)]
    corrupting = rig.work(how)
    executor.submit([rig.work("ok"), corrupting, *good], results)
    assert {result.outcome for result in results.all_of(good)} <= {"succeeded", "lost"}
    results.of(corrupting)  # until then its child may be given more, and that is lost with it too
    assert max(results.times.values()) == 1
    executor.submit([last := rig.work("ok")], results)
    assert results.of(last).outcome == "succeeded"
