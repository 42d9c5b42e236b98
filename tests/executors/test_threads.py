"""What is different when callables run in threads: they are asked to stop, never killed."""

from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest

from tenants.models import Tenant
from tests.conftest import wait_until
from tests.executors import sample_celery
from tests.executors.rigs import REGISTRY, PythonRig, ThreadRig
from tests.executors.works import Results, key_of, make_work
from tests.schedules.steps import counted
from workers.executors.base import Key
from workers.executors.threads import ThreadExecutor

threads_only = pytest.mark.parametrize("rig", ["threads"], indirect=True)
both = pytest.mark.parametrize("rig", ["python", "threads"], indirect=True)


@threads_only
@pytest.mark.parametrize("how", ["time-out", "cancel"])
def test_python_code_is_stopped_and_may_be_retried(rig: ThreadRig, results: Results, how: str) -> None:
    executor = rig.executor()
    held = rig.hold("spin", timeout_s=0.3 if how == "time-out" else 20.0)
    executor.submit([held.work], results)
    held.wait_running()
    if how == "cancel":
        executor.cancel(*key_of(held.work))
    result = results.of(held.work)
    assert (result.outcome, result.retryable) == ("timed_out" if how == "time-out" else "cancelled", True)
    assert executor.free() == executor.slots == 1


@threads_only
def test_the_soft_time_out_is_raised_in_python_code(rig: ThreadRig, results: Results) -> None:
    executor = rig.executor()
    held = rig.hold("spin", target={"soft_timeout_s": 0.2})
    executor.submit([held.work], results)
    held.wait_running()
    result = results.of(held.work)
    assert (result.outcome, result.error and result.error["class"]) == ("timed_out", "soft_timeout")


@threads_only
def test_what_can_not_be_stopped_is_given_up_and_not_retried_and_bounded(
    rig: ThreadRig, results: Results, wait_for: Any
) -> None:
    executor = rig.executor()
    given_up = [rig.hold(timeout_s=0.1) for _ in range(2)]
    for held in given_up:
        executor.submit([held.work], results)
        held.wait_running()
        result = results.of(held.work)
        assert (result.outcome, result.retryable) == ("timed_out", False)
        assert result.error and "goes on" in result.error["message"]
    assert executor.free() == 0
    executor.submit([waits := rig.work("ok")], results)
    given_up[0].release()  # its thread ends, and somebody else may run
    assert results.of(waits).outcome == "succeeded"
    assert results.times[key_of(given_up[0].work)] == 1
    wait_for(lambda: executor.free() == 1)


@threads_only
def test_an_interrupt_that_comes_too_late_leaves_no_trace(rig: ThreadRig, results: Results) -> None:
    """Neither in the next work nor in the interpreter, whose flag for it would stop all code that is traced."""
    executor = rig.executor()
    for how in ("soft", "cancel", "none"):
        held = rig.hold(target={"soft_timeout_s": 0.1} if how == "soft" else {})
        executor.submit([held.work], results)
        held.wait_running()
        run = next(iter(executor._running.values()))
        if how == "soft":  # told while it waits in C code, so it hears of it only when that ends
            wait_until(partial(getattr, run, "_soft_told"))
        elif how == "cancel":
            executor.cancel(*key_of(held.work))
        held.release()
        results.of(held.work)
    assert counted(lambda: sum(range(10)))[0] == 45


@both
def test_progress_is_told_bounded_and_the_latest_counts(
    rig: PythonRig, running: Callable[[Any], Any], results: Results
) -> None:
    told: list[tuple[Key, Any]] = []
    executor = rig.executor(progress=lambda key, value: told.append((key, value)))
    executor.submit([work := rig.work("tell")], results)
    assert results.of(work).result == "told"
    assert [value for _, value in told[:3]] == [{"done": 0}, {"done": 1}, {"done": 2}]
    assert told[3][1]["truncated"] is True
    assert {key for key, _ in told} == {key_of(work)}


def test_each_thread_works_in_the_schema_of_its_own_tenant(
    conn: psycopg.Connection[Any], acme: Tenant, globex: Tenant, running: Callable[[Any], Any], results: Results
) -> None:
    """Many tasks of two tenants at once, and a failing one in between: none sees the other's schema."""
    before = connections(conn)
    executor = running(
        ThreadExecutor(registry=REGISTRY | sample_celery.REGISTRY, threads=8, setup=f"{__name__}:nothing")
    )
    works = [
        make_work(
            "python", {"task": "fail" if number % 7 == 3 else "schema"}, payload=None, tenant_id=tenant.pk,
            tenant_slug=tenant.slug, tenant_schema=tenant.schema_name,
        )
        for number in range(80)
        for tenant in (acme, globex)
    ]  # fmt: skip
    executor.submit(works, results)
    for work, result in zip(works, results.all_of(works), strict=True):
        assert result.result == (None if work.target["task"] == "fail" else work.tenant_schema)
    wait_until(lambda: connections(conn) <= before, "each thread closed its own")


def connections(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()").fetchone()
    assert row
    return int(row[0])


def nothing() -> None:
    """A setup that has nothing to do: this process has Django already."""
