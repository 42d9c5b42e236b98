"""One run from its due time to its end: events in order, and the parts that its time adds up from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from apps.executions.reading import ExecutionRow
from apps.executions.reading_attempts import AttemptRow
from apps.presenting.charts import Part
from apps.presenting.lateness import LATE_S, first_times, lateness
from apps.presenting.shown import look_of
from kernel.durations import span
from kernel.transitions import FINAL_STATES

OCCURRENCES = ("schedule", "catch_up")  # triggers of what a dispatcher fires
CLASS_CHARS = 60


class Event(NamedTuple):
    """One line. `step` is the time since the one before."""

    at: datetime
    tone: str
    icon: str
    what: str
    detail: str = ""
    error: Any = None
    step: str = ""


def events(
    row: ExecutionRow, attempts: Sequence[AttemptRow], *, machines: Mapping[UUID, str] | None = None
) -> list[Event]:  # fmt: skip
    """Oldest first. `machines` are the names of workers and dispatchers that are still known.

    Without it workers are not told: they are nobody's business but the operators'.
    """
    named = machines or {}
    found = [Event(row.actual_at, "idle", "clock", "Due", _due(row))]
    if row.created_at > row.actual_at or row.state != "scheduled":
        found.append(Event(row.created_at, "idle", "dot", *_made(row, named)))
    if row.queued_at is not None:
        found.append(Event(row.queued_at, "run", "hourglass", "Handed to a worker's queue"))
    for one in attempts:
        on = f"on worker {_named(one.worker_id, named)}" if one.worker_id is not None and machines is not None else ""
        found.append(Event(one.started_at, "run", "play", f"Attempt {one.number} started", on))
        if one.finished_at is not None:
            look = look_of(one.state)
            ran = span((one.finished_at - one.started_at).total_seconds())
            error = loaded(one.error)
            retry = f"; tried again from {one.retry_at:%H:%M:%S}" if one.retry_at else ""
            found.append(
                Event(one.finished_at, look.tone, look.icon, f"Attempt {one.number} {look.word}",
                      f"after {ran}{reason_of(error)}{retry}", error)
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
    queued_at, _ = first_times(row, attempts)
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
    found = lateness(row, attempts, now=row.actual_at)
    return found.text if found is not None and found.started and found.seconds >= LATE_S else ""


def loaded(text: str | None) -> Any:
    """A stored JSON text, decoded; one that can't be read is shown as it is."""
    if text is None:
        return None
    try:
        return orjson.loads(text)
    except ValueError:
        return text


def reason_of(error: Any) -> str:
    """What a stored error says in short, to go on a sentence: ": http status 503"."""
    if not isinstance(error, Mapping) or not error.get("class"):
        return ""
    name = str(error["class"])[:CLASS_CHARS].replace("_", " ")
    return f": {name} {error['status']}" if isinstance(error.get("status"), int) else f": {name}"


def _made(row: ExecutionRow, machines: Mapping[UUID, str]) -> tuple[str, str]:
    """How it came to be, and by whom: occurrences are fired by a dispatcher in a term."""
    if row.trigger not in OCCURRENCES:
        return "Made", f"by {row.fired_by}" if row.fired_by else ""
    dispatcher, _, term = row.fired_by.rpartition("/")
    try:
        return "Fired", f"by dispatcher {_named(UUID(dispatcher), machines)} in term {term}"
    except ValueError:
        return "Fired", f"by {row.fired_by}" if row.fired_by else ""


def _named(key: UUID, machines: Mapping[UUID, str]) -> str:
    return f"{machines[key]} ({key})" if key in machines else str(key)


def _due(row: ExecutionRow) -> str:
    if row.occurrences > 1 and row.until_at is not None:
        return f"stands for {row.occurrences:,} occurrences up to {row.until_at:%Y-%m-%d %H:%M:%S}"
    if row.nominal_at is not None and row.nominal_at != row.actual_at:
        return f"for {row.nominal_at:%Y-%m-%d %H:%M:%S}"
    return ""


def _step(before: datetime, after: datetime) -> str:
    seconds = (after - before).total_seconds()
    return f"{span(seconds)} later" if seconds >= 0.001 else ""
