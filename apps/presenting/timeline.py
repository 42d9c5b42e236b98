"""One run from its due time to its end: events in order, and the parts that its time adds up from. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from apps.executions.reading import ExecutionRow
from apps.executions.reading_attempts import AttemptRow
from apps.presenting.charts import Part
from apps.presenting.shown import look_of
from kernel.durations import span
from kernel.transitions import FINAL_STATES

LATE_S = 10.0  # dispatched later than this is worth a sentence


class Event(NamedTuple):
    """One line. `step` is the time since the one before."""

    at: datetime
    tone: str
    icon: str
    what: str
    detail: str = ""
    error: Any = None
    step: str = ""


def events(row: ExecutionRow, attempts: Sequence[AttemptRow]) -> list[Event]:
    """Oldest first."""
    found = [Event(row.actual_at, "idle", "clock", "Due", _due(row))]
    if row.created_at > row.actual_at or row.state != "scheduled":
        found.append(Event(row.created_at, "idle", "dot", "Made", f"by {row.fired_by}" if row.fired_by else ""))
    if row.queued_at is not None:
        found.append(Event(row.queued_at, "run", "hourglass", "Handed to a worker's queue"))
    for one in attempts:
        found.append(Event(one.started_at, "run", "play", f"Attempt {one.number} started"))
        if one.finished_at is not None:
            look = look_of(one.state)
            ran = span((one.finished_at - one.started_at).total_seconds())
            retry = f"; tried again at {one.retry_at:%H:%M:%S}" if one.retry_at else ""
            found.append(
                Event(one.finished_at, look.tone, look.icon, f"Attempt {one.number} {look.word}",
                      f"after {ran}{retry}", loaded(one.error))
            )  # fmt: skip
    if row.finished_at is not None and row.state in FINAL_STATES:
        look = look_of(row.state)
        why = row.reason.replace("_", " ") if row.reason else ""
        found.append(Event(row.finished_at, look.tone, look.icon, look.word.capitalize(), why))
    found.sort(key=lambda one: one.at)  # stable: what has one time stays as it is told
    steps = ["", *(_step(before.at, after.at) for before, after in pairwise(found))]
    return [one._replace(step=step) for one, step in zip(found, steps, strict=True)]


def parts(row: ExecutionRow, attempts: Sequence[AttemptRow], *, now: datetime) -> list[Part]:
    """Where the time went; the seconds add up to all of it."""
    end = row.finished_at or now
    at, found = row.actual_at, []

    def until(moment: datetime | None, tone: str, label: str) -> None:
        nonlocal at
        if moment is not None and moment > at:
            seconds = (moment - at).total_seconds()
            found.append(Part(tone, f"{label}: {span(seconds)}", seconds))
            at = moment

    if row.state in ("skipped", "scheduled"):
        return []
    queued_at, _ = _first(row, attempts)
    if queued_at is not None or not attempts:
        until(min(queued_at or end, end), "idle", "waited to be released")
    first = "waited for a worker" if queued_at is not None else "waited to start"
    for number, one in enumerate(attempts):
        until(one.started_at, "idle", first if not number else "waited to try again")
        ended = look_of(one.state)
        until(one.finished_at or end, ended.tone, f"attempt {one.number}, {ended.word}")
    if row.finished_at is None:
        until(end, "idle", "waits")
    return found


def why_late(row: ExecutionRow, attempts: Sequence[AttemptRow]) -> str:
    """One sentence where a run started late, with parts that add up; else empty."""
    queued_at, started_at = _first(row, attempts)
    if started_at is None or row.state == "skipped":
        return ""
    late = (started_at - row.actual_at).total_seconds()
    if late < LATE_S:
        return ""
    if queued_at is None:
        return f"It started {span(late)} late."
    made = max(0.0, (row.created_at - row.actual_at).total_seconds())
    queued = max(0.0, (queued_at - max(row.created_at, row.actual_at)).total_seconds())
    waited = max(0.0, late - made - queued)
    shown = [f"{span(part)} {what}" for part, what in (
        (made, "until it was made"), (queued, "until it was released"), (waited, "until a worker took it"),
    ) if part >= 0.5]  # fmt: skip
    return f"It started {span(late)} late: {', '.join(shown)}."


def _first(row: ExecutionRow, attempts: Sequence[AttemptRow]) -> tuple[datetime | None, datetime | None]:
    """When it was first handed over (None: not known any more) and first started: a replay resets the row's times."""
    started_at = attempts[0].started_at if attempts and attempts[0].number == 1 else row.started_at
    if row.queued_at is not None and started_at is not None and row.queued_at > started_at:
        return None, started_at
    return row.queued_at, started_at


def loaded(text: str | None) -> Any:
    """A stored JSON text, decoded; one that can't be read is shown as it is."""
    if text is None:
        return None
    try:
        return orjson.loads(text)
    except ValueError:
        return text


def _due(row: ExecutionRow) -> str:
    if row.occurrences > 1 and row.until_at is not None:
        return f"stands for {row.occurrences:,} occurrences up to {row.until_at:%Y-%m-%d %H:%M:%S}"
    if row.nominal_at is not None and row.nominal_at != row.actual_at:
        return f"for {row.nominal_at:%Y-%m-%d %H:%M:%S}"
    return ""


def _step(before: datetime, after: datetime) -> str:
    seconds = (after - before).total_seconds()
    return f"{span(seconds)} later" if seconds >= 0.001 else ""
