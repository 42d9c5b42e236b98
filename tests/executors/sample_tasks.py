"""Callables that tests register, good and bad. Those that wait do it on the test's own socket."""

import itertools
import os
import signal
import socket
import sys
import threading
from typing import Any

from workers.executors.task import NoRetry, RetryAfter, SoftTimeout, TaskContext

prepared = False


def prepare() -> None:
    """A setup that each child runs first."""
    global prepared
    prepared = True


def is_prepared(payload: Any, context: TaskContext) -> bool:
    return prepared


def noop(payload: Any, context: TaskContext) -> None:
    return None


def echo(payload: Any, context: TaskContext) -> Any:
    assert context["run_key"] == context.run_key
    assert not context.cancel_requested()
    return {"payload": payload, "pid": os.getpid(), **context}


def hold(payload: Any, context: TaskContext) -> str:
    """Say on the socket at `payload["path"]` that it runs, and go on when told."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(payload["path"])
        line.sendall(str(os.getpid()).encode() + b"\n")
        if not line.recv(1):
            raise ConnectionError("nobody is there any more")
    return "released"


def hold_in_c(payload: Any, context: TaskContext) -> None:
    """Like `hold`, but for ever, deaf to signals, and inside C code, so that no other thread runs either."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(payload["path"])
        line.sendall(str(os.getpid()).encode() + b"\n")
        sum(itertools.repeat(0))


def tell(payload: Any, context: TaskContext) -> str:
    """Reports progress, some of it not JSON."""
    for done in range(3):
        context.report_progress({"done": done})
    try:
        context.report_progress(object())
    except ValueError:
        context.report_progress("x" * 10_000)
    return "told"


def spin(payload: Any, context: TaskContext) -> None:
    """Works for ever in Python code, and says on the socket that it does."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(payload["path"])
        line.sendall(str(os.getpid()).encode() + b"\n")
        for _ in itertools.repeat(0):
            continue


def ignore_soft_timeout(payload: Any, context: TaskContext) -> None:
    try:
        hold(payload, context)
    except SoftTimeout:
        threading.Event().wait()


def fail(payload: Any, context: TaskContext) -> None:
    raise ValueError("no such \x00 customer \ud800")


def fail_for_good(payload: Any, context: TaskContext) -> None:
    raise NoRetry("the account is closed")


def ask_for_pause(payload: Any, context: TaskContext) -> None:
    raise RetryAfter(120)


def run_out_of_memory(payload: Any, context: TaskContext) -> None:
    raise MemoryError


def leave(payload: Any, context: TaskContext) -> None:
    sys.exit(3)


def vanish(payload: Any, context: TaskContext) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def print_much(payload: Any, context: TaskContext) -> str:
    for _ in range(2_000):
        print("x" * 1_000)
        print("y" * 1_000, file=sys.stderr)
    return "printed"


def big(payload: Any, context: TaskContext) -> str:
    return "é" * 1_000_000


def not_json(payload: Any, context: TaskContext) -> Any:
    return object()


def nul(payload: Any, context: TaskContext) -> Any:
    return {"nul": "a\x00b", "written": "\\u0000", "digits": 2**80}


def fork_and_return(payload: Any, context: TaskContext) -> str:
    return "child" if os.fork() == 0 else "parent"


def write_garbage(payload: Any, context: TaskContext) -> str:
    """Write into every pipe of the process, the one to the parent too."""
    for fd in range(3, 64):
        try:
            os.write(fd, b"\xff" * 64)
        except OSError:
            continue
    return "written"
