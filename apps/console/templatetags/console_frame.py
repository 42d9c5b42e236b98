"""What is around every page of both sites."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from apps.console.places import places_of
from apps.console.roles import VIEW, may
from apps.console.saved import views_of
from apps.console.snapshot.drawing import SETS
from apps.console.snapshot.middleware import snapshot_of
from apps.console.snapshot.store import OLD_S

register = template.Library()


@register.inclusion_tag("console/places.html", takes_context=True)
def places(context: Any) -> dict[str, Any]:
    """The navigation; a page says by `place` where it belongs."""
    tenant = context.get("console_tenant")
    current = context.get("place", "tables")  # Django's own pages say nothing
    return {"found": places_of(context["request"].user, tenant.slug if tenant is not None else ""), "current": current}


@register.inclusion_tag("console/strip.html", takes_context=True)
def strip(context: Any) -> dict[str, Any]:
    """How the platform stands. A page that has more parts of the snapshot says `snapshot_parts="overview"`."""
    found = snapshot_of(context["request"])
    if found is None:
        return {"parts": None}
    kind, now = context.get("snapshot_parts", "strip"), context.get("now")
    age_s = (now - found.made_at).total_seconds() if isinstance(now, datetime) else 0.0  # stock pages have no `now`
    return {
        "parts": {name: mark_safe(text) for name, text in found.parts.items()}, "made_at": found.made_at,
        "url": f"/admin/live.json?parts={kind}", "version": found.version(*SETS[kind]),
        "old_s": round(age_s) if age_s > OLD_S else 0,
    }  # fmt: skip


@register.simple_tag(takes_context=True)
def part(context: Any, name: str) -> SafeString:
    """One part of the snapshot: made of templates, which escape."""
    found = snapshot_of(context["request"])
    return mark_safe(found.parts.get(name, "") if found is not None else "")


@register.filter
def code(text: str) -> SafeString:
    """What is between backticks is a command, between asterisks a name on a page."""
    told = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return mark_safe(re.sub(r"\*([^*]+)\*", r"<em>\1</em>", told))


@register.inclusion_tag("console/views.html", takes_context=True)
def saved_views(context: Any) -> dict[str, Any]:
    """The operator's views and the shared ones, below the navigation; read once for the two places where it is."""
    request = context["request"]
    if not hasattr(request, "saved_views"):
        request.saved_views = views_of(request.user) if may(request.user, VIEW) else []
    return {"views": request.saved_views}
