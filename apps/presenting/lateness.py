"""How late a run started, or is by now, and the parts that this adds up from. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from apps.executions.reading import ExecutionRow
from apps.executions.reading_attempts import AttemptRow
from kernel.durations import span
from kernel.transitions import FINAL_STATES

LATE_S = 10.0  # started later than this is worth a sentence
TOLD_S = 0.5  # of a part that the sentence names


class LatePart(NamedTuple):
    """One stretch between when it was due and when it started."""

    what: str
    seconds: float


class Lateness(NamedTuple):
    """`parts` add up to `seconds`. One that has not started is so late by now, or was so late when it ended."""

    seconds: float
    parts: Sequence[LatePart]
    started: bool
    over: bool

    @property
    def text(self) -> str:
        """ "It started 25 s late: 20 s until it was released, 5.0 s until a worker took it." """
        told = [f"{span(part.seconds)} {part.what}" for part in self.parts if part.seconds >= TOLD_S]
        because = f": {', '.join(told)}" if len(self.parts) > 1 and told else ""
        late = span(self.seconds)
        if self.started:
            return f"It started {late} late{because}."
        return f"It had not started {late} after it was due{because}." if self.over else f"It is {late} late{because}."


def lateness(row: ExecutionRow, attempts: Sequence[AttemptRow], *, now: datetime) -> Lateness | None:
    """Of a run that was to start by now; else None. `attempts` come oldest first."""
    queued_at, started_at = first_times(row, attempts)
    end = started_at or row.finished_at or now
    if row.state in ("skipped", "scheduled") or end < row.actual_at:
        return None
    marks = [("until it was made", min(row.created_at, end))]
    if queued_at is not None:
        marks.append(("until it was released", min(queued_at, end)))
    marks.append((_last(queued_at, started_at, over=row.state in FINAL_STATES), end))
    if started_at is not None and queued_at is None:  # a replay has reset what is between
        marks = marks[-1:]
    at, parts = row.actual_at, []
    for what, mark in marks:
        parts.append(LatePart(what, max(0.0, (mark - at).total_seconds())))
        at = max(at, mark)
    return Lateness((end - row.actual_at).total_seconds(), parts, started_at is not None, row.state in FINAL_STATES)


def first_times(row: ExecutionRow, attempts: Sequence[AttemptRow]) -> tuple[datetime | None, datetime | None]:
    """When it was first handed over (None: not known any more) and first started: a replay resets the row's times."""
    started_at = attempts[0].started_at if attempts and attempts[0].number == 1 else row.started_at
    if row.queued_at is not None and started_at is not None and row.queued_at > started_at:
        return None, started_at
    return row.queued_at, started_at


def _last(queued_at: datetime | None, started_at: datetime | None, *, over: bool) -> str:
    if started_at is not None:
        return "until a worker took it" if queued_at is not None else "until it started"
    if queued_at is not None:
        return "without a worker that took it"
    return "without a release" if over else "so far without a release"
