"""Starts processes of the platform in milliseconds: forked from one that has imported everything and done nothing.

They run the same entry points with the same environment as those that are started the long way, have no connection,
thread or lock of anybody else, and are children of the test's process. On Linux; elsewhere `born` says None.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
ROOT = Path(__file__).resolve().parent.parent
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_nurseries: dict[tuple[tuple[str, str], ...], Nursery] = {}


class Born(subprocess.Popen[bytes]):
    """A process that somebody else began and that is ours now."""

    def __init__(self, pid: int, args: Sequence[str]) -> None:
        self.pid, self.args, self.returncode = pid, list(args), None
        self.stdin = self.stdout = self.stderr = None
        self._child_created, self._waitpid_lock = True, threading.Lock()
        self._sigint_wait_secs = 0.25


class Nursery:
    """The process that others are forked from. Its environment is theirs."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.nursery"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
            env=dict(environment),
        )  # fmt: skip

    def bear(self, command: Sequence[str], *, log: Path) -> Born:
        """Starts it: its output is appended to `log`, and SIGTERM comes to it when this process ends."""
        assert self._process.stdin is not None and self._process.stdout is not None
        wish = {"command": list(command), "log": str(log), "parent": os.getpid()}
        assert _LIBC is not None
        _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # whom it leaves behind comes to us
        try:
            self._process.stdin.write(json.dumps(wish).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if not answer:
            raise RuntimeError(f"the process that others are forked from has ended: {self._process.wait()}")
        return Born(int(answer), command)


def born(command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> Born | None:
    """A process of `python -m ...` or `python manage.py ...`, already running; None where that can't be done."""
    if _LIBC is None:
        return None
    key = tuple(sorted(environment.items()))
    if key not in _nurseries:
        _nurseries[key] = Nursery(environment)
    return _nurseries[key].bear(command, log=log)


def main() -> None:
    """Imports all that any process needs, then forks for each line of standard input, and ends with it."""
    import_all()
    for line in sys.stdin.buffer:
        wish = json.loads(line)
        sys.stdout.flush()
        middle = os.fork()
        if middle == 0:
            if os.fork():
                os._exit(0)
            become(wish)
            return
        os.waitpid(middle, 0)


def import_all() -> None:
    """Nothing in here opens a connection or starts a thread."""
    import django

    django.setup()
    from django.core.management import get_commands, load_command_class
    from django.urls import get_resolver

    load_command_class(get_commands()["dispatcher"], "dispatcher")
    import gunicorn.app.wsgiapp
    import gunicorn.workers.gthread  # noqa: F401

    import config.wsgi  # noqa: F401
    import workers.app
    import workers.beat

    _ = get_resolver().url_patterns
    workers.app.app.loader.import_default_modules()
    for name in ("celery.bin.celery", "celery.apps.worker", "celery.worker.worker", "celery.concurrency.thread"):
        __import__(name)
    assert threading.active_count() == 1


def become(wish: dict[str, Any]) -> None:
    """In the new process: what the system gives to one that is started, then its program."""
    assert _LIBC is not None
    os.setsid()
    while os.getppid() != wish["parent"]:  # the one in the middle is about to end; its death must not be ours
        os.sched_yield()
    _LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    _say(sys.stdout.buffer)
    nothing, log = os.open(os.devnull, os.O_RDONLY), os.open(wish["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for to, of in ((0, nothing), (1, log), (2, log)):
        os.dup2(of, to)
    run(wish["command"])


def _say(output: IO[bytes]) -> None:
    output.write(f"{os.getpid()}\n".encode())
    output.flush()


def run(command: Sequence[str]) -> None:
    """As the interpreter would: `command` is what follows it on the command line."""
    import runpy
    import warnings

    words = list(command)
    if words[:2] == ["-W", "ignore"]:
        warnings.simplefilter("ignore")
        words = words[2:]
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
