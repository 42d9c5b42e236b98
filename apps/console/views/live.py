"""What is alive now, over all tenants: tickets with their state, age and holder. Shared tables only."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.http import HttpRequest

from apps.console import roles
from apps.console.chips import Chip, changed, chips
from apps.console.machines.slugs import slugs_of
from apps.console.pages import page
from apps.console.reading import as_uuid
from apps.presenting.paging import paged, position_of
from apps.tickets.alive import COUNTED_MAX, SHOWN, AliveFilter, AliveRow, Shown, alive_counts, alive_read
from kernel.durations import span
from kernel.pools import POOLS
from tenants import door
from tenants.models import Tenant

ROWS = 100
AGES = {"1m": timedelta(minutes=1), "10m": timedelta(minutes=10), "1h": timedelta(hours=1), "1d": timedelta(days=1)}
AGE_WORDS = {"": "any age", "1m": "due over 1 min ago", "10m": "10 min", "1h": "1 h", "1d": "1 day"}
NOBODY = -1  # no tenant has this id


class Line(NamedTuple):
    """A row of the list. `slug` is empty where the tenant is gone; `lease` says how its worker's lease stands.

    `run` and `job` are the ends of their ids, which tell them apart: the beginnings are the time.
    """

    row: AliveRow
    run: str
    job: str
    slug: str
    age: str
    lease: str
    tone: str


@page("live", "live/", title="Live", template="console/live.html")
def live(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """The list, by default with what has been there for longest first."""
    given = {name: request.GET.get(name, "").strip() for name in ("tenant", "worker", "q")}
    wanted, age = _wanted(request, given, now)
    found = alive_read(
        door.raw(), wanted, oldest_first=request.GET.get("order") != "newest", after=position_of(request), size=ROWS
    )
    whole = wanted.tenant_id is None and wanted.worker_id is None and wanted.execution_id is None and not wanted.pool
    counts = alive_counts(door.raw()) if whole and not age else None
    listed = paged(request, _lines(found.rows, now), after=found.after and found.after.id)
    return {
        "listed": listed, "given": given, "pools": POOLS, "pool": wanted.pool, "counted_max": COUNTED_MAX,
        "states": _states(request, wanted, counts), "age": age,
        "ages": chips(request, "older", AGE_WORDS.items(), chosen=age),
        "lack": roles.lacks(request.user, roles.RESPOND),
        "newest_first": request.GET.get("order") == "newest", "cancelling": wanted.cancelling,
        "turned": changed(request, order="" if request.GET.get("order") == "newest" else "newest"),
        "faults": _faults(given, wanted),
    }  # fmt: skip


def _wanted(request: HttpRequest, given: dict[str, str], now: datetime) -> tuple[AliveFilter, str]:
    """What is asked for; what does not exist finds nothing, and what is nonsense asks for nothing."""
    state, pool, age = (request.GET.get(name, "") for name in ("state", "pool", "older"))
    tenant_id = None
    if given["tenant"]:
        found = Tenant.objects.filter(slug=given["tenant"]).values_list("pk", flat=True).first()
        tenant_id = NOBODY if found is None else found
    age = age if age in AGES else ""
    return AliveFilter(
        state=state if state in SHOWN else None, pool=pool if pool in POOLS else "", tenant_id=tenant_id,
        worker_id=as_uuid(given["worker"]), execution_id=as_uuid(given["q"]),
        due_before=now - AGES[age] if age else None, cancelling=state == "cancelling",
    ), age  # fmt: skip


def _lines(rows: list[AliveRow], now: datetime) -> list[Line]:
    slugs = slugs_of(row.tenant_id for row in rows)
    ages = [span(max(0.0, (now - row.actual_at).total_seconds())) for row in rows]
    return [
        Line(
            row, str(row.execution_id)[-12:], str(row.job_id)[-6:], slugs.get(row.tenant_id, ""), age, *_lease(row, now)
        )
        for row, age in zip(rows, ages, strict=True)
    ]


def _lease(row: AliveRow, now: datetime) -> tuple[str, str]:
    """How the lease of what holds it stands, and its tone."""
    if row.state != "running":
        return "", "idle"
    if row.remote:
        until = row.deadline
    elif row.expires_at is None:
        return "its worker is gone", "bad"
    else:
        until = row.expires_at
    if until is None:
        return "", "idle"
    left = (until - now).total_seconds()
    if left < 0:
        return f"lease over for {span(-left)}", "bad"
    return f"lease for {span(left)}{', draining' if row.draining else ''}", "warn" if row.draining else "ok"


def _states(request: HttpRequest, wanted: AliveFilter, counts: dict[Shown, int] | None) -> list[Chip]:
    names = [("", "all"), *((one, one) for one in SHOWN), ("cancelling", "asked to stop")]
    chosen = "cancelling" if wanted.cancelling else wanted.state or ""
    return chips(request, "state", names, chosen=chosen, rows=counts)


def _faults(given: dict[str, str], wanted: AliveFilter) -> list[str]:
    """What was typed and stands for nothing."""
    found = []
    if given["worker"] and wanted.worker_id is None:
        found.append("That is no id of a worker: all are shown.")
    if given["q"] and wanted.execution_id is None:
        found.append("That is no id of an execution: all are shown.")
    if wanted.tenant_id == NOBODY:
        found.append("There is no such tenant.")
    return found
