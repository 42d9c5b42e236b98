"""Where a tenant stands with each limit of its plan, now."""

from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import QuerySet

from apps.schedules.models import Calendar, Job, Schedule
from apps.secrets.models import Secret
from apps.tickets import releasing
from apps.usage import counting, rates
from apps.usage.admitting import live_of
from apps.webhooks.models import Webhook
from apps.webhooks.services import WEBHOOKS_MAX
from tenants import door
from tenants.apikeys import counted_keys
from tenants.models import Plan, Tenant
from tenants.people import counted_people

COUNTED_MAX = 10_000  # more are counted only as far as a limit reaches


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
    """All limits that something counts against, in the tenant's schema; ten short queries."""
    conn, plan = door.raw(), tenant.plan
    live_most = _most(plan.max_live)
    live = live_of(conn, tenant.pk, most=live_most)
    return [
        Standing(
            counting.QUOTA, "runs made on this day (UTC)", plan.max_runs_per_day, _of_day(tenant, now),
            resets_at=counting.day_ends_at(now),
        ),
        Standing(
            rates.QUOTA, "releases in this minute", plan.max_runs_per_min,
            rates.used(conn, [tenant.pk], now=now)[tenant.pk], resets_at=rates.minute_ends_at(now),
        ),
        Standing(
            "max_running", "executions queued or running", plan.max_running,
            releasing.held_by_tenants(conn, [tenant.pk])[tenant.pk],
        ),
        Standing("max_live", "executions that are not finished", plan.max_live, live, live < live_most),
        _counted("max_jobs", "jobs", plan.max_jobs, Job.objects.filter(deleted_at=None)),
        _counted("max_schedules", "schedules", plan.max_schedules, Schedule.objects.filter(deleted_at=None)),
        _counted("max_calendars", "calendars", plan.max_calendars, Calendar.objects.filter(deleted_at=None)),
        _counted("max_secrets", "secrets", plan.max_secrets, Secret.objects.filter(purpose=Secret.Purpose.JOB)),
        _counted("max_webhooks", "webhooks", _webhooks(plan), Webhook.objects.filter(deleted_at=None)),
        _counted("max_members", "members and open invitations", plan.max_members, *counted_people(tenant, now=now)),
        _counted("max_api_keys", "valid API keys", plan.max_api_keys, counted_keys(tenant, now=now)),
    ]  # fmt: skip


def _webhooks(plan: Plan) -> int:
    return WEBHOOKS_MAX if plan.max_webhooks is None else min(plan.max_webhooks, WEBHOOKS_MAX)


def _of_day(tenant: Tenant, now: datetime) -> int:
    row = door.raw().execute(
        "SELECT runs FROM usage_daycount WHERE tenant_id = %s AND day = %s", [tenant.pk, counting.day_of(now)]
    ).fetchone()  # fmt: skip
    return int(row[0]) if row else 0


def _counted(quota: str, what: str, limit: int | None, *found: "QuerySet[Any]") -> Standing:
    most = _most(limit)
    use = sum(one[:most].count() for one in found)
    return Standing(quota, what, limit, use, use < most)


def _most(limit: int | None) -> int:
    return max(COUNTED_MAX, limit or 0) + 1
