"""Executors with real parts: a server on loopback, child processes. Nothing else is contacted."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.executors.receiver import Receiver
from tests.executors.rigs import HttpRig, PythonRig, Rig, ThreadRig
from tests.executors.works import Results
from workers.executors.base import Executor


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def results() -> Results:
    return Results()


@pytest.fixture
def running() -> Iterator[Callable[[Any], Any]]:
    """`running(executor)` starts it, and stops it after the test."""
    started: list[Executor] = []

    def start(executor: Executor) -> Executor:
        executor.start()
        started.append(executor)
        return executor

    yield start
    for executor in started:
        executor.stop(0)
        assert not executor.held()


RIGS: dict[str, type[HttpRig] | type[PythonRig]] = {"http": HttpRig, "python": PythonRig, "threads": ThreadRig}


@pytest.fixture(params=list(RIGS))
def rig(request: pytest.FixtureRequest, running: Callable[[Any], Any]) -> Iterator[Rig]:
    """One kind of executor, with works for it that end well, badly or not at all."""
    made = RIGS[request.param](running)
    yield made
    made.close()
