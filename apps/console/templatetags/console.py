"""Template tags of the admin's first pages."""

from typing import Any

from django import template

from apps.audit.models import AuditEvent
from apps.audit.shown import Shown, shown

register = template.Library()
RECENT = 10


@register.simple_tag
def recent_changes(tenant: Any = None) -> list[Shown]:
    """The newest rows of the trail, of one tenant or of all."""
    rows = AuditEvent.objects.defer("before", "after").order_by("-pk")
    return shown((rows.filter(tenant_id=tenant.pk) if tenant else rows)[:RECENT], seals=False)
