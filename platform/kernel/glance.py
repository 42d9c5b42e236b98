"""What this process knows of something that changes, read anew once it is too old, by whoever asks then."""

import threading
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from kernel.clock import monotonic_s

Known = TypeVar("Known")
Asked = ParamSpec("Asked")


class Glance(Generic[Asked, Known]):
    """What `read` found at most `for_s` seconds ago; `first` for whoever asks while it reads for the first time."""

    def __init__(
        self, read: Callable[Asked, Known], *, first: Known, for_s: float, clock: Callable[[], float] = monotonic_s
    ) -> None:
        self._read = read
        self._known = first
        self._for_s = for_s
        self._clock = clock
        self._lock = threading.Lock()
        self._until = float("-inf")

    def take(self, *args: Asked.args, **kwargs: Asked.kwargs) -> Known:
        """What is known; the arguments are those of `read`."""
        with self._lock:
            if self._clock() < self._until:
                return self._known
            self._until = self._clock() + self._for_s  # the others go on with what was known, whatever this read does
        found = self._read(*args, **kwargs)
        with self._lock:
            self._known = found
        return found

    def forget(self) -> None:
        """The next one reads it again."""
        with self._lock:
            self._until = float("-inf")
