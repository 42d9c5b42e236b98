"""Is anyone working? Queues with their rates and consumers, and the workers."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.http import Http404, HttpRequest

from apps.console.machines.slugs import slugs_of
from apps.console.machines.workers_read import WORKERS_MOST, QueueRow, queue_read, worker_read, workers_read
from apps.console.pages import page
from apps.dispatch.pressure.queueing import QUEUES_KEPT
from apps.tickets.alive import AliveFilter, alive_read
from kernel.pools import CELERY_POOLS, pool_of_queue, tenant_of
from tenants import door
from tenants.models import DispatchPause
from tenants.pauses import pauses

RUNS_SHOWN = 100


@page("workers", "workers/", title="Workers & queues", template="console/machines/workers.html")
def workers(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """Queues that have work, pools, and worker processes."""
    found = workers_read(door.raw())
    only = request.GET.get("show", "")
    rows = [one for one in found.queues if _wanted(only, one)]
    live, held = [one for one in found.workers if one.live], _pauses()
    return {
        "found": found, "rows": rows, "only": only, "queues_most": QUEUES_KEPT, "workers_most": WORKERS_MOST,
        "chips": [
            ("", "all with work", len(found.queues)), ("abandoned", "nothing consumes it", len(found.abandoned)),
            ("waiting", "something waits", sum(_wanted("waiting", one) for one in found.queues)),
        ],
        "slots": sum(one.all_slots for one in live), "held": sum(one.held for one in live),
        "depth": sum(one.figures.depth for one in found.queues),
        "versions": sorted({one.version for one in live}), "pauses": held,
        "paused": {one.row.pool for one in held if not one.row.tenant_id},
    }  # fmt: skip


@page("worker", "workers/<uuid:key>/", title="Worker", template="console/machines/worker.html", place="workers")
def worker(request: HttpRequest, now: datetime, key: UUID) -> dict[str, Any]:
    """One process, its queues, and what it runs."""
    found = worker_read(door.raw(), key)
    if found is None:
        raise Http404("There is no such worker, or it ended long ago.")
    one, queues, rates = found
    runs = alive_read(door.raw(), AliveFilter(worker_id=key), size=RUNS_SHOWN)
    slugs = slugs_of(run.tenant_id for run in runs.rows)
    return {
        "title": f"Worker {one.host}:{one.pid}", "one": one, "more": runs.after is not None,
        "queues": [(queue, rates.get(queue)) for queue in queues],
        "runs": [(run, slugs.get(run.tenant_id, "")) for run in runs.rows],
    }  # fmt: skip


@page("queue", "queues/<path:name>/", title="Queue", template="console/machines/queue.html", place="workers")
def queue(request: HttpRequest, now: datetime, name: str) -> dict[str, Any]:
    """One queue: what waits for it, and who listens."""
    found = queue_read(door.raw(), name)
    if found is None:
        raise Http404("There is no such queue: nobody listens to it, and nothing waits for it.")
    target = _pausable(name)
    return {
        "title": f"Queue {name}", "found": found, "one": found.row, "figures": found.row.figures, "target": target,
        "is_paused": target in {_target(one.row.pool, one.slug) for one in _pauses()},
    }  # fmt: skip


class _Held(NamedTuple):
    """A pause with its tenant as people call it; empty for all of them."""

    row: DispatchPause
    slug: str


def _pauses() -> list[_Held]:
    rows = pauses()
    slugs = slugs_of(one.tenant_id for one in rows if one.tenant_id)
    return [_Held(one, slugs.get(one.tenant_id or 0, "")) for one in rows]


def _pausable(name: str) -> str:
    """What the verbs of a queue are about: its pool, of its tenant alone where the queue is a tenant's own."""
    pool = pool_of_queue(name)
    return _target(pool, tenant_of(name)) if pool in CELERY_POOLS else ""


def _target(pool: str, slug: str) -> str:
    return f"{pool}@{slug}" if slug else pool


def _wanted(only: str, one: QueueRow) -> bool:
    if only == "abandoned":
        return one.abandoned
    return one.figures.depth > 0 if only == "waiting" else True
