"""Where one can go: the navigation of both sites. A place is shown to those who may see the page of its name."""

from __future__ import annotations

from typing import Any, NamedTuple

from apps.console.pages import PUBLIC, TENANT, level_of
from apps.console.roles import may


class Place(NamedTuple):
    """One entry. `key` is typed after g to go there; `path` is below the site's /admin/, or whole."""

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
    Place("platform", "Overview", "home", "/admin/", "o"),  # of all tenants
    Place("executions", "Executions", "play", "executions/", "e"),
    Place("schedules", "Schedules", "clock", "schedules/", "c"),
    Place("deadletters", "Dead letters", "alert", "dead-letters/", "d"),
    Place("operations", "Operations", "stack", "operations/", "p"),
    Place("backfills", "Backfills", "undo", "backfills/", "b"),
    Place("workflowruns", "Workflow runs", "steps", "workflow-runs/", "w"),
    Place("tables", "Tables", "book", "", "x"),
)
# Where the page of a verb belongs, by the first word of its name.
OF_VERBS = {
    "apikey": "tables", "audit": "audit", "breaker": "tables", "deadletter": "deadletters",
    "deadletters": "deadletters", "dispatch": "overview", "dispatcher": "shards", "dueentry": "tables",
    "execution": "executions", "invitation": "tables", "lease": "shards", "member": "tables",
    "operation": "operations", "plan": "tenants", "provider": "tables", "queue": "workers", "schedule": "schedules",
    "tenant": "tenants", "ticket": "executions", "worker": "workers",
    "workflowrun": "workflowruns", "workflowstep": "workflowruns",
}  # fmt: skip


def place_of_verb(verb: str, slug: str = "") -> tuple[Place, str]:
    """The place that a verb's page belongs to, with its address; `slug` is that of the tenant it is in."""
    found = {one.name: one for one in (OF_TENANT if slug else OF_PLATFORM)}
    one = found.get(OF_VERBS[verb.partition(".")[0]], found["tables"])  # of rows of several tenants: their table
    return one, _address(one, slug)


def places_of(user: Any, slug: str = "") -> list[tuple[Place, str]]:
    """The places of the platform, or of a tenant, that somebody may go to, each with its address."""
    kind, found = (TENANT, OF_TENANT) if slug else (PUBLIC, OF_PLATFORM)
    return [(one, _address(one, slug)) for one in found if _is_open(kind, one, user)]


def _address(one: Place, slug: str) -> str:
    if one.path.startswith("/"):
        return one.path
    return f"/t/{slug}/admin/{one.path}" if slug else f"/admin/{one.path}"


def _is_open(kind: str, one: Place, user: Any) -> bool:
    if kind == TENANT and one.path in ("", "/admin/"):
        return True  # the first pages of the two sites
    return (level := level_of(kind, one.name)) is not None and (not level or may(user, level))
