"""Where one can go: the navigation of both sites. A place is shown to those who may see the page of its name."""

from __future__ import annotations

from typing import Any, NamedTuple

from apps.console.pages import PUBLIC, TENANT, level_of
from apps.console.roles import may


class Place(NamedTuple):
    """One entry. `key` is typed after g to go there; `path` is below the site's /admin/."""

    name: str
    label: str
    icon: str
    path: str
    key: str


OF_PLATFORM = (
    Place("overview", "Overview", "home", "", "o"),
    Place("live", "Live", "play", "live/", "l"),
    Place("deadletters", "Dead letters", "alert", "dead-letters/", "d"),
    Place("forecast", "Forecast", "clock", "forecast/", "f"),
    Place("operations", "Operations", "stack", "operations/", "p"),
    Place("backfills", "Backfills", "undo", "backfills/", "b"),
    Place("workflowruns", "Workflow runs", "steps", "workflow-runs/", "w"),
    Place("tenants", "Tenants", "people", "tenants/", "t"),
    Place("shards", "Shards & dispatchers", "gauge", "shards/", "s"),
    Place("workers", "Workers & queues", "box", "workers/", "q"),
    Place("audit", "Audit", "list", "audit/", "a"),
    Place("tables", "All tables", "book", "tables/", "x"),
)
OF_TENANT = (
    Place("executions", "Executions", "play", "executions/", "e"),
    Place("schedules", "Schedules", "clock", "schedules/", "c"),
    Place("deadletters", "Dead letters", "alert", "dead-letters/", "d"),
    Place("operations", "Operations", "stack", "operations/", "p"),
    Place("backfills", "Backfills", "undo", "backfills/", "b"),
    Place("workflowruns", "Workflow runs", "steps", "workflow-runs/", "w"),
    Place("tables", "Tables", "book", "", "x"),
)


def places_of(user: Any, slug: str = "") -> list[tuple[Place, str]]:
    """The places of the platform, or of a tenant, that somebody may go to, each with its address."""
    kind, found, base = (TENANT, OF_TENANT, f"/t/{slug}/admin/") if slug else (PUBLIC, OF_PLATFORM, "/admin/")
    return [(one, base + one.path) for one in found if _is_open(kind, one, user)]


def _is_open(kind: str, one: Place, user: Any) -> bool:
    if kind == TENANT and one.path == "":
        return True  # Django's own first page
    return (level := level_of(kind, one.name)) is not None and (not level or may(user, level))
