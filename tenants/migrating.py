"""Bringing thousands of tenant schemas up to date: some at a time, some first, later again what is in use now.

Nothing grows with the number of schemas but the list of those that lack something: a connection is closed after
CONNECTION_SCHEMAS of them, since the server's process remembers each table that it has touched.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from django.db import connection

from kernel.backoff import delay_s
from kernel.clock import monotonic_s
from tenants import template
from tenants.behind import Pending
from tenants.migrating_one import Result, schema_migrate

CONNECTION_SCHEMAS = 200
PAUSE_S, PAUSE_MAX_S = 1.0, 30.0  # before those are tried again that something was in the way of


@dataclass(frozen=True, slots=True)
class Rules:
    """How a run goes."""

    jobs: int = 4  # schemas at a time
    lock_timeout_ms: int = 1_000  # how long the tenant's own work may be kept waiting
    retry_for_s: float = 300  # how long those that are locked are tried again
    canary: int = 0  # so many first; the rest only when all of these went well
    stop_after: int = 0  # failures; 0: never


@dataclass(slots=True)
class Tally:
    """What a run did. `later` are locked still; `left` were not done when the run was stopped."""

    migrated: int = 0
    later: int = 0
    failed: int = 0
    left: int = 0

    @property
    def whole(self) -> bool:
        return not (self.later or self.failed or self.left)


def migrate(schemas: Sequence[Pending], *, rules: Rules, report: Callable[[Result], None]) -> Tally:
    """Migrates the schemas; `report` hears of each once, when its last try has ended.

    May be stopped (KeyboardInterrupt ends it after the schemas in hand) or killed, and run again, at any time.
    """
    for part in {id(part): part for one in schemas for step in one.steps for part in step.parts}.values():
        if isinstance(part, template.Code):
            part.prepare()
    run = _Run(rules, report)
    try:
        canary = min(max(0, rules.canary), len(schemas))
        run.work(schemas[:canary])
        if run.tally.whole:
            run.work(schemas[canary:])
    except KeyboardInterrupt:
        pass  # what is in hand has ended; the tally says what is left
    tally = run.tally
    tally.left = len(schemas) - tally.migrated - tally.later - tally.failed
    return tally


class _Run:
    def __init__(self, rules: Rules, report: Callable[[Result], None]) -> None:
        self.tally = Tally()
        self._rules, self._report = rules, report
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def work(self, schemas: Sequence[Pending]) -> None:
        """In rounds: each tries what the one before found locked, after a pause, until the time for it is over."""
        until = monotonic_s() + self._rules.retry_for_s
        turn = 0
        while schemas and not self._stop.is_set():
            turn += 1
            pause = delay_s(turn, base_s=PAUSE_S, factor=2, max_s=PAUSE_MAX_S)
            last = monotonic_s() + pause >= until
            schemas = self._round(schemas, last=last)
            if schemas and not last:
                self._stop.wait(pause)

    def _round(self, schemas: Sequence[Pending], *, last: bool) -> list[Pending]:
        """Tries each once; returns those that something was in the way of, none in the `last` round."""
        feed, again = iter(schemas), list[Pending]()

        def work() -> None:
            done = 0
            try:
                while (one := self._next(feed)) is not None:
                    result = schema_migrate(one, lock_timeout_ms=self._rules.lock_timeout_ms)
                    if result.state == "later" and not last:
                        again.append(one)
                    else:
                        self._tell(result)
                    done += 1
                    if done % CONNECTION_SCHEMAS == 0:
                        connection.close()
            finally:
                connection.close()

        with ThreadPoolExecutor(max(1, self._rules.jobs), thread_name_prefix="migrate") as threads:
            try:
                for one in [threads.submit(work) for _ in range(max(1, min(self._rules.jobs, len(schemas))))]:
                    one.result()
            except BaseException:
                self._stop.set()
                raise
        return again

    def _next(self, feed: Iterator[Pending]) -> Pending | None:
        with self._lock:
            return None if self._stop.is_set() else next(feed, None)

    def _tell(self, result: Result) -> None:
        with self._lock:
            self.tally.migrated += result.state == "migrated"
            self.tally.later += result.state == "later"
            self.tally.failed += result.state == "failed"
            if self._rules.stop_after and self.tally.failed >= self._rules.stop_after:
                self._stop.set()
            self._report(result)
