"""A bounded memory of one process whose entries are forgotten after a while."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from kernel.clock import monotonic_s

K = TypeVar("K")
V = TypeVar("V")


class Shelf(Generic[K, V]):
    """A bounded memory whose entries live for a fixed time from when they were put."""

    def __init__(self, most: int, life_s: float, clock: Callable[[], float] = monotonic_s) -> None:
        self._most, self._life_s, self._clock = most, life_s, clock
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()  # oldest first
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._entries.get(key)
            return found[1] if found is not None and found[0] > self._clock() else None

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._entries.pop(key, None)
            self._entries[key] = (self._clock() + self._life_s, value)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def prune(self) -> None:
        with self._lock:
            now = self._clock()
            while self._entries and next(iter(self._entries.values()))[0] <= now:
                self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)
