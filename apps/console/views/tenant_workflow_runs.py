"""A tenant's runs of workflows: a list, and one run with its graph, its steps, and where its time went."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from django.http import Http404, HttpRequest
from django.urls import reverse

from apps.console.middleware import tenant_of
from apps.console.pages import TENANT, page
from apps.console.shown import masked
from apps.presenting import gantt
from apps.presenting.paging import PAGE_ROWS, paged, position_of
from apps.presenting.shown import look_of
from apps.workflows.definitions.graph import Graph
from apps.workflows.models import STEP_ENDS
from apps.workflows.views.blocking import blocked_by
from apps.workflows.views.critical import Bar, Timeline, timeline
from apps.workflows.views.drawing import Shown, graph_on_page
from apps.workflows.views.runs_reading import ALIVE, STATES, RunFilter, RunRow, run_read, runs_read
from apps.workflows.views.runs_viewing import EMPTY, run_graph, run_states
from apps.workflows.views.steps_reading import StepRow, step_times, steps_read
from kernel.durations import span
from kernel.errors import Conflict
from tenants.models import Tenant

STEPS_SHOWN = 200
AGAIN = ("failed", "cancelled")


class Line(NamedTuple):
    """A step as the list shows it. `bar` is its picture in the Gantt chart, empty while it waits."""

    row: StepRow
    anchor: str
    blocked_by: str
    bar: str
    waited_s: float | None
    ran_s: float | None
    critical: bool
    url: str  # of its execution, or of the run that it started
    target: str  # of verbs
    may_skip: bool
    may_rerun: bool


@page(
    "workflowruns", "workflow-runs/", title="Workflow runs", template="console/machines/tenant_workflow_runs.html",
    site=TENANT,
)  # fmt: skip
def run_list(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """Newest first; `live` are those that have not ended."""
    state = request.GET.get("state", "")
    states = sorted(ALIVE) if state == "live" else [state] if state in STATES else []
    found = runs_read(tenant_of(request), RunFilter(states=states), after=position_of(request), size=PAGE_ROWS)
    return {
        "listed": paged(request, found.rows, after=found.after and found.after.id), "state": state,
        "chips": [("", "all"), ("live", "have not ended"), *((one, look_of(one).word) for one in STATES)],
    }  # fmt: skip


@page(
    "workflowrun", "workflow-runs/<uuid:key>/", title="Workflow run", template="console/machines/workflow_run.html",
    site=TENANT, place="workflowruns",
)  # fmt: skip
def run_page(request: HttpRequest, now: datetime, key: UUID) -> dict[str, Any]:
    """One run: what is drawn and what is listed come from the same rows."""
    tenant = tenant_of(request)
    run = run_read(tenant, key)
    if run is None:
        raise Http404("There is no such run.")
    steps = steps_read(tenant, key, limit=STEPS_SHOWN + 1) if run.begun else []
    graph = _graph(tenant, run)
    states = run_states(tenant, run)
    times = _times(tenant, run, graph, now=now)
    lines = _lines(run, steps[:STEPS_SHOWN], graph, states, times, now=now)
    title = f"{run.workflow_name}, version {run.version}: {run.state}"
    return {
        "title": f"Run of {run.workflow_name}", "run": run, "lines": lines, "more": len(steps) > STEPS_SHOWN,
        "picture": _picture(graph, lines, states, title), "times": times, "is_alive": run.state in ALIVE,
        "may_retry": run.begun and run.state in AGAIN, "unreadable": graph is None,
        "error": _loaded(run.error), "input": _loaded(run.input), "output": _loaded(run.output),
    }  # fmt: skip


def _graph(tenant: Tenant, run: RunRow) -> Graph | None:
    try:
        return run_graph(tenant, run)
    except Conflict:  # the page says so, and still shows the steps
        return None


def _times(tenant: Tenant, run: RunRow, graph: Graph | None, *, now: datetime) -> Timeline:
    if run.started_at is None or graph is None:
        return EMPTY
    return timeline(graph, step_times(tenant, run.id), started_at=run.started_at, now=now)


def _picture(graph: Graph | None, lines: list[Line], states: dict[str, Shown], title: str) -> str:
    if graph is None:
        return ""
    links = {one.row.step: f"#{one.anchor}" for one in lines}
    return graph_on_page(graph.workflow, title=title, states=states, links=links)


def _lines(
    run: RunRow, rows: Sequence[StepRow], graph: Graph | None, states: dict[str, Shown], times: Timeline, *,
    now: datetime,
) -> list[Line]:  # fmt: skip
    bars = {one.step: one for one in times.bars}
    stands = {name: one.state for name, one in states.items()}
    found = []
    for row in rows:
        text = blocked_by(
            graph.steps.get(row.step) if graph else None, state=row.state, type_=row.type, run_state=run.state,
            states=stands, now=now, execution_state=row.execution_state, wake_at=row.wake_at, items=row.items,
            items_open=row.items_open,
        )  # fmt: skip
        found.append(_line(run, row, text, bars.get(row.step), times))
    return found


def _line(run: RunRow, row: StepRow, text: str, bar: Bar | None, times: Timeline) -> Line:
    url = ""
    if row.execution_id is not None:
        name = "console:workflowrun" if row.type == "workflow" else "console:execution"
        url = reverse(name, args=[row.execution_id])
    return Line(
        row, f"step-{row.id}", text, _bar(bar, times) if bar else "", bar.begin_s - bar.start_s if bar else None,
        bar.end_s - bar.begin_s if bar else None, bool(bar and bar.critical), url,
        target=f"{run.id}/{row.step}", may_skip=row.state == "waiting" and run.state in ("running", "paused"),
        may_rerun=row.state in STEP_ENDS and row.type in ("job", "workflow"),
    )  # fmt: skip


def _bar(bar: Bar, times: Timeline) -> str:
    label = f"{bar.step}: waited {span(bar.begin_s - bar.start_s)}, ran {span(bar.end_s - bar.begin_s)}"
    if bar.critical:
        label += "; on the critical path"
    return gantt.line(
        start_s=bar.start_s, begin_s=bar.begin_s, end_s=bar.end_s, total_s=times.total_s,
        tone=look_of(bar.state).tone, critical=bar.critical, label=label,
    )  # fmt: skip


def _loaded(text: str | None) -> Any:
    return None if text is None else masked(orjson.loads(text))
