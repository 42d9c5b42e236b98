"""Where a run's time went, of rows as they are stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

DUE = datetime(2027, 3, 1, 8, tzinfo=UTC)
ID = UUID(int=1)


def after(seconds: float) -> datetime:
    return DUE + timedelta(seconds=seconds)


def run(*, queued_s: float, started_s: float, finished_s: float) -> Any:
    from apps.executions.reading import ExecutionRow

    values: dict[str, Any] = dict.fromkeys(ExecutionRow._fields)
    values |= {
        "state": "succeeded", "actual_at": DUE, "created_at": DUE, "occurrences": 1, "fired_by": "", "reason": "",
        "queued_at": after(queued_s), "started_at": after(started_s), "finished_at": after(finished_s),
    }  # fmt: skip
    return ExecutionRow(**values)


def attempt(number: int, state: str, started_s: float, finished_s: float) -> Any:
    from apps.executions.reading_attempts import AttemptRow

    return AttemptRow(ID, ID, number, state, None, after(started_s), after(finished_s), None, None)


def test_a_late_start_has_parts_that_add_up() -> None:
    from apps.presenting.timeline import parts, why_late

    row, tries = run(queued_s=20, started_s=25, finished_s=30), [attempt(1, "succeeded", 25, 30)]
    assert why_late(row, tries) == "It started 25 s late: 20 s until it was released, 5.0 s until a worker took it."
    assert [part.seconds for part in parts(row, tries, now=after(99))] == [20, 5, 5]


def test_a_replay_makes_no_late_start_of_one_in_time() -> None:
    """Reopened, the row has the times of the replay; the attempts know when it really began."""
    from apps.presenting.timeline import parts, why_late

    row = run(queued_s=3600, started_s=3601, finished_s=3602)
    tries = [attempt(1, "failed", 1, 2), attempt(2, "succeeded", 3601, 3602)]
    assert why_late(row, tries) == ""
    assert [part.seconds for part in parts(row, tries, now=after(9999))] == [1, 1, 3599, 1]
    assert why_late(row, [attempt(1, "failed", 60, 61)]) == "It started 1 min late."
