"""One child process as its parent sees it: pipes, the shared page, what was sent, and how it is killed.

Not thread-safe: everything happens in the thread of the executor, which must outlive its children, since on Linux they
die with the thread that started them.
"""

import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from workers.executors import frames
from workers.executors.base import Held, Outcome, Work
from workers.executors.bounds import to_json

READ_BYTES = 262_144
_BOOT = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from workers.executors.child import main
main(*map(int, sys.argv[2:]))
"""


@dataclass(eq=False)
class Child:
    """A running child process. `in_flight` maps the numbers of the works it has to their entries, oldest first."""

    process: subprocess.Popen[bytes]
    read_fd: int
    write_fd: int
    page_map: mmap.mmap
    page: memoryview
    spawned_ns: int
    ready: bool = False
    exit_fd: int = -1  # readable when the process ended, also while something it started keeps the pipes open
    retiring: bool = False  # gets no more works and ends when it has none
    hung_up_ns: int | None = None  # monotonic
    revoking: bool = False  # works that wait behind a slow one were asked back
    long_seq: int = 0  # the work that was last seen to run for long
    verdict: tuple[int, Outcome] | None = None  # why it was killed: because of this work, which ends like this
    assigned: int = 0
    in_flight: dict[int, Held] = field(default_factory=dict)
    _received: bytearray = field(default_factory=bytearray)
    _unsent: bytearray = field(default_factory=bytearray)

    @property
    def pid(self) -> int:
        return self.process.pid

    def fds(self) -> list[int]:
        return [fd for fd in (self.read_fd, self.exit_fd, self.write_fd) if fd >= 0]

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def send_works(self, entries: Sequence[Held], encoded: Sequence[bytes]) -> None:
        """Queue works; `encoded` are their parts from `encode_work`."""
        parts = []
        for entry, part in zip(entries, encoded, strict=True):
            self.assigned += 1
            self.in_flight[self.assigned] = entry
            parts.append(b"[%d,%b]" % (self.assigned, part))
        self._send(frames.WORKS, b"[%b]" % b",".join(parts))

    def revoke(self, seqs: Iterable[int]) -> None:
        """Ask works back that have not started. The answer is a REVOKED frame with those that will not run."""
        if wanted := list(seqs):
            self._send(frames.REVOKE, to_json(wanted))

    def unfinished(self) -> int:
        """Number of the work that ran last: at the end of the child, the one that it took along if it is in flight."""
        last = self.page[frames.LAST_STARTED]
        if last <= self.assigned:
            return last
        return next(iter(self.in_flight), 0)  # something wrote over the page, so the oldest is the likely one

    def running(self) -> tuple[int, int] | None:
        """Number and start (monotonic, ns) of the work that runs; None when none does."""
        while True:
            seq, started_ns = self.page[frames.LAST_STARTED], self.page[frames.STARTED_NS]
            if seq == self.page[frames.LAST_STARTED]:
                break
        return None if seq == self.page[frames.LAST_FINISHED] else (seq, started_ns)

    def interrupt(self, seq: int, why: int) -> None:
        """Raise SoftTimeout (TIMED_OUT) or Cancelled (CANCELLED) inside the work `seq`, if it still runs."""
        self.page[frames.INTERRUPT_WHY] = why
        self.page[frames.INTERRUPT_SEQ] = seq
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)

    def kill(self, verdict: tuple[int, Outcome] | None = None) -> None:
        """End the child and what it started, at once. The end is seen when its pipe closes."""
        self.verdict = self.verdict or verdict
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def receive(self) -> tuple[list[tuple[int, bytes]], bool]:
        """Frames that came, and whether that was all: the child's end is closed. Raises BrokenFrame."""
        closed = False
        with suppress(BlockingIOError):
            data = os.read(self.read_fd, READ_BYTES)
            closed = not data
            self._received += data
        return frames.unpack(self._received), closed

    def flush(self) -> None:
        """Send what the pipe takes."""
        try:
            while self._unsent:
                del self._unsent[: os.write(self.write_fd, self._unsent)]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent.clear()

    def hang_up(self, now_ns: int) -> None:
        """Let it end by itself: it has nothing to do and gets nothing more. Only while nothing is unsent."""
        self.hung_up_ns = now_ns
        os.close(self.write_fd)
        self.write_fd = -1

    def close(self) -> None:
        """Reap a child that ended or was killed, and free what belongs to it."""
        self.kill()
        self.process.wait()
        for fd in self.fds():
            os.close(fd)
        self.page.release()
        self.page_map.close()

    def _send(self, kind: int, body: bytes) -> None:
        if self.hung_up_ns is not None:
            return
        self._unsent += frames.pack(kind, body)
        self.flush()


def spawn(registry: Mapping[str, str], setup: str | None) -> Child:
    """Start a fresh interpreter that serves the callables of `registry` (name -> "module:attribute").

    Never a fork of this process: it has threads, and its parent may be a pool process itself. Raises OSError.
    """
    theirs_read, ours_write = os.pipe()
    ours_read, theirs_write = os.pipe()
    page_fd = _shared_file()
    try:
        os.ftruncate(page_fd, frames.PAGE_BYTES)
        numbers = map(str, (theirs_read, theirs_write, page_fd, os.getpid()))
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps([os.path.abspath(path) for path in sys.path]), *numbers],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # what callables print goes through child.BoundedOutput
            pass_fds=(theirs_read, theirs_write, page_fd),
            start_new_session=True,  # a group of its own: killed as a whole, untouched by Ctrl-C
        )
        page_map = mmap.mmap(page_fd, frames.PAGE_BYTES)
    except BaseException:
        os.close(ours_read)
        os.close(ours_write)
        raise
    finally:
        for fd in (theirs_read, theirs_write, page_fd):
            os.close(fd)
    os.set_blocking(ours_read, False)
    os.set_blocking(ours_write, False)
    child = Child(process, ours_read, ours_write, page_map, memoryview(page_map).cast("Q"), time.monotonic_ns())
    with suppress(OSError, AttributeError):  # not everywhere; then the closed pipe has to tell
        child.exit_fd = os.pidfd_open(process.pid)
    child._send(frames.INIT, to_json({"registry": dict(registry), "setup": setup}))
    return child


def encode_work(work: Work) -> bytes:
    """A work's part of a WORKS frame, without number and brackets. Raises NotJson."""
    return to_json(
        [
            work.target.get("task"),
            work.payload,
            work.run_key,
            work.attempt,
            None if work.nominal_at is None else work.nominal_at.isoformat(),
            work.deadline.isoformat(),
            work.tenant_slug,
            str(work.execution_id),
            work.tenant_id,
            work.tenant_schema,
        ]
    )[1:-1]


def _shared_file() -> int:
    if sys.platform == "linux":
        return os.memfd_create("shardbeat-child")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
