"""Works to submit, a place where their results arrive, and the cases from public bug reports."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from kernel.clock import utc_now
from workers.executors.base import Key, Result, Work

WAIT_S = 30.0
LOOPBACK = ("127.0.0.0/8", "::1/128")
NOMINAL_AT = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)


def make_work(kind: str, target: Mapping[str, Any], **changes: Any) -> Work:
    """A work of the tenant acme that may call loopback and has 20 s."""
    values: dict[str, Any] = {
        "execution_id": uuid4(),
        "fence": 7,
        "attempt": 1,
        "tenant_id": 1,
        "tenant_slug": "acme",
        "job_id": uuid4(),
        "kind": kind,
        "run_key": f"run-{uuid4().hex}",
        "target": target,
        "payload": {"n": 1},
        "timeout_s": 20.0,
        "nominal_at": NOMINAL_AT,
        "deadline": utc_now() + timedelta(seconds=50),
        "network": LOOPBACK,
        "signing_secrets": (),
        "traceparent": None,
        "execution_kind": "schedule",
    }
    return Work(**(values | changes))


def case(file: str, id_: str) -> dict[str, Any]:
    """`input` and `expected` of one case of tests/cases/<file>.jsonl, in one dictionary."""
    lines = (Path(__file__).parent.parent / "cases" / f"{file}.jsonl").read_text().splitlines()
    found: dict[str, Any] = next(row for row in map(json.loads, lines) if row["id"] == id_)
    return {**found["input"], "expected": found["expected"]}


def key_of(work: Work) -> Key:
    return work.execution_id, work.fence


class Results:
    """Collects what executors report. Call it as `done`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._results: dict[Key, Result] = {}
        self.times: Counter[Key] = Counter()

    def __call__(self, work: Work, result: Result) -> None:
        with self._changed:
            self._results[key_of(work)] = result
            self.times[key_of(work)] += 1
            self._changed.notify_all()

    def of(self, work: Work, within_s: float = WAIT_S) -> Result:
        """The result of `work`; fails when none comes in time."""
        self.wait(lambda: key_of(work) in self._results, within_s)
        return self._results[key_of(work)]

    def all_of(self, works: list[Work], within_s: float = WAIT_S) -> list[Result]:
        self.wait(lambda: all(key_of(work) in self._results for work in works), within_s)
        return [self._results[key_of(work)] for work in works]

    def wait(self, condition: Callable[[], bool], within_s: float = WAIT_S) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, within_s), f"only {len(self._results)} results came"

    def __len__(self) -> int:
        return len(self._results)
