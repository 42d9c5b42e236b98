"""The one loop under every long-running part: `run_once(now) -> Pass`, wait, back off, stop gracefully.

A full batch means go on at once; a short one means wait until something wakes the service, its own next instant
comes, or `idle_s` is over. An error is logged, counted and answered with back-off; it never ends the loop.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kernel.backoff import delay_s
from kernel.clock import monotonic_s, thread_cpu_s

log = logging.getLogger(__name__)

IDLE_S = 0.5
ERROR_MAX_S = 5.0


@dataclass(slots=True)
class Pass:
    """What one pass did. `full` asks for another at once; `wait_s` bounds the wait otherwise."""

    counts: dict[str, int] = field(default_factory=dict)
    full: bool = False
    wait_s: float | None = None


class Runnable(Protocol):
    """What a service brings: its name, one pass of work, and what to do when the loop ends."""

    name: str

    def run_once(self) -> Pass: ...

    def close(self) -> None: ...


class Loop:
    """Runs one `Runnable` in a thread until stopped. `wake()` may be called from any thread."""

    def __init__(
        self,
        service: Runnable,
        *,
        idle_s: float = IDLE_S,
        error_max_s: float = ERROR_MAX_S,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self.service = service
        self.idle_s = idle_s
        self.error_max_s = error_max_s
        self.last_pass_at = monotonic_s()
        self.passes = 0
        self.errors = 0
        self.totals: dict[str, int] = {}
        self.cpu_s = 0.0  # of its thread, up to its last pass
        self._on_error = on_error
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=service.name, daemon=True)

    @property
    def lag_s(self) -> float:
        """How much longer ago than it idles its last pass ended: about 0 while it gets on."""
        return max(0.0, monotonic_s() - self.last_pass_at - self.idle_s)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        """Asks the loop to end after its current pass; does not wait."""
        self._stopping.set()
        self._wake.set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Waits for the end; False when it still runs."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                done = self.service.run_once()
            except Exception as error:  # a service must outlive whatever one pass meets
                failures += 1
                self.errors += 1
                self.cpu_s = thread_cpu_s()
                log.exception("service %s: pass failed (%d in a row)", self.service.name, failures)
                if self._on_error is not None:
                    self._on_error(error)
                self._wake.wait(delay_s(failures, base_s=0.2, factor=2, max_s=self.error_max_s))
                continue
            failures = 0
            self.passes += 1
            self.last_pass_at = monotonic_s()
            self.cpu_s = thread_cpu_s()
            for key, count in done.counts.items():
                self.totals[key] = self.totals.get(key, 0) + count
            if not done.full:
                self._wake.wait(self.idle_s if done.wait_s is None else max(0.0, min(done.wait_s, self.idle_s)))
        try:
            self.service.close()
        except Exception:
            log.exception("service %s: close failed", self.service.name)
