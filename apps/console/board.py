"""All tenants beside each other: whose work is due, waits, runs and fails, and how near each is to its limits.

The numbers are of the last measurement (`apps.usage.loads`), so the page counts nothing; limits and states are of now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.usage.counting import day_of
from apps.usage.loads import TenantLoad
from apps.usage.models import DayCount
from tenants import template
from tenants.models import Tenant

TENANTS_MOST = 10_000  # that are looked at
LATE_S = 10.0
FAILING_SHARE = 0.05
FAILING_LEAST = 5  # failed attempts; fewer say nothing
NEAR = 80  # percent of a limit


@dataclass(frozen=True, slots=True)
class Row:
    """One tenant. Shares are of all tenants together, None where nobody has any."""

    id: int
    slug: str
    name: str
    plan: str
    status: str
    paused: bool
    load: TenantLoad
    due_share: float | None
    running_share: float | None
    runs_today: int
    max_runs_per_day: int | None
    max_running: int | None
    schema: str  # empty: that of this version

    @property
    def failing_share(self) -> float | None:
        """Of the attempts that ended lately."""
        return self.load.attempts_failed / self.load.attempts if self.load.attempts else None

    @property
    def is_failing(self) -> bool:
        return self.load.attempts_failed >= FAILING_LEAST and (self.failing_share or 0) >= FAILING_SHARE

    @property
    def is_late(self) -> bool:
        return (self.load.dispatch_p99_s or 0) > LATE_S or self.has_old_work

    @property
    def has_old_work(self) -> bool:
        return self.load.oldest_due_s > LATE_S

    @property
    def quota(self) -> tuple[str, int, int] | None:
        """The limit that is used most: what it is, how much, and the limit; None without limits."""
        used = self.load.queued + self.load.running
        found = [
            (what, use, most)
            for what, use, most in (
                ("runs today", self.runs_today, self.max_runs_per_day), ("at once", used, self.max_running),
            )
            if most is not None
        ]  # fmt: skip
        return max(found, key=_used, default=None)

    @property
    def quota_percent(self) -> int | None:
        """How much of that limit is used."""
        return None if self.quota is None else round(100 * _used(self.quota))

    @property
    def is_near(self) -> bool:
        return (self.quota_percent or 0) >= NEAR


SHOW: dict[str, tuple[str, Callable[[Row], bool]]] = {
    "": ("all", lambda row: True),
    "busy": ("with work", lambda row: bool(row.load.waiting or row.load.queued or row.load.running)),
    "late": (f"late (over {LATE_S:.0f} s)", lambda row: row.is_late),
    "failing": (f"failing ({100 * FAILING_SHARE:.0f} % and more)", lambda row: row.is_failing),
    "near": (f"near a limit ({NEAR} %)", lambda row: row.is_near),
    "stopped": ("paused or suspended", lambda row: row.paused or row.status != Tenant.Status.ACTIVE),
    "schema": ("another schema version", lambda row: bool(row.schema)),
}
SORT: dict[str, tuple[str, Callable[[Row], Any]]] = {
    "waiting": ("Due and waiting", lambda row: (-row.load.waiting, -row.load.running)),
    "running": ("Running", lambda row: (-(row.load.queued + row.load.running), -row.load.waiting)),
    "failing": ("Failing", lambda row: (-(row.failing_share or 0), -row.load.attempts_failed)),
    "lateness": ("Lateness", lambda row: (-(row.load.dispatch_p99_s or 0), -row.load.oldest_due_s)),
    "quota": ("Limit", lambda row: -(row.quota_percent or 0)),
    "tenant": ("Tenant", lambda row: row.slug),
}


def rows_read(loads: Sequence[TenantLoad], *, total: TenantLoad, now: datetime) -> list[Row]:
    """All tenants with their shares of the total, in two statements."""
    of_tenant = {one.tenant_id: one for one in loads}
    today = dict(DayCount.objects.filter(day=day_of(now)).values_list("tenant_id", "runs")[:TENANTS_MOST])
    current = template.version()
    found = Tenant.objects.values_list(
        "pk", "slug", "name", "plan__name", "status", "dispatch_paused", "plan__max_runs_per_day", "plan__max_running",
        "schema_version",
    ).order_by("pk")[:TENANTS_MOST]  # fmt: skip
    rows = []
    for pk, slug, name, plan, status, paused, per_day, running, schema in found:
        load = of_tenant.get(pk) or TenantLoad(pk)
        rows.append(
            Row(
                pk, slug, name, plan, status, paused, load, _share(load.waiting, total.waiting),
                _share(load.queued + load.running, total.queued + total.running), today.get(pk, 0), per_day, running,
                "" if schema == current else schema or "none",
            )
        )  # fmt: skip
    return rows


def chosen(rows: Sequence[Row], *, show: str, sort: str, text: str) -> list[Row]:
    """Those that are asked for, in the order that is asked for; nonsense asks for nothing. Pure."""
    wanted, words = SHOW.get(show, SHOW[""])[1], text.casefold()
    kept = [row for row in rows if wanted(row) and (words in row.slug or words in row.name.casefold())]
    return sorted(kept, key=lambda row: (SORT.get(sort, SORT["waiting"])[1](row), row.slug))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _used(quota: tuple[str, int, int]) -> float:
    _, use, most = quota
    return use / most if most else 1.0
