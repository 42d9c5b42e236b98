"""An executor that a test works by hand, and a worker's runtime around it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from kernel.clock import utc_now
from workers.executors.base import Done, Key, Result, Work


class Hands:
    """Takes works and holds them until the test ends them, as an executor does: `done` once for each."""

    def __init__(self, slots: int = 4) -> None:
        self.slots = slots
        self.cancelled: list[Key] = []
        self.stopping = threading.Event()
        self.may_stop = threading.Event()
        self.may_stop.set()
        self.submits: Callable[[Sequence[Work]], None] = lambda works: None
        self._held: dict[Key, tuple[Work, Done]] = {}
        self._lock = threading.Lock()

    def submit(self, works: Sequence[Work], done: Done) -> None:
        self.submits(works)
        with self._lock:
            self._held.update({(work.execution_id, work.fence): (work, done) for work in works})

    def cancel(self, execution_id: UUID, fence: int) -> bool:
        key = (execution_id, fence)
        if key not in self._held:
            return False
        self.cancelled.append(key)
        return True

    def held(self) -> set[Key]:
        with self._lock:
            return set(self._held)

    def free(self) -> int:
        return max(0, self.slots - len(self._held))

    def start(self) -> None:
        pass

    def stop(self, grace_s: float) -> None:
        """Hands back what it holds, when the test lets it."""
        self.stopping.set()
        assert self.may_stop.wait(30)
        for key in self.held():
            self.end(key, "returned")

    @property
    def works(self) -> list[Work]:
        with self._lock:
            return [work for work, _ in self._held.values()]

    def work_of(self, execution_id: UUID) -> Work:
        [work] = [one for one in self.works if one.execution_id == execution_id]
        return work

    def end(self, key: Key, outcome: Any = "succeeded", **result: Any) -> None:
        """The work has ended so. It is held until `done` returned."""
        work, done = self._held[key]
        now = utc_now()
        given: dict[str, Any] = {
            "result": None, "error": None, "retryable": True, "retry_after_s": None, "pause_schedule": False,
            "started_at": now, "finished_at": now,
        }  # fmt: skip
        done(work, Result(outcome=outcome, **(given | result)))
        with self._lock:
            del self._held[key]

    def end_all(self, outcome: Any = "succeeded", **result: Any) -> None:
        for key in self.held():
            self.end(key, outcome, **result)

    def drop(self, key: Key) -> None:
        """The work is gone without a word, like a killed child whose end nobody saw."""
        with self._lock:
            del self._held[key]
