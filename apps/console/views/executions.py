"""A tenant's runs, newest first, with the state of this moment."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Lower
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.archive.finding import executions_find
from apps.console.chips import chips
from apps.console.middleware import tenant_of
from apps.console.pages import TENANT, page
from apps.dispatch.reasons import with_reasons
from apps.executions.filtering import ExecutionFilter
from apps.executions.models import TRIGGERS
from apps.executions.reading import ExecutionRow, executions_read
from apps.presenting.paging import PAGE_ROWS, as_uuid, paged, position_of
from apps.schedules.defined import jobs_of
from apps.schedules.models import Job, Schedule
from apps.schedules.names import names_of
from kernel.durations import span
from kernel.eventtypes import DELIVERY
from kernel.keyset import Page
from kernel.transitions import EXECUTION_STATES, LIVE_STATES

ALIVE, ARCHIVED = "alive", "archived"
WINDOWS = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7), "all": None, ARCHIVED: None}
WINDOW_WORDS = {
    "1h": "made in the last hour", "24h": "24 hours", "7d": "7 days", "all": "all that is kept", ARCHIVED: "archived",
}  # fmt: skip
OFFERED = tuple(one for one in TRIGGERS if one != DELIVERY)  # those are listed with their webhook
NO_ID = UUID(int=0)
LATE_S = 1.0


class Line(NamedTuple):
    """A row of the list."""

    row: ExecutionRow
    job: str
    schedule: str
    late: str
    took: str


class Asked(NamedTuple):
    """What the address asks for, and what of it stands for nothing."""

    window: str
    state: str
    given: dict[str, str]
    filter: ExecutionFilter
    faults: list[str]


@page("executions", "executions/", title="Executions", template="console/executions.html", site=TENANT)
def executions(request: HttpRequest, now: datetime) -> HttpResponse | dict[str, Any]:
    """The list. The id of an execution in its search leads to the execution."""
    key = as_uuid(request.GET.get("q", ""))
    if key is not None:
        return redirect("console:execution", key)
    asked = _asked(request, now)
    read = executions_find if asked.window == ARCHIVED else executions_read
    found: Page[ExecutionRow] = read(tenant_of(request), asked.filter, after=position_of(request), size=PAGE_ROWS)
    rows = found.rows if asked.window == ARCHIVED else with_reasons(tenant_of(request), found.rows, now=now)
    states = [("", "any state"), (ALIVE, "alive"), *((one, one) for one in EXECUTION_STATES)]
    return {
        "asked": asked, "triggers": OFFERED,
        "listed": paged(request, lines(rows, now), after=found.after and found.after.id),
        "windows": chips(request, "window", WINDOW_WORDS.items(), chosen=asked.window),
        "states": chips(request, "state", states, chosen=asked.state),
    }  # fmt: skip


def lines(rows: list[ExecutionRow], now: datetime) -> list[Line]:
    """Rows with names, how late they started and how long they took."""
    names = names_of(jobs=(row.job_id for row in rows), schedules=(row.schedule_id for row in rows))
    return [
        Line(
            row, names.jobs.get(row.job_id, "a job that is gone"),
            names.schedules.get(row.schedule_id, "") if row.schedule_id else "", _late(row, now), _took(row, now),
        )
        for row in rows
    ]  # fmt: skip


def _late(row: ExecutionRow, now: datetime) -> str:
    """How late it started, or is by now; empty where that is nothing to tell."""
    if row.state in ("skipped", "scheduled", "blocked") or (row.started_at is None and row.finished_at is not None):
        return ""
    seconds = ((row.started_at or now) - row.actual_at).total_seconds()
    return span(seconds) if seconds >= LATE_S else ""


def _took(row: ExecutionRow, now: datetime) -> str:
    if row.started_at is None:
        return ""
    return span(max(0.0, ((row.finished_at or now) - row.started_at).total_seconds()))


def _asked(request: HttpRequest, now: datetime) -> Asked:
    names = ("job", "schedule", "trigger", "q")
    given = {name: request.GET.get(name, "").strip()[:200] for name in names}
    window, state = request.GET.get("window", "24h"), request.GET.get("state", "")
    window = window if window in WINDOWS else "24h"
    state = state if state in (*EXECUTION_STATES, ALIVE) else ""
    jobs, schedule = _jobs(given["job"]), _schedule(given["schedule"])
    faults = [
        f"There is no {what} of this name or id."
        for what, found in (("job", jobs), ("schedule", schedule))
        if given[what] and not found
    ]
    since = WINDOWS[window]
    wanted = ExecutionFilter(
        states=LIVE_STATES if state == ALIVE else [state] if state else [],
        triggers=[given["trigger"]] if given["trigger"] in OFFERED else [],
        job_ids=jobs if given["job"] else None, schedule_id=NO_ID if given["schedule"] and not schedule else schedule,
        schedule_job_ids=jobs_of(schedule) if schedule else [], run_key=given["q"] or None,
        created_after=None if since is None or given["q"] else now - since,
    )  # fmt: skip
    return Asked(window, state, given, wanted, faults)


def _jobs(text: str) -> list[UUID]:
    """The job of an id, also of a deleted one, or that of a name."""
    return _ids(Job.objects.all(), text, workflow_id=None)  # a workflow may be called like a job


def _schedule(text: str) -> UUID | None:
    """The same of a schedule."""
    return next(iter(_ids(Schedule.objects.all(), text)), None)


def _ids(rows: QuerySet[Any], text: str, **named: Any) -> list[UUID]:
    if not text:
        return []
    key = as_uuid(text)
    if key is not None:
        found = rows.filter(pk=key)
    else:
        found = rows.filter(deleted_at=None, **named).annotate(lower=Lower("name")).filter(lower=text.lower())
    return list(found.values_list("pk", flat=True)[:2])
