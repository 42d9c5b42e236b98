"""What is told of runs that end: events from settlements, for those who want them. Pure but for new ids.

Nothing is told about deliveries of webhooks. Frequent types are only made while a webhook of the tenant asks for them;
a dead letter is always told. A step of a workflow's run has none.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.events.store import NewEvent, instant_text, new_event
from apps.outcomes.verdict import FAILURES, Report, Verdict, has_letter
from apps.tickets.values import Overdue, Started
from kernel.eventtypes import DELIVERY

MESSAGE_CHARS = 500
CLASS_CHARS = 100


def told_of(started: Started, report: Report, verdict: Verdict, wants: Collection[str]) -> list[NewEvent]:
    """The events of one settlement."""
    died = verdict.state == "dead"
    lettered = died and has_letter(started.trigger, started.run_key)
    if (not wants and not lettered) or started.trigger == DELIVERY:
        return []
    found = []
    if verdict.state == "succeeded":
        if "run.succeeded" in wants:
            found.append(_event("run.succeeded", started, report.finished_at, _of(started, report, verdict)))
        return found
    if report.outcome in FAILURES and "run.failed" in wants:
        data = _of(started, report, verdict)
        data |= {"outcome": report.outcome, "final": died, "retry_at": _text(verdict.at), "error": _error(report.error)}
        found.append(_event("run.failed", started, report.finished_at, data))
    if lettered:
        data = _of(started, report, verdict) | {"reason": verdict.reason, "error": _error(report.error)}
        found.append(_event("run.dead_lettered", started, report.finished_at, data))
    return found


def told_of_overdue(one: Overdue, error: Mapping[str, Any], now: datetime, wants: Collection[str]) -> list[NewEvent]:
    """The events of a run that waited for too long: it expired, or was given up between its tries."""
    died = one.first_started_at is not None
    lettered = died and has_letter(one.trigger, one.run_key)
    if (not wants and not lettered) or one.trigger == DELIVERY:
        return []
    state = "dead" if died else "expired"
    data = {
        "execution": str(one.execution_id), "job": str(one.job_id), "schedule": _id(one.schedule_id),
        "run_key": one.run_key, "trigger": one.trigger, "state": state, "attempt": one.attempt,
        "nominal_at": _text(one.nominal_at), "actual_at": _text(one.actual_at),
        "started_at": _text(one.first_started_at), "finished_at": _text(now), "error": _error(error),
    }  # fmt: skip
    kinds = []
    if "run.failed" in wants:
        kinds.append(("run.failed", data | {"outcome": state, "final": True, "retry_at": None}))
    if lettered:
        kinds.append(("run.dead_lettered", data | {"reason": str(error.get("class", ""))}))
    about = {"job_id": one.job_id, "schedule_id": one.schedule_id, "execution_id": one.execution_id}
    return [new_event(kind, now, told, **about) for kind, told in kinds]


def _event(kind: str, started: Started, at: datetime, data: Mapping[str, Any]) -> NewEvent:
    return new_event(
        kind, at, data, job_id=started.job_id, schedule_id=started.schedule_id, execution_id=started.execution_id
    )


def _of(started: Started, report: Report, verdict: Verdict) -> dict[str, Any]:
    return {
        "execution": str(started.execution_id), "job": str(started.job_id), "schedule": _id(started.schedule_id),
        "run_key": started.run_key, "trigger": started.trigger, "state": verdict.state, "attempt": started.attempt,
        "nominal_at": _text(started.nominal_at), "started_at": _text(report.started_at),
        "finished_at": _text(report.finished_at),
    }  # fmt: skip


def _error(error: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Class, message and status: what may be read by whoever receives events, and no answers of targets."""
    if error is None:
        return None
    told = {
        "class": str(error.get("class", ""))[:CLASS_CHARS],
        "message": storable(str(error.get("message", ""))[:MESSAGE_CHARS]),
    }
    status = error.get("status")
    return told | ({"status": status} if isinstance(status, int) else {})


def storable(text: str) -> str:
    """A text without what jsonb can't hold."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _text(at: datetime | None) -> str | None:
    return None if at is None else instant_text(at)


def _id(value: UUID | None) -> str | None:
    return None if value is None else str(value)
