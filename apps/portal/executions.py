"""Executions: what ran, what runs and what happened to one of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from apps.archive.finding import Found, attempts_find, execution_anywhere, executions_find
from apps.deadletters.models import DeadLetter
from apps.dispatch.reasons import with_reasons
from apps.executions.filtering import ExecutionFilter
from apps.executions.models import TRIGGERS
from apps.executions.reading import ExecutionRow, executions_read
from apps.executions.reading_attempts import attempts_of
from apps.portal.pages import Offer, Page
from apps.portal.wishes import ALIVE, ExecutionsCancel, ExecutionsRerun, offer_for
from apps.presenting.charts import phases
from apps.presenting.fields import Field, Form, Option, choices
from apps.presenting.paging import PAGE_ROWS, as_uuid, paged, position_of
from apps.presenting.timeline import events, loaded, parts, why_late
from apps.schedules.defined import jobs_of
from apps.schedules.models import Job
from apps.schedules.names import Names, job_options, names_of
from apps.workflows.dependencies.depending_reading import linked_of
from kernel.durations import span
from kernel.errors import NotFound
from kernel.transitions import EXECUTION_STATES, FINAL_STATES
from tenants import door

SHOWN_ATTEMPTS = 50
SHOWN_LINKED = 20
ARCHIVED = "archived"
WINDOWS = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7), "all": None, ARCHIVED: None}
WINDOW_WORDS = {
    "1h": "last hour", "24h": "last 24 hours", "7d": "last 7 days", "all": "all that is kept", ARCHIVED: "archived"
}  # fmt: skip


class Line(NamedTuple):
    """A row of the list."""

    row: ExecutionRow
    job: str
    schedule: str
    took: str


class ExecutionList(Page):
    """All executions, newest first."""

    actions = {"GET": "execution.read"}
    section = "executions"

    def get(self, request: HttpRequest) -> HttpResponse:
        form = self._form(request)
        window = request.GET.get("window", "24h")
        window = window if window in WINDOWS else "24h"
        wanted = _filter(form, WINDOWS[window], self.now)
        read = executions_find if window == ARCHIVED else executions_read
        found = read(self.tenant, wanted, after=position_of(request), size=PAGE_ROWS)
        return self.page(
            "portal/executions.html", title="Executions", form=form, windows=_windows(request, window),
            window=window, listed=paged(request, lines(found.rows, now=self.now), after=found.after and found.after.id),
            filtered=any(one.value for one in form.fields.values()), offers=self._offers(form, window),
        )  # fmt: skip

    def _offers(self, form: Form, window: str) -> list[Offer]:
        """What can be done to all of these at once; to what is archived nothing."""
        if window == ARCHIVED:
            return []
        state, since = form.text("state"), WINDOWS[window]
        given = {name: form.text(name) for name in ("state", "job", "trigger", "schedule")}
        if since is not None:
            given["created_after"] = (self.now - since).isoformat(timespec="seconds")
        if state in FINAL_STATES:
            return [offer_for(self, ExecutionsRerun, given)]
        return [offer_for(self, ExecutionsCancel, given, state=ALIVE)]

    def _form(self, request: HttpRequest) -> Form:
        anything = [Option("", "any")]
        form = Form([
            Field("state", "State", "select", options=[*anything, *choices(EXECUTION_STATES)]),
            Field("job", "Job", "select"),
            Field("trigger", "Started by", "select", options=[*anything, *choices(TRIGGERS)]),
            Field("schedule", "Schedule", "hidden"),
        ])  # fmt: skip
        form.take(request.GET)
        job = as_uuid(form.text("job"))
        form["job"].options = [*anything, *(Option(*one) for one in job_options(also=job))]
        form["job"].value = str(job) if job else ""
        return form


class ExecutionDetail(Page):
    """One execution."""

    actions = {"GET": "execution.read"}
    section = "executions"

    def get(self, request: HttpRequest, execution_id: UUID) -> HttpResponse:
        row, archived = access_execution(self, execution_id)
        if archived is not None:
            attempts = attempts_find(archived, before=None, size=SHOWN_ATTEMPTS).rows[::-1]
        else:
            (row,) = with_reasons(self.tenant, [row], now=self.now)
            attempts = attempts_of(self.tenant, row, before=None, size=SHOWN_ATTEMPTS).rows[::-1]
        names = names_of(jobs=[row.job_id], schedules=[row.schedule_id])
        bar = parts(row, attempts, now=self.now)
        letter = DeadLetter.objects.filter(execution_id=row.id).order_by("-pk").first()
        linked = linked_of(door.raw(), self.tenant.schema_name, row.id, most=SHOWN_LINKED)
        return self.page(
            "portal/execution.html", title="Execution", row=row, job=names.jobs.get(row.job_id, ""),
            job_page=row.job_id in names.pages,
            schedule=names.schedules.get(row.schedule_id, "") if row.schedule_id else "",
            events=events(row, attempts), bar=phases(bar, meaning="; ".join(one.label for one in bar)) if bar else "",
            parts=bar, late=why_late(row, attempts), letter=letter, linked=linked,
            more_attempts=row.attempt_count > SHOWN_ATTEMPTS,
            payload=loaded(row.payload), result=loaded(row.result), error=loaded(row.error),
            progress=loaded(row.progress), labels=loaded(row.labels) or {}, offers=self._offers(row, letter),
        )  # fmt: skip

    def _offers(self, row: ExecutionRow, letter: DeadLetter | None) -> list[Offer]:
        ended = row.state in FINAL_STATES
        found = [self.offer("Why?", "portal:execution-explain", "execution.read", row.id)]
        if letter is not None and letter.resolved_at is None:
            found.append(
                self.offer("Replay", "portal:deadletter-replay", "deadletter.replay", letter.pk, kind="primary")
            )
        if ended:
            gone = gone_of(row)
            found.append(self.offer("Run again", "portal:execution-rerun", "execution.rerun", row.id, blocked=gone))
            if row.erased_at is None:
                found.append(self.offer("Erase", "portal:execution-erase", "execution.erase", row.id, kind="danger"))
        else:
            asked = "It was asked to stop already." if row.cancel_requested else ""
            found.append(
                self.offer(
                    "Cancel", "portal:execution-cancel", "execution.cancel", row.id, kind="danger", blocked=asked
                )
            )
        return found


def access_execution(page: Page, execution_id: UUID) -> Found:
    """An execution with its live state, in the tenant of the host, or as it was when it was archived; the same 404 for
    all that is not there."""
    found = execution_anywhere(page.tenant, execution_id)
    if found is None:
        raise NotFound("There is no such execution.")
    return found


def gone_of(row: ExecutionRow) -> str:
    """Why it can't be run again; empty when it can."""
    if row.erased_at is not None:
        return "It was erased: there is nothing left to run again."
    return "It is archived; ask an operator to restore it first." if row.archived_at is not None else ""


def lines(rows: list[ExecutionRow], *, now: datetime, job: Job | None = None) -> list[Line]:
    """Rows with names and how long they took; `job` where all are of that one."""
    names = names_of(jobs=() if job else (row.job_id for row in rows), schedules=(row.schedule_id for row in rows))
    if job is not None:
        names.jobs[job.pk] = job.name
    return [_line(row, names, now) for row in rows]


def _line(row: ExecutionRow, names: Names, now: datetime) -> Line:
    took = ""
    if row.started_at is not None:
        took = span(((row.finished_at or now) - row.started_at).total_seconds())
    schedule = names.schedules.get(row.schedule_id, "") if row.schedule_id else ""
    return Line(row, names.jobs.get(row.job_id, "a job that is gone"), schedule, took)


def _filter(form: Form, window: timedelta | None, now: datetime) -> ExecutionFilter:
    state, trigger = form.text("state"), form.text("trigger")
    job, schedule = as_uuid(form.text("job")), as_uuid(form.text("schedule"))
    return ExecutionFilter(
        states=[state] if state in EXECUTION_STATES else [],
        triggers=[trigger] if trigger in TRIGGERS else [],
        job_ids=[job] if job else None,
        schedule_id=schedule,
        schedule_job_ids=jobs_of(schedule) if schedule else [],
        created_after=now - window if window is not None else None,
    )


def _windows(request: HttpRequest, chosen: str) -> list[dict[str, Any]]:
    found = []
    for name in WINDOWS:
        query = request.GET.copy()
        query.pop("before", None)
        query["window"] = name
        found.append({"url": f"?{query.urlencode()}", "label": WINDOW_WORDS[name], "chosen": name == chosen})
    return found
