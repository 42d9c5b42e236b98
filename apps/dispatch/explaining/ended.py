"""Why a run that has ended ended so, from what was written down about it. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from apps.dispatch.explaining.dependencies import not_met
from apps.dispatch.explaining.rows import LastAttempt, Run
from apps.dispatch.explaining.values import Delay, Thing, Verdict
from apps.dispatch.explaining.words import WORDS, because
from kernel.durations import span

LATE_S = 10.0  # a start later than this is something that was found
ERROR_CHARS = 300
OF_SOMEBODY = frozenset({"schedule_paused", "job_paused", "schedule_changed", "schedule_deleted", "gap_recorded"})


class Letter(NamedTuple):
    """The newest dead letter of a run."""

    id: UUID
    open: bool


class By(NamedTuple):
    """Who did something, when and why, as the trail says it."""

    who: str
    at: datetime
    reason: str = ""
    system: bool = False  # the platform itself


def ended(run: Run, *, last: LastAttempt | None, letter: Letter | None, by: By | None) -> Verdict:
    """The cause. `by` is who asked for its end, where somebody did."""
    if run.stored_state == "succeeded":
        return _succeeded(run)
    if run.stored_state == "skipped" or run.reason == "replaced":
        return _skipped(run)
    if run.stored_state == "expired":
        return Verdict(
            "max_queue_age", _message(run.error) or _never_started(run), thing=Thing(run.word, str(run.job_id))
        )
    if run.stored_state == "cancelled":
        return Verdict("cancelled", _cancelled(run, by), since=by.at if by else run.finished_at)
    return _dead(run, last, letter)


def delays_of(run: Run) -> list[Delay]:
    """What was written down of what held it back, the longest first."""
    found = orjson.loads(run.delays or run.ticket_delays or "[]")
    delays = [Delay(str(one["code"]), float(one["s"])) for one in found]
    return sorted(delays, key=lambda one: -one.seconds)


def late_s(run: Run, *, now: datetime) -> float | None:
    """How much later than due it started; of one that has not started, how late it is by now. None before its time."""
    if run.stored_state == "skipped" or (run.is_over and run.started_at is None and run.stored_state != "expired"):
        return None
    until = run.started_at or run.finished_at or now
    return max(0.0, (until - run.actual_at).total_seconds()) if until >= run.actual_at else None


def parts_of(run: Run, delays: Sequence[Delay]) -> str:
    """Where the time until its first start went, as one sentence; empty where it was in time."""
    if run.started_at is None:
        return ""
    late = (run.started_at - run.actual_at).total_seconds()
    if late < 1:
        return ""
    parts = []
    if run.queued_at is not None and run.queued_at <= run.started_at:  # a replay resets these
        made = (run.created_at - run.actual_at).total_seconds()
        released = (run.queued_at - max(run.created_at, run.actual_at)).total_seconds()
        taken = (run.started_at - run.queued_at).total_seconds()
        parts = [
            f"{span(seconds)} {what}"
            for seconds, what in (
                (made, "until it was made"), (released, "until it was released"), (taken, "until a worker took it"),
            )
            if seconds >= 0.5
        ]  # fmt: skip
    told = f"It started {span(late)} after it was due{': ' + ', '.join(parts) if parts else ''}."
    if delays:
        named = ", ".join(f"{one.code} for {span(one.seconds)}" for one in delays)
        told += f" What held it back: {named}."
    return told


def instant(at: datetime | None) -> str:
    """In UTC, to the second."""
    return "-" if at is None else f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _succeeded(run: Run) -> Verdict:
    late = late_s(run, now=run.finished_at or run.actual_at) or 0.0
    took = "" if run.started_at is None or run.finished_at is None else span(_between(run.started_at, run.finished_at))
    tries = f" in attempt {run.attempts}" if run.attempts > 1 else ""
    text = f"It succeeded{tries} at {instant(run.finished_at)}{', ' + took + ' after its first start' if took else ''}."
    if late < LATE_S:
        return Verdict("succeeded", text, fine=True)
    return Verdict("started_late", f"{parts_of(run, delays_of(run))} {text}")


def _skipped(run: Run) -> Verdict:
    if run.reason == "dependency_not_met":
        return not_met(orjson.loads(run.error or "{}"))
    code = run.reason if run.reason in WORDS else "skipped"
    what = "It did not run"
    if run.occurrences > 1:
        what = f"{run.occurrences:,} occurrences from {instant(run.nominal_at)} to {instant(run.until_at)} did not run"
    elif run.nominal_at is not None:
        what = f"The occurrence of {instant(run.nominal_at)} did not run"
    by = f" (by {run.fired_by})" if code in OF_SOMEBODY and run.fired_by else ""
    thing = Thing("schedule", str(run.schedule_id)) if run.schedule_id else Thing(run.word, str(run.job_id))
    if code in ("daily_quota", "backlog_full"):
        thing = Thing("usage")
    return Verdict(code, f"{what}: {because(code)}{by}.", thing=thing)


def _cancelled(run: Run, by: By | None) -> str:
    when = instant(run.finished_at)
    tried = f" after {run.attempts} attempt{'s' if run.attempts > 1 else ''}" if run.attempts else " before it started"
    if by is None:
        return f"It was cancelled{tried} at {when}; the trail does not say by whom."
    why = f", because: {by.reason}" if by.reason else ""
    return f"It was cancelled by {by.who} at {instant(by.at)}{why}; it ended{tried} at {when}."


def _dead(run: Run, last: LastAttempt | None, letter: Letter | None) -> Verdict:
    code = run.reason if run.reason in WORDS else "dead"
    of = f" of {run.max_attempts}" if run.max_attempts and code == "attempts_used_up" else ""
    tries = f"{run.attempts} attempt{'s' if run.attempts != 1 else ''}{of}"
    text = f"It failed for good at {instant(run.finished_at)} after {tries}."
    error = _message(run.error) or (_message(last.error) if last else "")
    if error:
        text += f" The last error: {error}"
    if letter is not None and not letter.open:
        text += " Its dead letter has been dealt with."
    return Verdict(
        code, text, since=run.finished_at,
        thing=Thing("deadletter", str(letter.id)) if letter else Thing(run.word, str(run.job_id)),
    )  # fmt: skip


def _never_started(run: Run) -> str:
    waited = span(_between(run.actual_at, run.finished_at or run.actual_at))
    return f"It waited {waited} from {instant(run.actual_at)} and had not started when its time was over."


def _message(error: str | None) -> str:
    """What a stored error says, cut."""
    if error is None:
        return ""
    found: Any = orjson.loads(error)
    if not isinstance(found, Mapping):
        return ""
    status = f" (status {found['status']})" if found.get("status") else ""
    text = str(found.get("message") or found.get("class") or "")
    return f"{text[:ERROR_CHARS]}{status}"


def _between(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds())
