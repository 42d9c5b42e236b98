"""The child process: runs callables one at a time in its main thread, while a second thread listens to the parent.

Started by `childpool.py` as a fresh interpreter. Whatever a callable raises, returns or prints ends here: the parent
gets bounded JSON. What can't be caught (a kill, a crash, a blocked thread) the parent sees in the shared page.
"""

import contextlib
import io
import mmap
import os
import signal
import sys
import threading
import time
from collections import deque
from datetime import datetime
from types import FrameType
from typing import Any

from workers.executors import frames
from workers.executors.bounds import bounded_json, from_json, to_json
from workers.executors.task import Cancelled, SoftTimeout, TaskContext
from workers.executors.task_call import Around, Task, around_tasks, call, failure, import_path, load, no_surroundings
from workers.executors.task_result import PROGRESS_MAX_BYTES

OUTPUT_MAX_BYTES = 65_536  # printed per run, to the worker's standard error; more is dropped
PR_SET_PDEATHSIG = 1


def main(read_fd: int, write_fd: int, page_fd: int, parent_pid: int) -> None:
    """Serve until the parent closes its end."""
    _die_with(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    page = memoryview(mmap.mmap(page_fd, frames.PAGE_BYTES)).cast("Q")
    source = os.fdopen(read_fd, "rb")
    kind, body = _read_frame(source)
    assert kind == frames.INIT
    init = from_json(body)
    output = BoundedOutput()
    sys.stdout = sys.stderr = output
    if init["setup"]:
        import_path(init["setup"])()
    tasks = {name: load(path) for name, path in init["registry"].items()}
    inbox = Inbox(page, write_fd)
    runner = Runner(page, tasks, inbox, output, around_tasks() if init["setup"] else no_surroundings)
    signal.signal(signal.SIGUSR1, runner.interrupt)
    threading.Thread(target=inbox.listen, args=(source,), name="inbox", daemon=True).start()
    inbox.send(frames.READY)
    while work := inbox.next():
        runner.run(work)


class Inbox:
    """Works that wait in this process. Taking one to run and giving one back exclude each other."""

    def __init__(self, page: memoryview, write_fd: int) -> None:
        self._page, self._write_fd = page, write_fd
        self._waiting: deque[list[Any]] = deque()  # lint: allow memory-has-a-bound: the slots of a child
        self._closed = False
        self._changed = threading.Condition()
        self._writing = threading.Lock()

    def next(self) -> list[Any] | None:
        """The next work, marked as started; None when the parent has gone."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            work = self._waiting.popleft()
            self._page[frames.STARTED_NS] = time.monotonic_ns()
            self._page[frames.LAST_STARTED] = work[0]
            return work

    def send(self, kind: int, body: bytes = b"") -> None:
        data = memoryview(frames.pack(kind, body))
        with self._writing:
            while data:
                data = data[os.write(self._write_fd, data) :]

    def listen(self, source: io.BufferedReader) -> None:
        """Runs in a thread of its own."""
        try:
            while True:
                kind, body = _read_frame(source)
                values = from_json(body)
                if kind == frames.WORKS:
                    with self._changed:
                        self._waiting.extend(values)
                        self._changed.notify()
                elif kind == frames.REVOKE:
                    self._give_back(set(values))
        except (EOFError, OSError):
            if self._page[frames.LAST_STARTED] != self._page[frames.LAST_FINISHED]:
                os._exit(1)  # nobody is there to hear how it ends, and another worker may start it again
            with self._changed:
                self._closed = True
                self._changed.notify()

    def _give_back(self, seqs: set[int]) -> None:
        with self._changed:
            gone = [work[0] for work in self._waiting if work[0] in seqs]
            kept = [work for work in self._waiting if work[0] not in seqs]
            self._waiting = deque(kept)  # lint: allow memory-has-a-bound: the slots of a child
        self.send(frames.REVOKED, to_json(gone))


class Runner:
    """Runs one work at a time and reports how it ended."""

    def __init__(
        self, page: memoryview, tasks: dict[str, Task | str], inbox: Inbox, output: "BoundedOutput", around: Around
    ) -> None:
        self._page, self._tasks, self._inbox, self._output, self._around = page, tasks, inbox, output, around
        self._soft_timeout: type[SoftTimeout] = SoftTimeout
        self._interruptible = False
        self._pid = os.getpid()

    def run(self, work: list[Any]) -> None:
        seq = work[0]
        began = time.time()
        self._output.begin()
        try:
            status, body = self._outcome(work)
        except (Cancelled, SoftTimeout) as late:  # the signal came while the outcome was being put together
            status, body = failure(late)
        if os.getpid() != self._pid:
            os._exit(0)  # the callable forked, and its copy came back from the call
        head = frames.DONE_HEAD.pack(seq, status, began, time.time())
        self._inbox.send(frames.DONE, head + body)
        self._page[frames.LAST_FINISHED] = seq

    def interrupt(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler: raises in the callable that the parent means, and only in that."""
        if self._interruptible and self._page[frames.INTERRUPT_SEQ] == self._page[frames.LAST_STARTED]:
            self._interruptible = False
            raise Cancelled if self._page[frames.INTERRUPT_WHY] == frames.CANCELLED else self._soft_timeout

    def _outcome(self, work: list[Any]) -> tuple[int, bytes]:
        seq, name, payload, run_key, attempt, nominal_at, deadline, tenant, execution_id, tenant_id, schema = work
        task = self._tasks.get(name, "no task of this name is registered")
        self._soft_timeout = getattr(task, "soft_timeout", SoftTimeout)
        context = TaskContext(
            run_key=run_key,
            attempt=attempt,
            nominal_at=None if nominal_at is None else datetime.fromisoformat(nominal_at),
            deadline=datetime.fromisoformat(deadline),
            tenant=tenant,
            execution_id=execution_id,
            cancel_requested=lambda: self._page[frames.INTERRUPT_SEQ] == seq,
            report_progress=lambda value: self._report(seq, value),
            tenant_id=tenant_id,
            schema=schema,
        )
        try:
            self._interruptible = True
            outcome = call(task, name, payload, context, self._around)
            self._interruptible = False
            return outcome
        except BaseException as error:  # the signal came on the way into the call or out of it
            self._interruptible = False
            return failure(error)

    def _report(self, seq: int, value: Any) -> None:
        """Tells the parent. Raises NotJson, in the callable, for what can't be told."""
        self._inbox.send(frames.PROGRESS, frames.SEQ.pack(seq) + bounded_json(value, PROGRESS_MAX_BYTES))


class BoundedOutput(io.TextIOBase):
    """Standard output and error of callables: so much per run goes to the worker's standard error."""

    def __init__(self) -> None:
        self._left = OUTPUT_MAX_BYTES

    def begin(self) -> None:
        self._left = OUTPUT_MAX_BYTES

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._left > 0:
            data = text[: self._left].encode(errors="replace")
            self._left -= len(data)
            with contextlib.suppress(OSError):
                os.write(2, data)
        return len(text)


def _read_frame(source: io.BufferedReader) -> tuple[int, bytes]:
    size, kind = frames.FRAME.unpack(_read(source, frames.FRAME.size))
    return kind, _read(source, size)


def _read(source: io.BufferedReader, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _die_with(parent_pid: int) -> None:
    """A child without its worker must not go on: its run will be started elsewhere. Linux; elsewhere EOF ends it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)
