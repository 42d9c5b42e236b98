"""The Python executor's other form: callables in threads of the worker process, for those that mostly wait.

Cheaper than processes, and softer: a thread can't be killed. At a time-out or a cancel an exception is raised inside
the callable; what does not heed it within the grace period is given up. Its attempt ends, and its thread goes on until
the callable returns: that is why such a time-out is not retried (two tries of one run would be alive at once). Twice
as many threads may be given up as there are slots; then the executor takes nothing more and says so.
"""

import ctypes
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from kernel.clock import monotonic_s, utc_now
from workers.executors import frames
from workers.executors.base import (
    Done,
    Held,
    Key,
    Ledger,
    Outcome,
    Progress,
    Result,
    Work,
    cancelled,
    ended,
    no_progress,
    returned,
)
from workers.executors.bounds import NotJson, bounded_error, bounded_json, from_json, to_json
from workers.executors.task import Cancelled, SoftTimeout, TaskContext
from workers.executors.task_call import Around, Task, around_tasks, call, failure, import_path, load, no_surroundings
from workers.executors.task_result import PROGRESS_MAX_BYTES, result_of

log = logging.getLogger(__name__)

DEFAULT_THREADS = 20
GRACE_S = 1.0  # between raising an exception in a callable and giving it up


class TimeLimit(BaseException):
    """Raised inside the callable at its hard time-out."""


class ThreadExecutor:
    """Runs works of kind `python` in threads. See `base.Executor` for the contract of its methods.

    `registry` and `setup` are those of `PythonExecutor`; both are used in this process.
    """

    def __init__(
        self,
        *,
        registry: Mapping[str, str],
        threads: int = DEFAULT_THREADS,
        setup: str | None = None,
        clock: Callable[[], datetime] = utc_now,
        progress: Progress = no_progress,
    ) -> None:
        self._registry, self._setup, self._count = dict(registry), setup, threads
        self._clock, self._progress = clock, progress
        self._given_up_max = 2 * threads
        self._ledger = Ledger(threads)
        self._tasks: dict[str, Task | str] = {}
        self._around: Around = no_surroundings
        self._waiting: deque[Held] = deque()  # lint: allow memory-has-a-bound: at most one for each slot
        self._running: dict[Held, _Run] = {}
        self._given_up: set[_Run] = set()
        self._changed = threading.Condition()  # what the watcher looks at
        self._look_at_s = float("inf")  # when the watcher looks by itself; monotonic
        self._ending = False
        self._watcher = threading.Thread(target=self._watch, name="python threads", daemon=True)

    @property
    def slots(self) -> int:
        return self._ledger.slots

    def start(self) -> None:
        if self._setup:
            import_path(self._setup)()
            self._around = around_tasks()
        self._tasks = {name: load(path) for name, path in self._registry.items()}
        self._watcher.start()

    def submit(self, works: Sequence[Work], done: Done) -> None:
        entries = self._ledger.take(works, done, self._clock)
        with self._changed:
            self._waiting.extend(entries)
        self._run_waiting()

    def cancel(self, execution_id: UUID, fence: int) -> bool:
        entry = self._ledger.find(execution_id, fence)
        if entry is None:
            return False
        with self._changed:
            entry.end_as = "cancelled"
            waits = entry in self._waiting
            if waits:
                self._waiting.remove(entry)
            elif run := self._running.get(entry):
                run.interrupt(Cancelled)
            self._changed.notify_all()
        if waits:
            self._end_as(entry, "cancelled")
        return True

    def held(self) -> set[Key]:
        return self._ledger.keys()

    def free(self) -> int:
        return 0 if len(self._given_up) >= self._given_up_max else self._ledger.free()

    def stop(self, grace_s: float) -> None:
        self._ledger.close()
        with self._changed:
            waiting, self._waiting = list(self._waiting), deque()  # lint: allow memory-has-a-bound: empty
        for entry in waiting:
            self._end_as(entry, "returned")
        self._ledger.wait_empty(grace_s)
        with self._changed:
            self._ending = True
            for entry, run in self._running.items():
                entry.end_as = entry.end_as or "returned"
                run.interrupt(Cancelled)
            self._changed.notify_all()
        self._ledger.wait_empty(GRACE_S)
        for entry in self._ledger.entries():
            self._end_as(entry, "returned")
        if self._watcher.is_alive():
            self._watcher.join(GRACE_S)

    def _run_waiting(self) -> None:
        """Starts a thread for each work that a slot is free for. A thread costs less than what it is started for."""
        with self._changed:
            while self._waiting and len(self._running) < self._count and len(self._given_up) < self._given_up_max:
                entry = self._waiting.popleft()
                entry.started_at = self._clock()
                run = self._running[entry] = _Run(entry)
                run.thread = threading.Thread(target=partial(self._serve, run), name="python task", daemon=True)
                run.thread.start()
                self._watch_from(run)
            if self._ending:
                self._changed.notify_all()

    def _watch_from(self, run: "_Run") -> None:
        """Wakes the watcher when it would look too late for this one. With the lock."""
        now_s = monotonic_s()
        if now_s + run.next_look_s(now_s) < self._look_at_s:
            self._changed.notify_all()

    # In the thread of one work.

    def _serve(self, run: "_Run") -> None:
        work = run.entry.work
        try:
            body = self._outcome(run)
        except BaseException as late:  # the exception came while the outcome was being put together
            body = failure(late)
        run.close()
        with self._changed:
            given_up = run in self._given_up
            self._given_up.discard(run)
            self._running.pop(run.entry, None)
        if given_up:
            log.warning("execution %s: its callable returned after it was given up", work.execution_id)
        else:
            self._ledger.end(run.entry, self._judge(run, *body))
        self._run_waiting()

    def _outcome(self, run: "_Run") -> tuple[int, bytes]:
        work = run.entry.work
        name = work.target.get("task")
        task = self._tasks.get(str(name), "no task of this name is registered")
        try:
            payload = from_json(to_json(work.payload))  # its own copy, as in a child process
        except NotJson:
            error = bounded_error("bad_payload", "The payload can't be handed to a task.")
            return frames.FAILED_FOR_GOOD, to_json(error)
        context = TaskContext(
            run_key=work.run_key,
            attempt=work.attempt,
            nominal_at=work.nominal_at,
            deadline=work.deadline,
            tenant=work.tenant_slug,
            execution_id=str(work.execution_id),
            cancel_requested=lambda: run.interrupted_s is not None,
            report_progress=lambda value: self._report(run, value),
            tenant_id=work.tenant_id,
            schema=work.tenant_schema,
        )
        run.soft_timeout = getattr(task, "soft_timeout", SoftTimeout)
        try:
            run.open()
            outcome = call(task, str(name), payload, context, self._around)
            run.close()
            return outcome
        except BaseException as error:
            run.close()
            return failure(error)

    def _report(self, run: "_Run", value: Any) -> None:
        work = run.entry.work
        self._progress((work.execution_id, work.fence), from_json(bounded_json(value, PROGRESS_MAX_BYTES)))

    def _judge(self, run: "_Run", status: int, body: bytes) -> Result:
        """Its result, unless it ended because it was told to."""
        assert run.entry.started_at is not None
        result = result_of(status, from_json(body), run.entry.started_at, self._clock())
        if run.why is not None and (status == frames.CANCELLED or _class_of(result) == TimeLimit.__name__):
            return self._early_result(run.entry, run.why)
        return result

    # In the watcher's thread.

    def _watch(self) -> None:
        with self._changed:
            while not (self._ending and not self._running):
                now_s = monotonic_s()
                for run in list(self._running.values()):
                    if run.is_overdue(now_s):
                        self._give_up(run)
                wait_s = min((run.next_look_s(now_s) for run in self._running.values()), default=None)
                self._look_at_s = float("inf") if wait_s is None else now_s + wait_s
                self._changed.wait(wait_s)

    def _give_up(self, run: "_Run") -> None:
        """Its attempt ends, its thread does not."""
        entry = run.entry
        self._running.pop(entry, None)
        self._given_up.add(run)
        log.error(
            "execution %s: its callable heeds neither time-out nor cancel; %d of at most %d threads are lost to such",
            entry.work.execution_id, len(self._given_up), self._given_up_max,
        )  # fmt: skip
        result = self._early_result(entry, run.why or "timed_out", given_up=True)
        # Not under the lock, and not in this thread: the receiver of results may take its time.
        threading.Thread(target=self._end_given_up, args=(entry, result), daemon=True).start()

    def _end_given_up(self, entry: Held, result: Result) -> None:
        self._ledger.end(entry, result)
        self._run_waiting()

    def _end_as(self, entry: Held, outcome: Outcome) -> None:
        self._ledger.end(entry, self._early_result(entry, outcome))

    def _early_result(self, entry: Held, outcome: Outcome, *, given_up: bool = False) -> Result:
        now = self._clock()
        if outcome == "returned":
            return returned(now, entry.started_at)
        if outcome == "timed_out":
            message = f"It ran for more than {entry.work.timeout_s:g} s and was stopped."
            if given_up:
                message = f"It ran for more than {entry.work.timeout_s:g} s; its thread can't be stopped and goes on."
            error = bounded_error("timeout", message)
            return ended("timed_out", now, entry.started_at, error=error, retryable=not given_up)
        return cancelled(now, entry.started_at)


class _Swallowed(BaseException):
    """Takes the place of an exception that was raised in a thread too late."""


def _swallow_pending() -> None:
    """Nothing that was raised in this thread from outside is left.

    Taking an exception back (with None) would leave the interpreter's flag for it set for ever: every thread would look
    for it at every step, and code that is traced would not go on at all (CPython 3.11). Only delivery resets it.
    """
    try:
        _raise_in(threading.get_ident(), _Swallowed)
        while True:
            continue
    except _Swallowed:
        return


def _raise_in(thread_id: int, error: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(error))


class _Run:
    """A work in its thread. Interrupts hit it only while its callable runs."""

    def __init__(self, entry: Held) -> None:
        self.entry = entry
        self.thread: threading.Thread | None = None
        self.soft_timeout: type[SoftTimeout] = SoftTimeout
        self.why: Outcome | None = None  # why it was told to end
        self.interrupted_s: float | None = None  # when; monotonic
        self._began_s = monotonic_s()
        self._soft_told = False
        self._open = False
        self._lock = threading.Lock()

    def open(self) -> None:
        with self._lock:
            self._open = True
            if self.interrupted_s is not None:  # a cancel that was quicker
                raise Cancelled

    def close(self) -> None:
        """No interrupt hits it from here on. In its own thread."""
        with self._lock:
            was_open, self._open = self._open, False
        if was_open and (self._soft_told or self.interrupted_s is not None):
            _swallow_pending()

    def interrupt(self, error: type[BaseException]) -> None:
        if self.interrupted_s is None:
            self.why = "timed_out" if error is TimeLimit else self.entry.end_as
            self.interrupted_s = monotonic_s()
            self._raise(error)

    def is_overdue(self, now_s: float) -> bool:
        """Tells it what is due at `now_s`; true when it heeded nothing for the grace period."""
        ran_s = now_s - self._began_s
        if self.interrupted_s is not None:
            return now_s - self.interrupted_s >= GRACE_S
        if ran_s >= self.entry.work.timeout_s:
            self.interrupt(TimeLimit)
        elif not self._soft_told and ran_s >= self._soft_s():
            self._soft_told = True
            self._raise(self.soft_timeout)
        return False

    def next_look_s(self, now_s: float) -> float:
        """Seconds until `is_overdue` has to be asked again."""
        if self.interrupted_s is not None:
            return max(0.0, self.interrupted_s + GRACE_S - now_s)
        limits_s = [self.entry.work.timeout_s] + ([] if self._soft_told else [self._soft_s()])
        return max(0.0, self._began_s + min(limits_s) - now_s)

    def _soft_s(self) -> float:
        soft_s = self.entry.work.target.get("soft_timeout_s")
        return float(soft_s) if isinstance(soft_s, int | float) and soft_s > 0 else float("inf")

    def _raise(self, error: type[BaseException]) -> None:
        """Python raises it in that thread when it runs bytecode again; not while it waits in C code."""
        with self._lock:
            if self._open and self.thread is not None and self.thread.ident is not None:
                _raise_in(self.thread.ident, error)


def _class_of(result: Result) -> str:
    return str((result.error or {}).get("class", ""))
