"""Existing Celery tasks, in child processes and in threads: no broker is there, and none is missed."""

from typing import Any

import pytest

from tests.executors.rigs import PythonRig, ThreadRig
from tests.executors.sample_celery import REGISTRY
from tests.executors.works import Results, make_work
from workers.executors.base import Result, Work

pytestmark = pytest.mark.parametrize("rig", ["python", "threads"], indirect=True)


class Run:
    """`run(task, payload)` gives its result."""

    def __init__(self, executor: Any, results: Results) -> None:
        self.executor, self._results = executor, results

    def __call__(self, task: str, payload: Any = None, **changes: Any) -> Result:
        self.executor.submit([work := work_of(task, payload, **changes)], self._results)
        return self._results.of(work)


@pytest.fixture
def run(rig: PythonRig, results: Results) -> Run:
    return Run(rig.executor(registry=REGISTRY), results)


def work_of(task: str, payload: Any = None, **changes: Any) -> Work:
    return make_work("python", {"task": task}, payload=payload, **changes)


@pytest.mark.parametrize(("payload", "result"), [({"x": 2, "y": 3}, 5), ([2], 3), ([2, 5], 7)])
def test_the_payload_becomes_the_arguments(run: Run, payload: Any, result: int) -> None:
    assert (run("add", payload).outcome, run("add", payload).result) == ("succeeded", result)


def test_what_is_no_arguments_fails_for_good(run: Run) -> None:
    result = run("add", "2")
    assert (result.outcome, result.retryable) == ("failed", False)
    assert result.error and "keyword arguments" in result.error["message"]
    wrong = run("add", {"z": 1})
    assert (wrong.outcome, wrong.error and wrong.error["class"]) == ("failed", "TypeError")


def test_the_request_names_the_run(run: Run) -> None:
    work = work_of("whoami", {"a": 1}, attempt=3, run_key="k")
    result = run("whoami", {"a": 1}, attempt=3, run_key="k", execution_id=work.execution_id)
    assert result.result == {
        "id": str(work.execution_id), "retries": 2, "key": "k", "name": "tests.executors.sample_celery.whoami",
        "kwargs": {"a": 1}, "tenant": "acme", "direct": False,
    }  # fmt: skip


def test_a_retry_is_a_failed_attempt_with_the_pause_that_the_task_wants(run: Run) -> None:
    result = run("again")
    assert (result.outcome, result.retryable, result.retry_after_s) == ("failed", True, 7)


def test_a_retry_with_other_arguments_is_refused(run: Run) -> None:
    result = run("again_with", [1])
    assert (result.outcome, result.retryable) == ("failed", False)


@pytest.mark.parametrize(("attempt", "pause_s"), [(1, 3), (2, 6)])
def test_autoretry_keeps_the_cause_and_its_backoff(run: Run, attempt: int, pause_s: int) -> None:
    result = run("flaky", attempt=attempt)
    assert (result.outcome, result.retryable, result.retry_after_s) == ("failed", True, pause_s)
    assert result.error and result.error["class"] == "ConnectionError"


def test_the_tasks_own_limit_ends_the_run_for_good(run: Run) -> None:
    for result, class_ in ((run("flaky", attempt=3), "ConnectionError"), (run("used_up"), "ValueError")):
        assert (result.outcome, result.retryable) == ("failed", False)
        assert result.error and result.error["class"] == class_


def test_reject_requeue_and_ignore(run: Run) -> None:
    assert [(run(name).outcome, run(name).retryable) for name in ("reject", "requeue", "ignore")] == [
        ("failed", False),
        ("failed", True),
        ("succeeded", True),
    ]


@pytest.mark.parametrize(
    ("how", "hook", "state"),
    [("", "on_success", "SUCCESS"), ("fail", "on_failure", "FAILURE"), ("retry", "on_retry", "RETRY")],
)
def test_hooks_and_signals_come_as_in_celerys_worker(run: Run, how: str, hook: str, state: str) -> None:
    run("journal")
    run("hooked", [how])
    assert run("journal").result == ["prerun", "before_start", hook, f"after_return {state}", f"postrun {state}"]


def test_a_task_that_calls_another_as_a_function_or_has_a_call_of_its_own(run: Run) -> None:
    assert run("calls_another").result == 10
    assert run("own_call").result == {"wrapped": "inner"}


def test_the_soft_time_out_has_celerys_name(run: Run, rig: PythonRig, results: Results) -> None:
    threads = isinstance(rig, ThreadRig)  # which hear it only in Python code
    held = rig.hold("spins" if threads else "waits", target={"soft_timeout_s": 0.2})
    run.executor.submit([held.work], results)
    held.wait_running()
    assert results.of(held.work).result == "cleaned up"
