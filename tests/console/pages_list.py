"""Every page of the operators' console, for those who look at all of them: the sweep (test_sweep.py) and the bench.

A page that is not here is not looked at: whoever adds one adds its path. Names in braces are filled in from a `World`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from uuid import UUID


@dataclass(frozen=True)
class World:
    """One of each thing that pages are about, as paths name them; all of the tenant `slug`."""

    slug: str
    tenant: int
    job: UUID
    schedule: UUID
    waiting: UUID  # executions: one that waits, one that succeeded, one that failed for good
    done: UUID
    dead: UUID
    letter: UUID
    fingerprint: str  # of the letter's group
    run: UUID  # of a workflow
    operation: UUID
    backfill: UUID
    shard: int
    worker: str
    dispatcher: str
    queue: str = "shardbeat.system"

    def paths(self, pages: tuple[str, ...]) -> list[str]:
        """The pages with the names filled in."""
        return [page.format_map(asdict(self)) for page in pages]


# --- over all tenants -------------------------------------------------------------------------------------------------
LIVE = ("/admin/", "/admin/cause/", "/admin/tables/")
RUNS = ("/admin/live/", "/admin/live/?tenant={slug}&state=running&older=1m")
FIGURES = (
    "/admin/tenants/", "/admin/tenants/?show=busy&sort=quota&q={slug}", "/admin/dead-letters/",
    "/admin/dead-letters/?what=failures&window=1h", "/admin/dead-letters/{fingerprint}/",
)  # fmt: skip
FORECAST = ("/admin/forecast/", "/admin/forecast/?zone=Europe/Berlin&tenant={slug}&jitter_s=300")
MACHINES = (
    "/admin/shards/", "/admin/shards/fire-{shard}/", "/admin/dispatchers/{dispatcher}/", "/admin/workers/",
    "/admin/workers/{worker}/", "/admin/queues/{queue}/", "/admin/operations/", "/admin/operations/?show=ended",
    "/admin/backfills/", "/admin/workflow-runs/",
)  # fmt: skip
VERBS: tuple[str, ...] = (
    "/admin/audit/", "/admin/audit/?window=day&refused=1", "/admin/audit/export/?tenant={slug}",
    "/admin/do/dispatch.pause/all/", "/admin/do-many/ticket.cancel/?row={slug}/{waiting}&row=nobody/{done}",
    "/admin/do/tenant.plan/{slug}/", "/admin/do/worker.drain/{worker}/", "/admin/do/lease.release/fire/{shard}/",
    "/admin/do/audit.verify/{slug}/", "/admin/do/lease.rebalance/all/", "/t/{slug}/admin/do/ticket.cancel/{waiting}/",
)  # fmt: skip
EVERYWHERE = ("/admin/find/", "/admin/find/?q=a", "/admin/find/?q={dead}", "/admin/views/", "/admin/views/?url=/admin/")

# --- in a tenant ------------------------------------------------------------------------------------------------------
TENANT = ("/t/{slug}/admin/",)
TENANT_RUNS: tuple[str, ...] = (
    "/t/{slug}/admin/executions/", "/t/{slug}/admin/executions/?window=all&state=dead",
    "/t/{slug}/admin/executions/{waiting}/", "/t/{slug}/admin/executions/{done}/", "/t/{slug}/admin/executions/{dead}/",
    "/t/{slug}/admin/do/execution.rerun/{done}/", "/t/{slug}/admin/do/execution.cancel/{waiting}/",
)  # fmt: skip
TENANT_SCHEDULES = (
    "/t/{slug}/admin/schedules/", "/t/{slug}/admin/schedules/{schedule}/", "/t/{slug}/admin/schedules/{schedule}/edit/",
    "/t/{slug}/admin/schedules/new/",
)  # fmt: skip
TENANT_FIGURES = (
    "/t/{slug}/admin/dead-letters/", "/t/{slug}/admin/dead-letters/list/?status=all&window=31d",
    "/t/{slug}/admin/dead-letters/causes/{fingerprint}/", "/t/{slug}/admin/dead-letters/{letter}/",
    "/t/{slug}/admin/do/deadletters.replay/{fingerprint}/",
)  # fmt: skip
TENANT_MACHINES = (
    "/t/{slug}/admin/operations/", "/t/{slug}/admin/operations/{operation}/", "/t/{slug}/admin/backfills/",
    "/t/{slug}/admin/backfills/{backfill}/", "/t/{slug}/admin/workflow-runs/", "/t/{slug}/admin/workflow-runs/{run}/",
)  # fmt: skip
# All verbs have one page; these have fields of their own, or say that it can't be done now.
TENANT_VERBS: tuple[str, ...] = (
    "/t/{slug}/admin/do/schedule.pause/{schedule}/", "/t/{slug}/admin/do/schedule.trigger/{schedule}/",
    "/t/{slug}/admin/do/schedule.resume/{schedule}/", "/t/{slug}/admin/do/schedule.backfill/{schedule}/",
    "/t/{slug}/admin/do/deadletters.assign/{fingerprint}/", "/t/{slug}/admin/do/deadletter.resolve/{letter}/",
    "/t/{slug}/admin/do/operation.pace/{operation}/", "/t/{slug}/admin/do/workflowrun.retry/{run}/",
)  # fmt: skip

PUBLIC_PAGES = (*LIVE, *RUNS, *FIGURES, *FORECAST, *MACHINES, *VERBS, *EVERYWHERE)
TENANT_PAGES = (*TENANT, *TENANT_RUNS, *TENANT_SCHEDULES, *TENANT_FIGURES, *TENANT_MACHINES, *TENANT_VERBS)
PAGES = (*PUBLIC_PAGES, *TENANT_PAGES)

# What is answered where there is no page.
MISSING = (
    "/admin/nothing/", "/admin/do/nothing.such/all/", "/t/nobody/admin/", "/t/{slug}/admin/executions/{schedule}/",
)  # fmt: skip

# Django's own pages, of which some are looked at: they share their templates.
TABLES = (
    "/admin/tickets/ticket/", "/admin/due/dueentry/", "/admin/audit/auditevent/",
    "/admin/tenants/tenant/{tenant}/change/",
    "/t/{slug}/admin/executions/execution/", "/t/{slug}/admin/executions/execution/{dead}/change/",
)  # fmt: skip
