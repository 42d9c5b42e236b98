"""Child processes that end with their parent, and the ways they can refuse to start."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
POLL_S = 0.02

# Loaded before any fork: opening a library between fork and exec can hang on a lock that another thread held.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class ServiceError(RuntimeError):
    """A service cannot start or go on. The message is one line for the person who typed the command."""


def spawn(
    argv: Sequence[str | Path],
    *,
    log: Path,
    death_signal: signal.Signals,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    credentials: Mapping[str, Any] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process with its output appended to `log`; it gets `death_signal` when this thread or process ends.

    It gets a session of its own: a Ctrl-C in the terminal is the parent's to handle, in the right order.
    """
    parent = os.getpid()

    def before_exec() -> None:
        # After the change of user, which clears the death signal.
        if _LIBC is not None:
            _LIBC.prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
            if os.getppid() != parent:  # it died before we asked
                os._exit(1)

    with log.open("ab") as output:
        return subprocess.Popen(
            [str(part) for part in argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=before_exec,
            **(credentials or {}),
        )


def end(process: subprocess.Popen[bytes], *, steps: Sequence[tuple[signal.Signals, float]]) -> int:
    """Send each signal in turn and wait its number of seconds; SIGKILL is the last step. Returns the exit code."""
    for number, wait_s in steps:
        if process.poll() is not None:
            break
        process.send_signal(number)
        try:
            return process.wait(timeout=wait_s)
        except subprocess.TimeoutExpired:
            continue
    if process.poll() is None:
        process.kill()
    return process.wait()


def wait_until(condition: Callable[[], bool], *, timeout_s: float) -> bool:
    """Poll a condition of another process; False when it did not come true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
