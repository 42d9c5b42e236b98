"""Where is it stuck? Runs of workflows of all tenants that have not ended."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest

from apps.console.machines.runs_read import runs_alive, runs_counted
from apps.console.machines.slugs import slugs_of, tenant_filter
from apps.console.pages import page
from apps.console.reading import CAP
from apps.presenting.paging import PAGE_ROWS, cursor_of, listed
from tenants import door

STATES = ("running", "ready", "queued", "blocked")


@page("workflowruns", "workflow-runs/", title="Workflow runs", template="console/machines/workflow_runs.html")
def workflow_runs(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """The oldest first."""
    of, state = tenant_filter(request), request.GET.get("state", "")
    state = state if state in STATES else ""
    rows = []
    if not of.unknown:
        rows = runs_alive(
            door.raw(), tenant_id=of.tenant_id, state=state, after=cursor_of(request), limit=PAGE_ROWS + 1
        )  # fmt: skip
    counts = runs_counted(door.raw(), most=CAP + 1)
    slugs = slugs_of(one.tenant_id for one in rows)
    shown = [(one, slugs.get(one.tenant_id, "")) for one in rows]
    return {
        "listed": listed(request, shown, key=lambda row: row[0].id), "slug": of.slug, "state": state,
        "unknown": of.unknown,
        "chips": [("", "all", sum(counts.values())), *((one, one, counts.get(one, 0)) for one in STATES)],
    }  # fmt: skip
