"""What running works say of themselves, on its way from executors to their tickets: the latest of each, once a pass."""

import threading
from typing import Any

import orjson
import psycopg

from apps.tickets import holding
from workers.executors.base import Key


class ProgressBoard:
    """`report` is for executors, from any thread; `write` for the heartbeat."""

    def __init__(self) -> None:
        self._told: dict[Key, Any] = {}  # of runs that hold a slot; taken away at each pass
        self._lock = threading.Lock()

    def report(self, key: Key, value: Any) -> None:
        """Small JSON; takes the place of what was told before."""
        with self._lock:
            self._told[key] = value

    def write(self, conn: "psycopg.Connection[Any]") -> int:
        """Writes what was told since, in one statement. What an outage loses is told again by the next report."""
        with self._lock:
            told, self._told = self._told, {}
        if told:
            holding.tell_progress(conn, [(*key, orjson.dumps(value).decode()) for key, value in sorted(told.items())])
        return len(told)
