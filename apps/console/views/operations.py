"""What is that replay doing? Operations and backfills of all tenants, from their outlines."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest

from apps.console.machines.slugs import slugs_of, tenant_filter
from apps.console.pages import page
from apps.due import outlines
from apps.operations.outlined import BACKFILL
from apps.presenting.paging import PAGE_ROWS, cursor_of, listed
from apps.presenting.progress import bar
from tenants import door

CHIPS = (("", "under way or paused"), ("ended", "ended in the last day"))


@page("operations", "operations/", title="Operations", template="console/machines/operations.html")
def operations(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """All but backfills, newest first."""
    return _listed(request, not_action=BACKFILL)


@page("backfills", "backfills/", title="Backfills", template="console/machines/operations.html")
def backfills(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """Those that run past occurrences."""
    return {**_listed(request, action=BACKFILL), "of_backfills": True}


def _listed(request: HttpRequest, **which: str) -> dict[str, Any]:
    of, show = tenant_filter(request), request.GET.get("show", "")
    rows = []
    if not of.unknown:
        rows = outlines.read(
            door.raw(), live=show != "ended", tenant_id=of.tenant_id, before=cursor_of(request), limit=PAGE_ROWS + 1,
            **which,
        )  # fmt: skip
    slugs = slugs_of(one.outline.tenant_id for one in rows)
    shown = [(one, slugs.get(one.outline.tenant_id, ""), bar(one.outline)) for one in rows]
    return {
        "listed": listed(request, shown, key=lambda row: row[0].outline.operation_id), "slug": of.slug, "show": show,
        "unknown": of.unknown, "chips": CHIPS,
    }  # fmt: skip
