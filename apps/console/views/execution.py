"""One run of a tenant: what happened to it, when, by whom and why; what was sent and what came back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.http import HttpRequest

from apps.archive.finding import Found, attempts_find, execution_anywhere
from apps.audit.looking import newest_about
from apps.audit.shown import Shown
from apps.console.middleware import tenant_of
from apps.console.pages import TENANT, page
from apps.console.runs.reading import Around, around_of
from apps.console.runs.request import Sent, request_of
from apps.console.runs.response import answer_of
from apps.console.shown import masked
from apps.dispatch.explaining.words import words_of
from apps.dispatch.reasons import with_reasons
from apps.executions.reading import ExecutionRow
from apps.executions.reading_attempts import AttemptRow, attempts_of
from apps.presenting.charts import phases
from apps.presenting.lateness import LATE_S, lateness
from apps.presenting.timeline import Event, events, loaded, parts
from apps.workflows.dependencies.depending_reading import linked_of
from kernel.durations import span
from kernel.errors import NotFound
from kernel.transitions import FINAL_STATES
from tenants import door
from tenants.models import Tenant

SHOWN_ATTEMPTS = 50
SHOWN_LINKED = 20
SHOWN_EVENTS = 20


class Delay(NamedTuple):
    """A rule that held its first release back."""

    title: str
    code: str
    seconds: float


@page(
    "execution", "executions/<uuid:execution_id>/", title="Execution", template="console/execution.html", site=TENANT,
    place="executions",
)  # fmt: skip
def execution(request: HttpRequest, now: datetime, execution_id: UUID) -> dict[str, Any]:
    """All that is known of it, archived ones too."""
    tenant = tenant_of(request)
    found = execution_anywhere(tenant, execution_id)
    if found is None:
        raise NotFound("There is no such execution.")
    row, attempts = _read(tenant, found, now)
    around = around_of(door.raw(), tenant, row, attempts)
    bar = parts(row, attempts, now=now)
    late = lateness(row, attempts, now=now)
    ended = row.state in FINAL_STATES
    payload, source = _payload(row, around)
    return {
        "title": around.job_name or "A job that is gone", "row": row, "around": around, "parts": bar, "ended": ended,
        "events": _told(row, attempts, around),
        "bar": phases(bar, meaning="; ".join(one.label for one in bar)) if bar else "",
        "late": late, "is_late": late is not None and late.seconds >= LATE_S, "delays": _delays(around.delays),
        "more_attempts": row.attempt_count > SHOWN_ATTEMPTS, "shown_attempts": SHOWN_ATTEMPTS,
        "linked": linked_of(door.raw(), tenant.schema_name, row.id, most=SHOWN_LINKED),
        "sent": _sent(tenant, row, around, payload), "target": masked(loaded(around.target)),
        "payload": masked(payload), "payload_of": source,
        "answer": answer_of(loaded(row.result)), "error": _error(row, attempts),
        "progress": masked(loaded(row.progress)), "labels": loaded(row.labels) or {},
        "trail": _trail(request, tenant, row, around), "lease": _lease(around, now), "no_rerun": _no_rerun(row),
    }  # fmt: skip


def _read(tenant: Tenant, found: Found, now: datetime) -> tuple[ExecutionRow, list[AttemptRow]]:
    """Its row, with the rule that it waits for, and its newest attempts, oldest first."""
    if found.archived is not None:
        return found.row, attempts_find(found.archived, before=None, size=SHOWN_ATTEMPTS).rows[::-1]
    (row,) = with_reasons(tenant, [found.row], now=now)
    return row, attempts_of(tenant, row, before=None, size=SHOWN_ATTEMPTS).rows[::-1] if row.attempt_count else []


def _told(row: ExecutionRow, attempts: Sequence[AttemptRow], around: Around) -> list[Event]:
    """The timeline, with names of machines and without secrets."""
    machines = {UUID(key): name for key, name in (loaded(around.machines) or {}).items()}
    return [one._replace(error=masked(one.error)) for one in events(row, attempts, machines=machines)]


def _delays(text: str | None) -> list[Delay]:
    found = loaded(text) if text else []
    return [Delay(words_of(str(one["code"])).title, str(one["code"]), float(one["s"])) for one in found]


def _payload(row: ExecutionRow, around: Around) -> tuple[Any, str]:
    """What it runs with, and where that is from: its own, else its schedule's, else its job's."""
    if row.erased_at is not None:
        return None, "erased"
    if row.payload is not None:
        return loaded(row.payload), "its own"
    if around.own_payload:
        return loaded(around.schedule_payload), "its schedule's"
    return loaded(around.job_payload), "its job's"


def _sent(tenant: Tenant, row: ExecutionRow, around: Around, payload: Any) -> Sent | None:
    """The request of an HTTP job; of other kinds there is none."""
    target = loaded(around.target)
    if around.job_kind != "http" or not isinstance(target, Mapping):
        return None
    values = {
        "run_key": row.run_key, "execution_id": str(row.id), "attempt": max(1, row.attempt_count),
        "nominal_at": row.nominal_at, "trigger": row.trigger, "tenant": {"slug": tenant.slug},
        "job": {"id": str(row.job_id), "name": around.job_name}, "labels": loaded(row.labels) or {},
        "schedule": {"id": str(row.schedule_id), "name": around.schedule_name} if row.schedule_id else None,
    }  # fmt: skip
    return request_of(target, payload, values, run_key=row.run_key)


def _error(row: ExecutionRow, attempts: Sequence[AttemptRow]) -> Any:
    """Its error, where the timeline has not told it with the last attempt."""
    error = loaded(row.error)
    return None if attempts and error == loaded(attempts[-1].error) else masked(error)


def _trail(request: HttpRequest, tenant: Tenant, row: ExecutionRow, around: Around) -> list[Shown] | None:
    """The newest rows of the trail about it and its dead letter; None for whoever may not read the trail."""
    if not request.user.has_perm("audit.view_auditevent"):
        return None
    things = [str(key) for key in (row.id, around.letter_id) if key is not None]
    return newest_about(tenant.pk, things, most=SHOWN_EVENTS)


def _lease(around: Around, now: datetime) -> str:
    """How the lease of what runs it stands."""
    until = around.deadline if around.remote else around.expires_at
    if around.worker_id is None and not around.remote:
        return ""
    if until is None:
        return "its worker is gone"
    left = (until - now).total_seconds()
    return f"lease for {span(left)}" if left >= 0 else f"lease over for {span(-left)}"


def _no_rerun(row: ExecutionRow) -> str:
    """Why it can't be run again; empty when it can."""
    if row.state not in FINAL_STATES:
        return "It has not ended."
    if row.erased_at is not None:
        return "It was erased: there is nothing left to run again."
    return "It is archived: restore it first." if row.archived_at is not None else ""
