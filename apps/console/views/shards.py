"""Who serves what: slices with their holders, and the dispatchers."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest

from apps.console.machines.shards_read import DUE_COUNTED, SERVES, LeaseRow, Shards, due_of_shard, shards_read
from apps.console.machines.slugs import slugs_of
from apps.console.pages import page
from tenants import door

KEY = re.compile(r"(fire|release|reconcile|seal)-(\d{1,5})")


@page("shards", "shards/", title="Shards & dispatchers", template="console/machines/shards.html")
def shards(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """All slices, those that nobody serves and those with the oldest work first where that is asked for."""
    found = shards_read(door.raw())
    only = request.GET.get("show", "")
    rows = [one for one in found.leases if _wanted(only, one)]
    return {
        "found": found, "rows": rows, "only": only, "due_counted": DUE_COUNTED,
        "chips": [
            ("", "all", len(found.leases)), ("unheld", "without live holder", len(found.unheld)),
            ("due", "with something due", sum(_wanted("due", one) for one in found.leases)),
        ],
        "late_s": max((one.oldest_due_s or 0.0 for one in found.leases), default=0.0),
        "alive": [one for one in found.dispatchers if one.live], "serves": SERVES,
        "versions": sorted({one.version for one in found.dispatchers if one.live}),
    }  # fmt: skip


@page("shard", "shards/<str:key>/", title="Shard", template="console/machines/shard.html", place="shards")
def shard(request: HttpRequest, now: datetime, key: str) -> dict[str, Any]:
    """One slice, with the entries of it that are due for the longest."""
    match = KEY.fullmatch(key)
    found = shards_read(door.raw())
    lease = next((one for one in found.leases if match and one.key == key), None)
    if lease is None:
        raise Http404("There is no such shard.")
    due = due_of_shard(door.raw(), lease.shard) if lease.kind == "fire" else []
    slugs = slugs_of(one.tenant_id for one in due)
    return {
        "title": f"Shard {lease.name}", "lease": lease, "due": [(one, slugs.get(one.tenant_id, "")) for one in due],
        "holder": _dispatcher(found, lease.owner), "serves": SERVES[lease.kind], "due_counted": DUE_COUNTED,
        "former": lease.taken_from,
    }  # fmt: skip


@page(
    "dispatcher", "dispatchers/<uuid:key>/", title="Dispatcher", template="console/machines/dispatcher.html",
    place="shards",
)  # fmt: skip
def dispatcher(request: HttpRequest, now: datetime, key: UUID) -> dict[str, Any]:
    """One process: its loops and what it holds."""
    found = shards_read(door.raw())
    one = _dispatcher(found, key)
    if one is None:
        raise Http404("There is no such dispatcher, or it ended long ago.")
    held = [lease for lease in found.leases if lease.owner == key]
    return {"title": f"Dispatcher {one.host}:{one.pid}", "one": one, "held": held}


def _wanted(only: str, one: LeaseRow) -> bool:
    if only == "unheld":
        return not one.held
    return bool(one.due_now) if only == "due" else True


def _dispatcher(found: Shards, key: UUID | None) -> Any:
    return next((one for one in found.dispatchers if one.id == key), None)
