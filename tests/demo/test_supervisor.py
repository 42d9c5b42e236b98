"""The supervisor with real processes."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo.supervisor import Child, Supervisor
from embedded.valkey import Valkey

WaitFor = Callable[..., object]

# Writes its pid, and what it was told, to its log.
PROGRAM = """
import os, signal, sys, threading
over = threading.Event()
def stop(number, frame):
    print("told to stop", flush=True)
    over.set()
signal.signal(signal.SIGTERM, stop if sys.argv[1] != "deaf" else signal.SIG_IGN)
print("pid", os.getpid(), flush=True)
if sys.argv[1] == "broken":
    sys.exit(3)
while not over.wait(0.05):
    pass
"""


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def supervisor(lines: list[str]) -> Iterator[Supervisor]:
    supervisor = Supervisor(say=lines.append)
    yield supervisor
    supervisor.stop()


@pytest.fixture
def child(tmp_path: Path) -> Callable[..., Child]:
    def make(name: str, mode: str = "good") -> Child:
        command = [sys.executable, "-c", PROGRAM, mode]
        return Child(name=name, command=command, environment=os.environ, log=tmp_path / f"{name}.log", cwd=tmp_path)

    return make


def looked(supervisor: Supervisor) -> bool:
    supervisor.look()
    return True


def pids(child: Child) -> list[int]:
    return [int(number) for number in re.findall(r"^pid (\d+)\n", child.log.read_text(), re.MULTILINE)]


def test_a_killed_child_is_started_again(
    supervisor: Supervisor, child: Callable[..., Child], lines: list[str], wait_for: WaitFor
) -> None:
    worker = child("worker")
    supervisor.add(worker, stop_s=5)
    wait_for(lambda: pids(worker), "the first start")
    os.kill(pids(worker)[0], signal.SIGKILL)
    wait_for(lambda: looked(supervisor) and len(pids(worker)) == 2, "the second start")
    assert lines == [f"worker ended; starting it again in 0.5 s (see {worker.log})"]


def test_a_child_that_cannot_stay_is_started_ever_less_often(
    supervisor: Supervisor, child: Callable[..., Child], lines: list[str], wait_for: WaitFor
) -> None:
    supervisor.add(child("beat", "broken"), stop_s=1)
    wait_for(lambda: looked(supervisor) and len(lines) == 3, "three ends")
    assert [line.split(" again in ")[1].split(" s ")[0] for line in lines] == ["0.5", "1", "2"]


def test_a_killed_service_is_started_again_where_it_was(
    supervisor: Supervisor, lines: list[str], tmp_path: Path, wait_for: WaitFor
) -> None:
    broker = Valkey(tmp_path / "valkey")
    supervisor.add(broker, stop_s=5)
    url = broker.url
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)
    wait_for(lambda: looked(supervisor) and lines and broker.alive(), "the broker to be back")
    assert broker.url == url


def test_children_stop_in_reverse_order(
    supervisor: Supervisor, child: Callable[..., Child], tmp_path: Path, wait_for: WaitFor
) -> None:
    parts = [child(name) for name in ("worker", "dispatcher", "web")]
    for part in parts:
        supervisor.add(part, stop_s=5)
    wait_for(lambda: all(pids(part) for part in parts), "all to run")
    supervisor.stop(first=("dispatcher", "web"))
    ends = [part.log.stat().st_mtime_ns for part in parts]
    assert ends[0] == max(ends), "the worker ends after those who give it work"
    assert not any(part.alive() for part in parts)


def test_a_deaf_child_is_killed_in_time(supervisor: Supervisor, child: Callable[..., Child], wait_for: WaitFor) -> None:
    deaf = child("worker", "deaf")
    supervisor.add(deaf, stop_s=0.3)
    wait_for(lambda: pids(deaf), "its start")
    began = time.monotonic()
    supervisor.stop()
    assert not deaf.alive()
    assert time.monotonic() - began < 5
