"""Who did what an explanation names, from the audit trail."""

from collections.abc import Collection
from uuid import UUID

from django.db.models import Q

from apps.audit.models import AuditEvent
from apps.audit.services import SYSTEM
from apps.audit.shown import shown
from apps.dispatch.explaining.ended import By
from tenants.models import Tenant


def last_by(
    tenant: Tenant, object_id: UUID | str, actions: Collection[str], *, named: bool, only: Q | None = None
) -> By | None:
    """The latest of these actions on an object, of those that `only` asks for.

    By name only where `named`: persons' names are for who reads trails.
    """
    rows = AuditEvent.objects.filter(
        only or Q(), object_id=str(object_id), tenant_id=tenant.pk, action__in=actions, allowed=True
    ).order_by("-pk")  # fmt: skip
    event = rows.first()
    if event is None:
        return None
    who = shown([event], seals=False)[0].who if named else event.actor
    by_system = event.actor == SYSTEM
    return By("the platform" if by_system else who, event.at, event.reason, system=by_system)
