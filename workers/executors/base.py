"""The words that the worker and its executors share: work goes in, exactly one result comes out for each.

An executor never decides what a result means. Retry, dead letter and pause follow from it in `apps.outcomes`, under the
fence that the work carries, so a result that comes too late changes nothing.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

log = logging.getLogger(__name__)

# "accepted" is no end: the other side has taken the work, and its result comes over the API.
Outcome = Literal["succeeded", "failed", "timed_out", "cancelled", "lost", "returned", "accepted"]
Key = tuple[uuid.UUID, int]


@dataclass(frozen=True, slots=True)
class Work:
    """One attempt to run."""

    execution_id: uuid.UUID
    fence: int
    attempt: int
    tenant_id: int
    tenant_slug: str
    job_id: uuid.UUID
    kind: str  # "http" | "python"
    run_key: str
    target: Mapping[str, Any] = field(repr=False)  # it and the payload may hold what no log may show
    payload: Any = field(repr=False)
    timeout_s: float  # from the moment that it runs, not from submit
    nominal_at: datetime | None
    deadline: datetime
    network: tuple[str, ...]  # CIDRs that this tenant may call besides public addresses
    signing_secrets: tuple[str, ...] = field(repr=False)  # the tenant's, newest first; every call is signed with all
    traceparent: str | None
    execution_kind: str  # what triggered the execution
    tenant_schema: str = ""
    # The values that the target names, and no others: kernel.secretrules.fill(target, secrets) is what runs.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    # For templates: filled in where the target asks for them.
    schedule_id: uuid.UUID | None = None
    job_name: str = ""
    schedule_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    completion: str | None = None  # the token with which the other side may report the end later
    completion_url: str | None = None  # where, when the operator has said how the API is reached


@dataclass(frozen=True, slots=True)
class Result:
    """How an attempt ended. `result` and `error` are JSON of bounded size, without NUL characters."""

    outcome: Outcome
    result: Any | None
    error: Mapping[str, Any] | None  # {"class", "message", "status"?, ...}
    retryable: bool  # False: never, whatever the job's policy says
    retry_after_s: float | None
    pause_schedule: bool
    started_at: datetime
    finished_at: datetime
    holder: str = ""  # who goes on with what was accepted, for people


Done = Callable[[Work, Result], None]
Progress = Callable[[Key, Any], None]  # what a running work says of itself, as small JSON


class Executor(Protocol):
    """What runs works of one kind. All methods may be called from any thread."""

    @property
    def slots(self) -> int:
        """How many works it should hold now; may change with what they turn out to be."""

    def submit(self, works: Sequence[Work], done: Done) -> None:
        """Take works; returns at once. `done` is called exactly once for each, from a thread of the executor.

        A work whose (execution, fence) is held already is taken for the same work and ignored. What is submitted
        after `stop` is returned at once, in the caller's thread.
        """

    def cancel(self, execution_id: uuid.UUID, fence: int) -> bool:
        """Ask a work to end as cancelled. False when it is not held; True does not mean that it won against its end."""

    def held(self) -> set[Key]:
        """What waits or runs here now. A work is held until its `done` returned, so nothing is held by nobody."""

    def free(self) -> int:
        """Slots that are free; 0 while the executor can't run anything."""

    def start(self) -> None:
        """Start threads and processes."""

    def stop(self, grace_s: float) -> None:
        """Return what waits, let run what runs for `grace_s` seconds, return the rest, and end all that was started."""


@dataclass(slots=True, eq=False)
class Held:
    """A work in an executor's hands."""

    work: Work
    done: Done
    end_as: Outcome | None = None  # why it is being stopped, when it is
    started_at: datetime | None = None
    ended: bool = False
    taken_ns: int = field(default_factory=time.monotonic_ns)
    extra: Any = None  # the executor's own


@dataclass(slots=True)
class Ledger:
    """Which works an executor holds: the one place that makes `done` exactly-once."""

    slots: int
    _held: dict[Key, Held] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _empty: threading.Condition = field(init=False)
    _closed: bool = False
    _busy: int = 0  # held works without a result

    def __post_init__(self) -> None:
        self._empty = threading.Condition(self._lock)

    def take(self, works: Sequence[Work], done: Done, clock: Callable[[], datetime]) -> list[Held]:
        """Entries for the works that were not held yet. After `close` they are returned at once instead."""
        with self._lock:
            closed = self._closed
            fresh = [] if closed else self._hold(works, done)
        if closed:
            for work in works:
                done(work, returned(clock()))
        return fresh

    def _hold(self, works: Sequence[Work], done: Done) -> list[Held]:
        fresh = []
        for work in works:
            key = (work.execution_id, work.fence)
            if key not in self._held:
                self._held[key] = entry = Held(work, done)
                fresh.append(entry)
        self._busy += len(fresh)
        return fresh

    def end(self, entry: Held, result: Result) -> None:
        """Report the result, then forget the work. A second result for the same work is dropped."""
        key = (entry.work.execution_id, entry.work.fence)
        with self._lock:
            if self._held.get(key) is not entry or entry.ended:
                return
            entry.ended = True
            self._busy -= 1  # whoever waits for a slot may be told of it by `done`
        try:
            entry.done(entry.work, result)
        except Exception:
            log.exception("the receiver of a result failed; the reconciler will find the run")
        with self._lock:
            del self._held[key]
            if not self._held:
                self._empty.notify_all()

    def find(self, execution_id: uuid.UUID, fence: int) -> Held | None:
        with self._lock:
            return self._held.get((execution_id, fence))

    def entries(self) -> list[Held]:
        with self._lock:
            return list(self._held.values())

    def keys(self) -> set[Key]:
        with self._lock:
            return set(self._held)

    def free(self) -> int:
        return max(0, self.slots - self._busy)

    def close(self) -> None:
        """Take no more."""
        with self._lock:
            self._closed = True

    def wait_empty(self, timeout_s: float) -> bool:
        with self._lock:
            return self._empty.wait_for(lambda: not self._held, timeout_s)


def no_progress(key: Key, value: Any) -> None:
    """For executors that nobody asks."""


def returned(now: datetime, started_at: datetime | None = None, why: str = "the worker is stopping") -> Result:
    """A work that is handed back without using up an attempt."""
    return ended("returned", now, started_at, error={"class": "returned", "message": why})


def cancelled(now: datetime, started_at: datetime | None = None) -> Result:
    """A work that somebody cancelled."""
    return ended("cancelled", now, started_at, error={"class": "cancelled", "message": "The run was cancelled."})


def ended(
    outcome: Outcome,
    now: datetime,
    started_at: datetime | None = None,
    *,
    error: Mapping[str, Any] | None = None,
    retryable: bool = True,
) -> Result:
    """A result without a value."""
    return Result(outcome, None, error, retryable, None, False, started_at or now, now)
