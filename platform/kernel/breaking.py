"""When a circuit breaker opens: counts of failed calls in a rolling window. Pure; time is an argument.

A key that has not failed lately costs one look into a dictionary.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
PARTS = 6  # of a window: it moves on in steps
MAX_KEYS = 10_000
FAILED_SHARE = 0.5  # of the calls in the window, at least


@dataclass(slots=True)
class _Counts:
    parts: deque[list[int]] = field(default_factory=deque)  # [step, calls, failures], oldest first

    def add(self, step: int, failed: bool) -> None:
        if not self.parts or self.parts[-1][0] != step:
            self.parts.append([step, 0, 0])
        self.parts[-1][1] += 1
        self.parts[-1][2] += failed
        while self.parts[0][0] <= step - PARTS:
            self.parts.popleft()

    @property
    def calls(self) -> int:
        return sum(part[1] for part in self.parts)

    @property
    def failures(self) -> int:
        return sum(part[2] for part in self.parts)


class FailureWindows(Generic[Key]):
    """Says when `failures` calls of a key, and at least half of its calls, have failed within `window_s` seconds."""

    def __init__(self, *, failures: int, window_s: float) -> None:
        self._failures, self._step_s = failures, window_s / PARTS
        self._counts: OrderedDict[Key, _Counts] = OrderedDict()

    def saw(self, key: Key, *, failed: bool, now_s: float) -> int:
        """Counts a call. The number of failures when it is time to open, else 0; then counting starts anew."""
        counts = self._counts.get(key)
        if counts is None:
            if not failed:
                return 0
            self._counts[key] = counts = _Counts()
            if len(self._counts) > MAX_KEYS:
                self._counts.popitem(last=False)
        counts.add(int(now_s / self._step_s), failed)
        found = counts.failures
        if not found:
            del self._counts[key]
        elif found >= self._failures and found >= counts.calls * FAILED_SHARE:
            del self._counts[key]
            return found
        return 0
