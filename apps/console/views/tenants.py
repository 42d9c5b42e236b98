"""Who is hurting, and who hurts the others? All tenants with their share of the load."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest

from apps.console.board import SHOW, SORT, chosen, rows_read
from apps.console.chips import PAGE, changed, chips
from apps.console.pages import page
from apps.usage import loads
from apps.usage.lately import WINDOW_S
from tenants import door

ROWS = 50
TEXT_CHARS = 100


@page("tenants", "tenants/", title="Tenants", template="console/tenants.html")
def tenants(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """The board, by default with whoever has the most waiting first."""
    show, sort, text = (request.GET.get(name, "").strip() for name in ("show", "sort", "q"))
    sort, text = sort if sort in SORT else "waiting", text[:TEXT_CHARS]
    measured = loads.read(door.raw())
    every = rows_read(measured, now=now)
    found = chosen(every, show=show, sort=sort, text=text)
    number = _number(request.GET.get(PAGE, ""), len(found))
    counts = {name: sum(1 for row in every if fits(row)) for name, (_, fits) in SHOW.items()}
    start = (number - 1) * ROWS
    return {
        "rows": found[start : start + ROWS], "found": len(found), "first": start + 1,
        "last": min(start + ROWS, len(found)), "measured": measured,
        "stale": measured is None or measured.stale, "window_min": WINDOW_S // 60, "text": text, "sort": sort,
        "total": measured.total() if measured is not None else None,
        "shows": chips(
            request, "show", [(name, words) for name, (words, _) in SHOW.items()], chosen=show, rows=counts
        ),
        "sorts": [(name, label, changed(request, sort=name)) for name, (label, _) in SORT.items()],
        "before": changed(request, page=str(number - 1)) if number > 1 else "",
        "after": changed(request, page=str(number + 1)) if start + ROWS < len(found) else "",
        "show": show,
    }  # fmt: skip


def _number(text: str, rows: int) -> int:
    """The page that is asked for, from 1 on; nonsense is the first."""
    last = max(1, -(-rows // ROWS))
    return min(max(int(text), 1), last) if text.isascii() and text.isdigit() and len(text) < 6 else 1
