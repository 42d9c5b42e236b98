"""Where a tenant stands with each limit of its plan, now."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import IntegerField, QuerySet, Subquery

from apps.schedules.models import Calendar, Job, Schedule
from apps.secrets.models import Secret
from apps.tickets import waiting
from apps.usage import counting, rates
from apps.usage.admitting import live_of
from apps.webhooks.models import Webhook
from apps.webhooks.services import WEBHOOKS_MAX
from tenants import door
from tenants.apikeys import counted_keys
from tenants.models import Plan, Tenant
from tenants.people import counted_people

COUNTED_MAX = 10_000  # more are counted only as far as a limit reaches
WORDS = {
    "max_jobs": "jobs", "max_schedules": "schedules", "max_calendars": "calendars", "max_secrets": "secrets",
    "max_webhooks": "webhooks", "max_members": "members and open invitations", "max_api_keys": "valid API keys",
}  # fmt: skip


class Standing(NamedTuple):
    """One limit. Without a `limit` any number is allowed; `use` is at least so much where it is not `exact`."""

    quota: str
    what: str
    limit: int | None
    use: int
    exact: bool = True
    resets_at: datetime | None = None

    @property
    def percent(self) -> float | None:
        """Of the limit, to one place; None without one."""
        if self.limit is None:
            return None
        return round(100 * self.use / self.limit, 1) if self.limit else 100.0


def standings(tenant: Tenant, *, now: datetime) -> list[Standing]:
    """All limits that something counts against, in the tenant's schema; six short queries."""
    conn, plan = door.raw(), tenant.plan
    counted = _counted(plan, {
        "max_jobs": (Job.objects.filter(deleted_at=None),),
        "max_schedules": (Schedule.objects.filter(deleted_at=None),),
        "max_calendars": (Calendar.objects.filter(deleted_at=None),),
        "max_secrets": (Secret.objects.filter(purpose=Secret.Purpose.JOB),),
        "max_webhooks": (Webhook.objects.filter(deleted_at=None),),
        "max_members": counted_people(tenant, now=now),
        "max_api_keys": (counted_keys(tenant, now=now),),
    })  # fmt: skip
    live_most = _most(plan.max_live)
    live = live_of(conn, tenant.pk, most=live_most)
    return [
        Standing(
            counting.QUOTA, "runs made on this day (UTC)", plan.max_runs_per_day,
            counting.used(conn, tenant.pk, now=now), resets_at=counting.day_ends_at(now),
        ),
        Standing(
            rates.QUOTA, "releases in a minute, over time", plan.max_runs_per_min,
            rates.used(conn, tenant.pk, plan.max_runs_per_min, plan.runs_burst, now=now),
        ),
        Standing(
            "max_running", "executions queued or running", plan.max_running,
            waiting.held_by_tenants(conn, [tenant.pk])[tenant.pk],
        ),
        Standing("max_live", "executions that are not finished", plan.max_live, live, live < live_most),
        *(Standing(quota, WORDS[quota], limit, use, use < _most(limit)) for quota, (limit, use) in counted.items()),
    ]  # fmt: skip


class _Number(Subquery):
    """How many rows a query has."""

    template = "(SELECT count(*) FROM (%(subquery)s) counted)"
    output_field = IntegerField()


def _counted(plan: Plan, found: Mapping[str, tuple["QuerySet[Any]", ...]]) -> dict[str, tuple[int | None, int]]:
    """(limit, use) by quota, of one statement; no query is counted further than its limit reaches."""
    limits = {quota: getattr(plan, quota) for quota in found}
    limits["max_webhooks"] = WEBHOOKS_MAX if plan.max_webhooks is None else min(plan.max_webhooks, WEBHOOKS_MAX)
    numbers = [_Number(one.values("pk")[: _most(limits[quota])]) for quota, several in found.items() for one in several]
    uses = iter(Plan.objects.filter(pk=plan.pk).values_list(*numbers).get())
    return {quota: (limits[quota], sum(next(uses) for _ in several)) for quota, several in found.items()}


def _most(limit: int | None) -> int:
    return max(COUNTED_MAX, limit or 0) + 1
