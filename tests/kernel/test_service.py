"""The one loop under every service: it goes on, waits, backs off and stops, and no pass can end it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kernel import service as service_module
from kernel.clock import monotonic_s
from kernel.service import Loop, Pass
from tests.conftest import wait_until


class Scripted:
    """Answers what the test put in; blocks on nothing."""

    name = "scripted"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[float] = []
        self.closed = 0
        self.close_error: Exception | None = None

    def run_once(self) -> Pass:
        self.calls.append(monotonic_s())
        answer = self.answers.pop(0) if self.answers else Pass()
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Pass) else Pass()

    def close(self) -> None:
        self.closed += 1
        if self.close_error:
            raise self.close_error


@pytest.fixture
def loops() -> Iterator[list[Loop]]:
    made: list[Loop] = []
    yield made
    for loop in made:
        loop.stop()
        assert loop.join(10)


def run(loops: list[Loop], service: Scripted, **options: Any) -> Loop:
    loop = Loop(service, **options)
    loops.append(loop)
    loop.start()
    return loop


def test_a_full_pass_is_followed_by_another_at_once(loops: list[Loop]) -> None:
    service = Scripted(*[Pass({"n": 2}, full=True)] * 20)
    loop = run(loops, service, idle_s=3_600)
    wait_until(lambda: len(service.calls) == 21, "all of the backlog")
    wait_until(lambda: loop.passes == 21, "the last pass")
    assert loop.totals == {"n": 40}
    assert loop.errors == 0 and 0 < loop.cpu_s < 10


def test_a_short_pass_waits_until_it_is_woken(loops: list[Loop]) -> None:
    service = Scripted()
    loop = run(loops, service, idle_s=3_600)
    for number in range(1, 5):
        wait_until(lambda number=number: loop.passes == number, "a pass")  # type: ignore[misc]  # bound by default
        loop.wake()
    wait_until(lambda: loop.passes == 5, "the pass after the last wake")


def test_a_wake_during_a_pass_is_not_lost(loops: list[Loop]) -> None:
    """What came while the service was looking elsewhere is looked at at once."""
    in_pass, go_on = threading.Event(), threading.Event()

    class Slow(Scripted):
        def run_once(self) -> Pass:
            done = super().run_once()
            in_pass.set()
            assert go_on.wait(30)
            return done

    service = Slow()
    loop = run(loops, service, idle_s=3_600)
    assert in_pass.wait(30)
    loop.wake()
    go_on.set()
    wait_until(lambda: len(service.calls) >= 2, "the second pass")


def test_its_own_next_instant_bounds_the_wait(loops: list[Loop]) -> None:
    service = Scripted(Pass(wait_s=0.02), Pass(wait_s=-5), Pass(wait_s=0))
    run(loops, service, idle_s=3_600)
    wait_until(lambda: len(service.calls) == 4, "passes without a wake")


def test_a_far_instant_does_not_stretch_the_idle_time(loops: list[Loop]) -> None:
    service = Scripted(*[Pass(wait_s=3_600)] * 3)
    run(loops, service, idle_s=0.01)
    wait_until(lambda: len(service.calls) >= 4, "passes within the idle time")


def test_errors_are_counted_told_and_backed_off(loops: list[Loop], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float]] = []

    def delay(failures: int, *, base_s: float, factor: float, max_s: float) -> float:
        asked.append((failures, max_s))
        return 0.001

    monkeypatch.setattr(service_module, "delay_s", delay)
    told: list[Exception] = []
    faults = [RuntimeError("a"), ValueError("b"), KeyError("c")]
    service = Scripted(*faults, Pass({"n": 1}), RuntimeError("d"))
    loop = run(loops, service, idle_s=0.001, error_max_s=7.0, on_error=told.append)
    wait_until(lambda: loop.errors == 4 and loop.passes >= 2, "the errors and what came after them")
    assert asked == [(1, 7.0), (2, 7.0), (3, 7.0), (1, 7.0)], "a good pass begins anew"
    assert told[:3] == faults
    assert loop.totals == {"n": 1}


def test_an_error_really_waits_and_a_wake_cuts_it_short(loops: list[Loop]) -> None:
    service = Scripted(*[RuntimeError("again")] * 6)
    loop = run(loops, service, idle_s=0.001, error_max_s=3_600)
    wait_until(lambda: loop.errors == 3, "three errors")
    assert service.calls[2] - service.calls[0] >= 0.5, "0.2 s, then 0.4 s"
    for number in range(4, 7):
        loop.wake()
        wait_until(lambda number=number: loop.errors >= number, "the next try")  # type: ignore[misc]  # bound by default


def test_the_last_pass_is_known_and_an_error_is_none(loops: list[Loop]) -> None:
    """Whoever renews leases asks for it: a loop that only fails makes no progress."""
    service = Scripted(*[RuntimeError("no")] * 3)
    loop = run(loops, service, idle_s=0.001)
    made = loop.last_pass_at
    wait_until(lambda: loop.errors == 2, "errors")
    assert loop.last_pass_at == made and loop.lag_s > 0.05, "and says how far it is behind"
    loop.wake()
    wait_until(lambda: loop.passes > 0 or loop.wake(), "a pass")  # type: ignore[func-returns-value]  # wakes until then
    assert loop.last_pass_at > made
    assert Loop(service, idle_s=60.0).lag_s == 0, "its time has not come"


def test_stopping_ends_after_the_pass_and_closes_once(loops: list[Loop]) -> None:
    in_pass, go_on = threading.Event(), threading.Event()

    class Slow(Scripted):
        def run_once(self) -> Pass:
            in_pass.set()
            assert go_on.wait(30)
            return super().run_once()

    service = Slow(Pass(full=True))
    loop = run(loops, service)
    assert in_pass.wait(30)
    loop.stop()
    assert not loop.join(0.01) and service.closed == 0, "the work in hand is done first"
    go_on.set()
    assert loop.join(10)
    assert (len(service.calls), service.closed) == (1, 1)
    loop.stop()


def test_stopping_wakes_a_loop_that_waits(loops: list[Loop]) -> None:
    service = Scripted()
    loop = run(loops, service, idle_s=3_600)
    wait_until(lambda: loop.passes == 1, "the first pass")
    loop.stop()
    assert loop.join(10)


def test_a_loop_that_was_never_started_can_be_stopped() -> None:
    loop = Loop(Scripted())
    loop.stop()
    assert loop.join(0)


def test_a_close_that_fails_ends_the_loop_anyway(loops: list[Loop]) -> None:
    service = Scripted()
    service.close_error = RuntimeError("no")
    loop = run(loops, service)
    loop.stop()
    assert loop.join(10)
    assert service.closed == 1


def test_wakes_from_many_threads_do_no_harm(loops: list[Loop]) -> None:
    service = Scripted()
    loop = run(loops, service, idle_s=3_600)
    threads = [threading.Thread(target=lambda: [loop.wake() for _ in range(200)]) for _ in range(6)]  # type: ignore[func-returns-value]  # only called
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: loop.passes >= 2, "passes")
    assert loop.errors == 0
