"""A worker's runtime around an executor that tests work by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import pytest

from tests.flow.hands import Hands
from tests.flow.running import QUEUES
from workers import runtime as runtime_module
from workers.executors.base import Executor
from workers.runtime import Runtime

Make = Callable[..., Runtime]


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def runtimes(database: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Starts runtimes with an executor of the test's own; they are stopped in the end."""
    monkeypatch.setattr(runtime_module, "WAIT_FOR_SLOT_S", 0.2)
    started: list[Runtime] = []

    def make(executor: Hands, pool: str = "python") -> Runtime:
        runtime = Runtime({pool: cast(Executor, executor)}, queues=lambda: QUEUES)
        runtime.start()
        started.append(runtime)
        return runtime

    yield make
    for runtime in started:
        if not runtime.draining:
            runtime.stop(0.1)
        runtime._line.close()


@pytest.fixture
def runtime(runtimes: Make, hands: Hands) -> Runtime:
    return runtimes(hands)
