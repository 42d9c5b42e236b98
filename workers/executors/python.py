"""The Python executor: callables that the operator registered, in child processes, one at a time in each.

A callable may block, leak, crash or never end, so the parent holds the limits: it sees in a shared page what each child
runs, and kills at the time-out. Works are sent ahead in batches, so that short ones cost no round trip; those that get
stuck behind a long one are asked back and go to another child. A work's time starts when its child starts it.
"""

import logging
import os
import selectors
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from kernel.clock import utc_now
from workers.executors import frames
from workers.executors.base import Done, Held, Key, Ledger, Outcome, Progress, Work, ended, no_progress, returned
from workers.executors.bounds import NotJson, bounded_error, from_json
from workers.executors.childpool import Child, encode_work, spawn
from workers.executors.pace import Pace
from workers.executors.python_results import result_of_frame, result_without_frame, verdict_on
from workers.executors.watch import CANCEL_GRACE_S, is_stuck, next_look_s, watch

log = logging.getLogger(__name__)

DEFAULT_CHILDREN = 2
DEPTH_MAX = 64  # works per child, the running one included
RECYCLE_AFTER = 10_000  # works, against leaks
START_FAILURES = 3  # in a row, until waiting works are handed back
START_BACKOFF_MAX_S = 30.0
STOP_S = 5.0  # for children to be gone, after the grace period
# A work that got no child is returned this long before its time-out could pass its deadline, but never sooner than
# after PATIENCE_S.
MARGIN_S = 5.0
PATIENCE_S = 1.0


class PythonExecutor:
    """Runs works of kind `python`. See `base.Executor` for the contract of its methods.

    `registry` maps task names to "module:attribute"; `setup` names a callable that each child runs first (for example
    to load Django). A target is {"task": name, "soft_timeout_s"?: seconds}.
    """

    def __init__(
        self,
        *,
        registry: Mapping[str, str],
        children: int = DEFAULT_CHILDREN,
        depth_max: int = DEPTH_MAX,
        setup: str | None = None,
        recycle_after: int = RECYCLE_AFTER,
        clock: Callable[[], datetime] = utc_now,
        progress: Progress = no_progress,
    ) -> None:
        self._progress = progress
        self._registry, self._setup, self._count = dict(registry), setup, children
        self._pace = Pace(depth_max)
        self._recycle_after = recycle_after
        self._clock = clock
        self._ledger = Ledger(children * self._pace.depth)
        self._commands: deque[Callable[[], None]] = deque()  # lint: allow memory-has-a-bound: a few for each slot
        self._wake_read, self._wake_write = -1, -1
        self._thread = threading.Thread(target=self._serve, name="python executor", daemon=True)
        self._children: list[Child] = []
        self._waiting: deque[Held] = deque()  # lint: allow memory-has-a-bound: at most one for each slot
        self._start_failures, self._next_spawn_ns, self._next_late_ns = 0, 0, 0
        self._stopping = self._ending = False

    @property
    def slots(self) -> int:
        """How many works this executor should hold now: many short ones, or one per child while they are long."""
        return self._ledger.slots

    def start(self) -> None:
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._thread.start()

    def submit(self, works: Sequence[Work], done: Done) -> None:
        entries = self._ledger.take(works, done, self._clock)
        if entries:
            self._command(lambda: self._accept(entries))

    def cancel(self, execution_id: UUID, fence: int) -> bool:
        entry = self._ledger.find(execution_id, fence)
        if entry is None:
            return False
        self._command(lambda: self._cancel(entry))
        return True

    def held(self) -> set[Key]:
        return self._ledger.keys()

    def free(self) -> int:
        return 0 if self._start_failures else self._ledger.free()

    def child_pids(self) -> list[int]:
        """The processes that are ready to run works, for operators and for tests."""
        return [child.pid for child in list(self._children) if child.ready]

    def stop(self, grace_s: float) -> None:
        self._ledger.close()
        if self._thread.is_alive():
            self._command(self._begin_stop)
            self._ledger.wait_empty(grace_s)
            self._command(self._end_children)
            self._thread.join(STOP_S)
        for entry in self._ledger.entries():
            self._ledger.end(entry, returned(self._clock(), entry.started_at))

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        try:
            os.write(self._wake_write, b"x")
        except OSError:
            return  # the pipe is full, so it will wake; or it is closed, and `stop` ends what is left

    # Everything below runs in the executor's thread.

    def _serve(self) -> None:
        with selectors.DefaultSelector() as self._selector:
            self._selector.register(self._wake_read, selectors.EVENT_READ)
            try:
                while not self._ending or self._children:
                    self._spawn_missing()
                    self._hear(self._selector.select(self._pause_s()))
                    now_ns = time.monotonic_ns()
                    for child in self._children:
                        watch(child, now_ns)
                    self._adapt()
                    self._feed(now_ns)
                    for child in self._children:
                        if child.has_unsent:
                            self._flush(child)
            finally:
                self._ledger.close()
                for child in self._children:
                    child.close()
                os.close(self._wake_read)
                os.close(self._wake_write)
                for entry in self._ledger.entries():  # none, unless this thread failed
                    self._end_as(entry, "returned")

    def _hear(self, events: Iterable[tuple[selectors.SelectorKey, int]]) -> None:
        for key, _ in events:
            if key.data is None:
                os.read(self._wake_read, 4_096)
                while self._commands:
                    self._commands.popleft()()
                continue
            child, handle = key.data
            if child in self._children:  # an event before this one may have buried it
                handle(child)

    def _pause_s(self) -> float | None:
        """Seconds until something has to be done that no pipe tells of."""
        now_ns = time.monotonic_ns()
        pauses = [next_look_s(child, now_ns) for child in self._children]
        if self._missing():
            pauses.append((self._next_spawn_ns - now_ns) / 1e9)
        if self._waiting:
            pauses.append(PATIENCE_S)
        pause_s = min(pauses, default=float("inf"))
        return None if pause_s == float("inf") else max(0.0, pause_s)

    # -- children ---------------------------------------------------------------------------------------------------

    def _missing(self) -> int:
        return 0 if self._stopping else self._count - sum(not child.retiring for child in self._children)

    def _spawn_missing(self) -> None:
        if time.monotonic_ns() < self._next_spawn_ns:
            return
        for _ in range(self._missing()):
            try:
                child = spawn(self._registry, self._setup)
            except OSError:
                log.exception("no child process could be started")
                self._note_start_failure()
                return
            self._children.append(child)
            self._selector.register(child.read_fd, selectors.EVENT_READ, (child, self._listen))
            if child.exit_fd >= 0:
                self._selector.register(child.exit_fd, selectors.EVENT_READ, (child, self._hear_last))

    def _listen(self, child: Child) -> bool:
        """Handle what came from the child; false when nothing more will come now."""
        try:
            received, closed = child.receive()
            for kind, body in received:
                if kind == frames.DONE:
                    seq, result = result_of_frame(body)
                    entry = child.in_flight.pop(seq)
                    self._pace.saw((result.finished_at - result.started_at).total_seconds())
                    self._ledger.end(entry, result)
                elif kind == frames.PROGRESS:
                    (seq,) = frames.SEQ.unpack_from(body)
                    work = child.in_flight[seq].work
                    self._progress((work.execution_id, work.fence), from_json(body[frames.SEQ.size :]))
                elif kind == frames.REVOKED:
                    child.revoking = False
                    self._requeue([child.in_flight.pop(seq) for seq in from_json(body)])
                else:
                    child.ready = True
                    self._start_failures = 0
        except (ValueError, KeyError, TypeError, AttributeError, struct.error):
            log.error("child process %d wrote what is no frame, so it is killed", child.pid)
            received, closed = [], True
        if closed:
            self._bury(child)
        return bool(received) and not closed

    def _hear_last(self, child: Child) -> None:
        """The process ended: read what it wrote before, without waiting for others that hold its pipe open."""
        while self._listen(child):
            continue
        if child in self._children:
            self._bury(child)

    def _flush(self, child: Child) -> None:
        """Send what the pipe takes, and come back when it takes more."""
        child.flush()
        registered = child.write_fd in self._selector.get_map()
        if child.has_unsent and not registered:
            self._selector.register(child.write_fd, selectors.EVENT_WRITE, (child, self._flush))
        elif registered and not child.has_unsent:
            self._selector.unregister(child.write_fd)

    def _bury(self, child: Child) -> None:
        """The child ended. What it ran ends with it, what only waited in it moves on."""
        self._children.remove(child)
        for fd in child.fds():
            if fd in self._selector.get_map():
                self._selector.unregister(fd)
        last, started_ns = child.unfinished(), child.page[frames.STARTED_NS]
        victim = child.in_flight.pop(last, None)
        child.close()
        if not child.ready and not self._ending:
            log.error("a child process could not start (exit status %s)", child.process.returncode)
            self._note_start_failure()
        if victim is not None:
            ran_s = min(max(time.monotonic_ns() - started_ns, 0) / 1e9, victim.work.timeout_s + CANCEL_GRACE_S)
            self._pace.saw(ran_s)
            victim.started_at = self._clock() - timedelta(seconds=ran_s)
            self._end_as(victim, "returned" if self._ending else verdict_on(last, child))
        self._requeue(list(child.in_flight.values()))

    def _note_start_failure(self) -> None:
        self._start_failures += 1
        pause_s = min(START_BACKOFF_MAX_S, 0.1 * 2 ** min(self._start_failures, 10))
        self._next_spawn_ns = time.monotonic_ns() + int(pause_s * 1e9)
        if self._start_failures >= START_FAILURES and not any(child.ready for child in self._children):
            self._return_waiting()

    def _begin_stop(self) -> None:
        self._stopping = True
        self._return_waiting()
        for child in self._children:
            child.revoke(child.in_flight)
            child.retiring = True

    def _end_children(self) -> None:
        self._ending = True
        for child in self._children:
            if child.in_flight or not child.ready:
                child.kill()

    # -- works ------------------------------------------------------------------------------------------------------

    def _accept(self, entries: list[Held]) -> None:
        self._waiting.extend(entries)
        if self._stopping:
            self._return_waiting()

    def _adapt(self) -> None:
        """Room for what is worth a moment, and in a child with a long work for nothing else."""
        long = sum(child.long_seq in child.in_flight for child in self._children if not child.retiring)
        self._ledger.slots = max(0, self._count - long) * self._pace.depth + min(long, self._count)

    def _feed(self, now_ns: int) -> None:
        """Share what waits among children that have room, in batches that should be done soon."""
        open_children = [child for child in self._children if self._has_room(child, now_ns)] if self._waiting else []
        for index, child in enumerate(open_children):
            share = -(-len(self._waiting) // (len(open_children) - index))
            self._send(child, min(share, self._pace.depth - len(child.in_flight)))
        if self._waiting and now_ns >= self._next_late_ns:
            self._next_late_ns = now_ns + int(PATIENCE_S * 1e9)
            self._return_late(now_ns)

    def _has_room(self, child: Child, now_ns: int) -> bool:
        if not child.ready or child.retiring or child.verdict or child.revoking or child.has_unsent:
            return False
        return not child.in_flight or (len(child.in_flight) <= self._pace.depth // 2 and not is_stuck(child, now_ns))

    def _send(self, child: Child, count: int) -> None:
        entries: list[Held] = []
        encoded: list[bytes] = []
        while self._waiting and len(entries) < count:
            entry = self._waiting.popleft()
            try:
                encoded.append(encode_work(entry.work))
                entries.append(entry)
            except NotJson:
                error = bounded_error("bad_payload", "The payload can't be handed to a task.")
                self._ledger.end(entry, ended("failed", self._clock(), error=error, retryable=False))
        if entries:
            child.send_works(entries, encoded)
            child.retiring = child.assigned >= self._recycle_after

    def _requeue(self, entries: list[Held]) -> None:
        """Works that did not start: to the head of the queue, or ended when somebody asked for that meanwhile."""
        for entry in reversed(entries):
            if entry.end_as or self._stopping:
                self._end_as(entry, entry.end_as or "returned")
            else:
                self._waiting.appendleft(entry)

    def _cancel(self, entry: Held) -> None:
        entry.end_as = "cancelled"
        if entry in self._waiting:
            self._waiting.remove(entry)
            self._end_as(entry, "cancelled")
            return
        for child in self._children:
            # The answer names it unless it started; then `watch` stops it.
            child.revoke(seq for seq, held in child.in_flight.items() if held is entry)

    def _return_waiting(self) -> None:
        while self._waiting:
            self._end_as(self._waiting.popleft(), "returned")

    def _return_late(self, now_ns: int) -> None:
        """Works that would still run when their deadline passes and somebody else takes them over."""
        latest = self._clock() + timedelta(seconds=MARGIN_S)
        for entry in list(self._waiting):
            waited_s = (now_ns - entry.taken_ns) / 1e9
            if waited_s >= PATIENCE_S and latest + timedelta(seconds=entry.work.timeout_s) > entry.work.deadline:
                self._waiting.remove(entry)
                self._end_as(entry, "returned")

    def _end_as(self, entry: Held, outcome: Outcome) -> None:
        self._ledger.end(entry, result_without_frame(entry, outcome, self._clock()))
