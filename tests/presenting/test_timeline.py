"""Where a run's time went, of rows as they are stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

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


def test_a_retry_says_why_and_a_fire_by_whom() -> None:
    from apps.presenting.timeline import events

    dispatcher, worker = UUID(int=7), UUID(int=8)
    row = run(queued_s=1, started_s=2, finished_s=30)._replace(trigger="schedule", fired_by=f"{dispatcher}/12")
    first = attempt(1, "failed", 2, 3)._replace(
        worker_id=worker, retry_at=after(5), error='{"class": "http_status", "status": 503, "message": "m"}'
    )
    told = events(row, [first, attempt(2, "succeeded", 5, 30)], machines={worker: "w1:77"})
    assert [(one.what, one.detail) for one in told] == [
        ("Due", ""), ("Fired", f"by dispatcher {dispatcher} in term 12"), ("Handed to a worker's queue", ""),
        ("Attempt 1 started", f"on worker w1:77 ({worker})"),
        ("Attempt 1 failed", "after 1.0 s: http status 503; tried again from 08:00:05"),
        ("Attempt 2 started", ""), ("Attempt 2 succeeded", "after 25 s"), ("Succeeded", ""),
    ]  # fmt: skip


def seconds(least: int, most: int) -> st.SearchStrategy[float]:
    """In whole milliseconds: instants have microseconds."""
    return st.integers(least * 1_000, most * 1_000).map(lambda ms: ms / 1_000)


INSTANTS = st.one_of(st.none(), seconds(-100, 1_000))


@given(made=seconds(-5, 500), queued=INSTANTS, started=INSTANTS, ended=seconds(0, 2_000), over=st.booleans())
def test_the_parts_of_lateness_add_up(
    made: float, queued: float | None, started: float | None, ended: float, over: bool
) -> None:
    """Whatever the rows say: clocks differ, and a replay moves some of their times."""
    from apps.presenting.lateness import lateness

    row = run(queued_s=0, started_s=0, finished_s=ended)._replace(
        created_at=after(made), queued_at=None if queued is None else after(queued),
        started_at=None if started is None else after(started), state="dead" if over else "running",
        finished_at=after(ended) if over else None,
    )  # fmt: skip
    found = lateness(row, [], now=after(1_500))
    end = round(started if started is not None else ended if over else 1_500, 6)  # times are whole microseconds
    if end < 0:
        assert found is None
        return
    assert found is not None and abs(found.seconds - end) < 0.001
    assert abs(sum(part.seconds for part in found.parts) - end) < 0.001
    assert all(part.seconds >= 0 for part in found.parts)


def test_what_has_not_started_says_how_late_it_is() -> None:
    from apps.presenting.lateness import lateness

    waits = run(queued_s=0, started_s=0, finished_s=0)._replace(
        state="queued", queued_at=after(20), started_at=None, finished_at=None
    )
    told = lateness(waits, [], now=after(50))
    assert told is not None
    assert told.text == "It is 50 s late: 20 s until it was released, 30 s without a worker that took it."
    expired = waits._replace(state="expired", finished_at=after(60), queued_at=None)
    told = lateness(expired, [], now=after(99))
    assert told is not None and told.text == "It had not started 1 min after it was due: 1 min without a release."
    assert lateness(waits._replace(state="scheduled"), [], now=after(1)) is None
