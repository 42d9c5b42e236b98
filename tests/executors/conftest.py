"""Executors with real parts: a server on loopback, child processes. Nothing else is contacted."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executors.container_rig import ContainerRig
from tests.executors.rigs import HttpRig, PythonRig, Rig, ThreadRig
from tests.executors.rootfs import make_rootfs, why_not
from tests.executors.works import Results
from workers.executors.base import Executor


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


@pytest.fixture(scope="session")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system for containers; skips the test where they can't be run."""
    if reason := why_not():
        pytest.skip(f"no containers here: {reason}")
    return make_rootfs(tmp_path_factory.mktemp("rootfs"))


@pytest.fixture
def containers(running: Callable[[Any], Any], rootfs: Path, tmp_path: Path) -> Iterator[ContainerRig]:
    """Containers of runc, for real."""
    made = ContainerRig(running, rootfs, tmp_path / "runc")
    yield made
    made.close()


RIGS: dict[str, type[HttpRig] | type[PythonRig]] = {"http": HttpRig, "python": PythonRig, "threads": ThreadRig}


@pytest.fixture(params=[*RIGS, "container"])
def rig(request: pytest.FixtureRequest, running: Callable[[Any], Any]) -> Iterator[Rig]:
    """One kind of executor, with works for it that end well, badly or not at all."""
    if request.param == "container":
        yield request.getfixturevalue("containers")
        return
    made = RIGS[request.param](running)
    yield made
    made.close()
