"""Template tags of the admin's first pages."""

from typing import Any

from django import template
from django.db import OperationalError

from apps.audit.models import AuditEvent
from apps.audit.shown import Shown, shown
from apps.audit.trail import database_now
from apps.console.overview import overview
from apps.console.reading import short_statements

register = template.Library()
RECENT = 10


@register.simple_tag
def console_overview() -> dict[str, Any]:
    """The lines of the overview with their time; no lines when the database is too slow to say."""
    try:
        with short_statements():
            return {"lines": overview(), "as_of": database_now()}
    except OperationalError:
        return {"lines": [], "as_of": None}


@register.simple_tag
def recent_changes(tenant: Any = None) -> list[Shown]:
    """The newest rows of the trail, of one tenant or of all."""
    rows = AuditEvent.objects.defer("before", "after").order_by("-pk")
    return shown((rows.filter(tenant_id=tenant.pk) if tenant else rows)[:RECENT], seals=False)
