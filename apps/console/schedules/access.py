"""The one way to a schedule of the tenant in the path."""

from __future__ import annotations

from uuid import UUID

from apps.schedules.defined import DefinedSchedule, version_of
from apps.schedules.models import Schedule
from kernel.errors import NotFound
from tenants.models import Tenant

MISSING = "There is no such schedule."


def access_schedule(schedule_id: UUID) -> DefinedSchedule:
    """With its current version and job; the same NotFound for all that is not there. In the tenant's schema."""
    schedule = Schedule.objects.select_related("job").filter(pk=schedule_id, deleted_at=None).first()
    if schedule is None:
        raise NotFound(MISSING)
    return DefinedSchedule(schedule, version_of(schedule))


def list_url(tenant: Tenant) -> str:
    """The address of the tenant's schedules."""
    return f"/t/{tenant.slug}/admin/schedules/"


def schedule_url(tenant: Tenant, schedule_id: object, *, page: str = "") -> str:
    """The address of its page, or of another one below it, such as "edit/"."""
    return f"{list_url(tenant)}{schedule_id}/{page}"
