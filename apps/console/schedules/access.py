"""The one way to a schedule of the tenant in the path."""

from __future__ import annotations

from uuid import UUID

from apps.schedules.defined import DefinedSchedule
from apps.schedules.reading import schedules_with
from kernel.errors import NotFound
from tenants.models import Tenant

MISSING = "There is no such schedule."


def access_schedule(schedule_id: UUID) -> DefinedSchedule:
    """With its current version and job; the same NotFound for all that is not there. In the tenant's schema."""
    for found in schedules_with([schedule_id]):
        return found
    raise NotFound(MISSING)


def list_url(tenant: Tenant) -> str:
    """The address of the tenant's schedules."""
    return f"/t/{tenant.slug}/admin/schedules/"


def schedule_url(tenant: Tenant, schedule_id: object, *, page: str = "") -> str:
    """The address of its page, or of another one below it, such as "edit/"."""
    return f"{list_url(tenant)}{schedule_id}/{page}"
