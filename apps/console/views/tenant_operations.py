"""A tenant's operations: what was asked for over many things, how far it is, and what became of each."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import Http404, HttpRequest

from apps.console.middleware import tenant_of
from apps.console.pages import TENANT, page
from apps.console.shown import masked
from apps.due import outlines
from apps.operations.codes import reasons_read
from apps.operations.models import Operation
from apps.operations.outlined import BACKFILL
from apps.operations.pacing import NAMES as PACE_NAMES
from apps.operations.reading import items_read, name_of
from apps.operations.states import ENDS, ITEM_STATES, STATES
from apps.presenting.paging import Listed, listed, newest, number_of
from apps.presenting.progress import bar, counted
from tenants import door

ITEMS_SHOWN = 100
CHIPS = (("", "all"), ("live", "under way or paused"), *((one, one) for one in ENDS))  # of `state_filter`


@page(
    "operations", "operations/", title="Operations", template="console/machines/tenant_operations.html", site=TENANT
)  # fmt: skip
def operations(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """All but backfills, newest first; without a filter those of any state."""
    return _page_of(request, Operation.objects.exclude(action=BACKFILL))


@page(
    "operation", "operations/<uuid:key>/", title="Operation", template="console/machines/operation.html", site=TENANT,
    place="operations",
)  # fmt: skip
def operation(request: HttpRequest, now: datetime, key: UUID) -> dict[str, Any]:
    """One of them, with its items."""
    one = Operation.objects.filter(pk=key).first()
    if one is None:
        raise Http404("There is no such operation.")
    tenant, conn = tenant_of(request), door.raw()
    state = request.GET.get("state", "")
    state = state if state in ITEM_STATES else ""
    found = items_read(one, states=[state] if state else [], after=number_of(request), size=ITEMS_SHOWN)
    return {
        "title": name_of(one), "one": one, "seen": outlines.find(conn, one.pk),
        "bar": bar(one), "items": found.rows, "more": found.after, "state": state,
        "counts": counted(one),
        "pace": [(name.replace("_", " "), getattr(one, name)) for name in PACE_NAMES if getattr(one, name)],
        "reasons": reasons_read(conn, tenant.schema_name, one.pk), "filter": masked(one.filter),
        "params": masked(one.params), "is_backfill": one.action == BACKFILL,
    }  # fmt: skip


def page_of(request: HttpRequest, found: QuerySet[Operation]) -> Listed[Operation]:
    """A page of operations by id, newest first."""
    return listed(request, newest(request, found.defer("filter", "cursor", "actor")), key=lambda one: one.pk)


def state_filter(request: HttpRequest, found: QuerySet[Operation]) -> tuple[QuerySet[Operation], str]:
    """Those of the state that is asked for: `live`, or one of STATES."""
    state = request.GET.get("state", "")
    if state == "live":
        return found.filter(finished_at=None), state
    return (found.filter(state=state), state) if state in STATES else (found, "")


def _page_of(request: HttpRequest, found: QuerySet[Operation]) -> dict[str, Any]:
    found, state = state_filter(request, found)
    rows = page_of(request, found)
    return {
        "listed": rows, "shown": [(one, bar(one)) for one in rows.rows], "state": state,
        "chips": CHIPS,
    }  # fmt: skip
