"""The child process: runs callables one at a time in its main thread, while a second thread listens to the parent.

Started by `childpool.py` as a fresh interpreter. Whatever a callable raises, returns or prints ends here: the parent
gets bounded JSON. What can't be caught (a kill, a crash, a blocked thread) the parent sees in the shared page.
"""

import contextlib
import importlib
import io
import mmap
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from types import FrameType
from typing import Any

from workers.executors import frames
from workers.executors.bounds import NotJson, bounded_error, bounded_json, from_json, to_json
from workers.executors.task import Cancelled, NoRetry, RetryAfter, SoftTimeout, TaskContext

OUTPUT_MAX_BYTES = 65_536  # printed per run, to the worker's standard error; more is dropped
PR_SET_PDEATHSIG = 1

Task = Callable[..., Any]  # (payload, context)


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
        _import(init["setup"])()
    tasks = {name: _load(name, path) for name, path in init["registry"].items()}
    inbox = Inbox(page, write_fd)
    runner = Runner(page, tasks, inbox, output)
    signal.signal(signal.SIGUSR1, runner.interrupt)
    threading.Thread(target=inbox.listen, args=(source,), name="inbox", daemon=True).start()
    inbox.send(frames.READY)
    while work := inbox.next():
        runner.run(work)


class Inbox:
    """Works that wait in this process. Taking one to run and giving one back exclude each other."""

    def __init__(self, page: memoryview, write_fd: int) -> None:
        self._page, self._write_fd = page, write_fd
        self._waiting: deque[list[Any]] = deque()
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
            self._waiting = deque(work for work in self._waiting if work[0] not in seqs)
        self.send(frames.REVOKED, to_json(gone))


class Runner:
    """Runs one work at a time and reports how it ended."""

    def __init__(self, page: memoryview, tasks: dict[str, "Task | str"], inbox: Inbox, output: "BoundedOutput") -> None:
        self._page, self._tasks, self._inbox, self._output = page, tasks, inbox, output
        self._interruptible = False
        self._pid = os.getpid()

    def run(self, work: list[Any]) -> None:
        seq = work[0]
        began = time.time()
        self._output.begin()
        try:
            status, body = self._outcome(work)
        except (Cancelled, SoftTimeout) as late:  # the signal came while the outcome was being put together
            status, body = _failure(late)
        if os.getpid() != self._pid:
            os._exit(0)  # the callable forked, and its copy came back from the call
        head = frames.DONE_HEAD.pack(seq, status, began, time.time())
        self._inbox.send(frames.DONE, head + body)
        self._page[frames.LAST_FINISHED] = seq

    def interrupt(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler: raises in the callable that the parent means, and only in that."""
        if self._interruptible and self._page[frames.INTERRUPT_SEQ] == self._page[frames.LAST_STARTED]:
            self._interruptible = False
            raise Cancelled if self._page[frames.INTERRUPT_WHY] == frames.CANCELLED else SoftTimeout

    def _outcome(self, work: list[Any]) -> tuple[int, bytes]:
        seq, name, payload, run_key, attempt, nominal_at, deadline, tenant, execution_id = work
        try:
            task = self._tasks.get(name, "no task of this name is registered")
            if isinstance(task, str):
                return frames.FAILED_FOR_GOOD, to_json(bounded_error("unknown_task", f"{name}: {task}"))
            context = TaskContext(
                run_key=run_key,
                attempt=attempt,
                nominal_at=None if nominal_at is None else datetime.fromisoformat(nominal_at),
                deadline=datetime.fromisoformat(deadline),
                tenant=tenant,
                execution_id=execution_id,
                cancel_requested=lambda: self._page[frames.INTERRUPT_SEQ] == seq,
            )
            self._interruptible = True
            value = task(payload, context)
            self._interruptible = False
            return frames.SUCCEEDED, bounded_json(value)
        except BaseException as error:
            self._interruptible = False
            return _failure(error)


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


def _failure(error: BaseException) -> tuple[int, bytes]:
    status = frames.FAILED
    more: dict[str, Any] = {}
    match error:
        case Cancelled():
            return frames.CANCELLED, to_json(bounded_error("cancelled", "The run was cancelled."))
        case SoftTimeout():
            return frames.TIMED_OUT, to_json(bounded_error("soft_timeout", "The run reached its soft time-out."))
        case NotJson():
            return frames.FAILED_FOR_GOOD, to_json(bounded_error("bad_result", "The result is not JSON."))
        case NoRetry():
            status = frames.FAILED_FOR_GOOD
        case RetryAfter():
            more["retry_after_s"] = error.seconds
    return status, to_json(bounded_error(type(error).__name__, _text_of(error), where=_where(error), **more))


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _where(error: BaseException) -> str:
    """File, line and function of the last step; no values, so nothing secret."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    code = trace.tb_frame.f_code
    return f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} in {code.co_name}"[:200]


def _load(name: str, path: str) -> Task | str:
    try:
        task: Task = _import(path)
        return task
    except Exception as error:
        return f"its callable can't be imported ({type(error).__name__})"


def _import(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


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
