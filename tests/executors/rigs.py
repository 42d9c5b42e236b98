"""What the conformance tests need of each kind of executor: how to make one, and works that end in a known way."""

import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from tests.executors.receiver import Receiver
from tests.executors.works import WAIT_S, make_work
from workers.executors.base import Executor, Work
from workers.executors.http import HttpExecutor
from workers.executors.python import PythonExecutor
from workers.executors.threads import ThreadExecutor

MODULE = "tests.executors.sample_tasks"
REGISTRY = {
    name: f"{MODULE}:{name}"
    for name in (
        *("noop", "echo", "hold", "hold_in_c", "ignore_soft_timeout", "fail", "fail_for_good", "ask_for_pause"),
        *("tell", "spin"),
        *("run_out_of_memory", "leave", "vanish", "print_much", "big", "not_json", "nul", "fork_and_return"),
        *("write_garbage", "missing", "is_prepared"),
    )
} | {"no.module": "tests.executors.no_such_module:task"}


class Held(Protocol):
    """A work that runs until it is released."""

    work: Work

    def wait_running(self) -> None: ...
    def release(self) -> None: ...


class Rig(Protocol):
    ends_when_killed: str  # outcome of a work whose other side goes away
    many: int  # works that a test can afford

    def executor(self, parallel: int = 1) -> Any:
        """A started executor that runs so many works at a time; whatever it gets beyond that waits."""

    def work(self, how: str, **changes: Any) -> Work:
        """how: ok, fail, fail_for_good, ask_for_pause, dies, big."""

    def hold(self, **changes: Any) -> Held: ...
    def kill(self, executor: Any, held: Held) -> None: ...
    def hostile(self) -> list[Work]: ...
    def close(self) -> None: ...


class HttpHold:
    def __init__(self, receiver: Receiver, name: str, work: Work) -> None:
        self._receiver, self._name, self.work = receiver, name, work

    def wait_running(self) -> None:
        self._receiver.wait_held(self._name)

    def release(self) -> None:
        self._receiver.release(self._name)


class HttpRig:
    ends_when_killed = "failed"
    many = 300
    paths = {
        "ok": "/ok",
        "fail": "/status/500",
        "fail_for_good": "/status/500/Shardbeat-No-Retry:true",
        "ask_for_pause": "/status/503/Retry-After:120",
        "dies": "/close",
        "big": "/body/big",
    }

    def __init__(self, running: Callable[[Any], Any]) -> None:
        self._running, self._holds = running, 0
        self.receiver = Receiver()
        self.receiver.start()

    def executor(self, parallel: int = 1) -> Executor:
        started: Executor = self._running(HttpExecutor(slots=parallel))
        return started

    def work(self, how: str, **changes: Any) -> Work:
        return make_work("http", {"url": self.receiver.url(self.paths[how])}, **changes)

    def hold(self, **changes: Any) -> HttpHold:
        self._holds += 1
        name = str(self._holds)
        work = make_work("http", {"url": self.receiver.url(f"/hold/{name}")}, **changes)
        return HttpHold(self.receiver, name, work)

    def kill(self, executor: Any, held: Held) -> None:
        self.receiver.drop_all()

    def hostile(self) -> list[Work]:
        paths = ["/garbage", "/headers", "/short", "/body/binary", "/body/nul", "/body/escapes", "/encoded/wrong"]
        paths += ["/encoded/broken", "/endless/chunked", "/endless/overrun", "/endless/close", "/redirect/self"]
        return [make_work("http", {"url": self.receiver.url(path)}) for path in paths]

    def close(self) -> None:
        self.receiver.stop()


class TaskHold:
    def __init__(self, path: Path, task: str, **changes: Any) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._listener.settimeout(WAIT_S)
        self._line: socket.socket | None = None
        self.pid = 0
        target = {"task": task} | changes.pop("target", {})
        self.work = make_work("python", target, payload={"path": str(path)}, **changes)

    def wait_running(self) -> None:
        self._line, _ = self._listener.accept()
        self._line.settimeout(WAIT_S)
        self.pid = int(self._line.recv(64))

    def release(self) -> None:
        assert self._line
        self._line.sendall(b"x")

    def close(self) -> None:
        self._listener.close()
        if self._line:
            self._line.close()


class PythonRig:
    ends_when_killed = "lost"
    many = 300
    tasks = {"ok": "echo", "dies": "vanish"}

    def __init__(self, running: Callable[[Any], Any]) -> None:
        self._running = running
        self._folder = Path(tempfile.mkdtemp(prefix="sb"))  # short: a socket's path has 107 characters
        self._holds: list[TaskHold] = []

    def executor(self, parallel: int = 1, **options: Any) -> Any:
        return self._running(PythonExecutor(registry=options.pop("registry", REGISTRY), children=parallel, **options))

    def work(self, how: str, **changes: Any) -> Work:
        return make_work("python", {"task": self.tasks.get(how, how)}, **changes)

    def hold(self, task: str = "hold", **changes: Any) -> TaskHold:
        self._holds.append(held := TaskHold(self._folder / str(len(self._holds)), task, **changes))
        return held

    def kill(self, executor: Any, held: Held) -> None:
        assert isinstance(held, TaskHold)
        os.kill(held.pid, signal.SIGKILL)

    def hostile(self) -> list[Work]:
        how = ["run_out_of_memory", "leave", "vanish", "print_much", "not_json", "nul"]
        how += ["missing", "is_prepared", "no.module", "not registered"]
        bad_payload = make_work("python", {"task": "echo"}, payload={"half": "\ud800"})
        return [self.work(name) for name in how] + [bad_payload, make_work("python", {})]

    def close(self) -> None:
        for held in self._holds:
            held.close()
        shutil.rmtree(self._folder)


class ThreadRig(PythonRig):
    """The same callables in threads: one that dies takes its thread along, not the process."""

    ends_when_killed = "failed"
    tasks = {"ok": "echo", "dies": "leave"}

    def executor(self, parallel: int = 1, **options: Any) -> Any:
        return self._running(ThreadExecutor(registry=options.pop("registry", REGISTRY), threads=parallel, **options))

    def kill(self, executor: Any, held: Held) -> None:
        """Its connection breaks in the middle."""
        assert isinstance(held, TaskHold)
        held.close()

    def hostile(self) -> list[Work]:
        deadly = {"vanish", "is_prepared"}
        return [work for work in super().hostile() if work.target.get("task") not in deadly]
