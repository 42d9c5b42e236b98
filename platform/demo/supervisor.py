"""Keeps processes and services running: notices an end, says so, starts again with back-off, stops all in order."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Protocol

from embedded.folder import rotate
from embedded.process import ServiceError, end, spawn

LOOK_S = 0.2
BACKOFF_FIRST_S = 0.5
BACKOFF_MOST_S = 30.0
HEALTHY_S = 60.0  # after so long without an end, the next one is a first one again

Say = Callable[[str], None]


class Part(Protocol):
    """Something that is started, watched and stopped: a child process or an embedded service."""

    @property
    def name(self) -> str: ...
    @property
    def log(self) -> Path: ...
    def start(self) -> None: ...
    def alive(self) -> bool: ...
    def stop(self, *, timeout_s: float) -> None: ...


@dataclass
class Child:
    """One program of the platform, its output in a log file. Ends with this process."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    cwd: Path
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        rotate(self.log)
        self._process = spawn(
            self.command, log=self.log, death_signal=signal.SIGTERM, env=self.environment, cwd=self.cwd
        )

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, *, timeout_s: float) -> None:
        if self._process is not None:
            end(self._process, steps=[(signal.SIGTERM, timeout_s)])

    def ask_to_stop(self) -> None:
        """SIGTERM without waiting."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()


@dataclass
class _Watch:
    part: Part
    stop_s: float
    failures: int = 0
    started_at: float = 0.0
    start_at: float | None = None  # when to start it again, while it is down


@dataclass
class Supervisor:
    """Parts in the order of their start. For the main thread only: children end with the thread that made them."""

    say: Say
    _watches: list[_Watch] = field(default_factory=list)

    def add(self, part: Part, *, stop_s: float) -> None:
        """Watch a part that may run already; start it otherwise. Raises ServiceError where it cannot start.

        `stop_s` is what it gets to end by itself before it is killed.
        """
        self._watches.append(_Watch(part, stop_s, started_at=time.monotonic()))
        if not part.alive():
            part.start()

    def run(self, *, on_look: Callable[[], None]) -> NoReturn:
        """Watch until something raises (KeyboardInterrupt ends it); `on_look` is called a few times a second."""
        while True:
            self.look()
            on_look()
            time.sleep(LOOK_S)

    def look(self) -> None:
        """One pass: notice what ended, and start again what has waited long enough."""
        now = time.monotonic()
        for watch in self._watches:
            self._look(watch, now)

    def stop(self, *, first: Sequence[str] = ()) -> None:
        """Stop all in reverse order of their start; those named `first` are told at once and end side by side."""
        for watch in self._watches:
            if isinstance(watch.part, Child) and watch.part.name in first:
                watch.part.ask_to_stop()
        for watch in reversed(self._watches):
            watch.part.stop(timeout_s=watch.stop_s)
        self._watches.clear()

    def _look(self, watch: _Watch, now: float) -> None:
        if watch.start_at is not None:
            if now >= watch.start_at:
                self._start_again(watch, now)
        elif not watch.part.alive():
            if now - watch.started_at > HEALTHY_S:
                watch.failures = 0
            self._plan(watch, now, "ended")

    def _plan(self, watch: _Watch, now: float, what: str) -> None:
        pause_s = min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2**watch.failures)
        watch.failures += 1
        watch.start_at = now + pause_s
        self.say(f"{watch.part.name} {what}; starting it again in {pause_s:g} s (see {watch.part.log})")

    def _start_again(self, watch: _Watch, now: float) -> None:
        watch.start_at = None
        watch.started_at = now
        try:
            watch.part.start()
        except (ServiceError, OSError) as error:
            self._plan(watch, now, f"did not start: {error}")
