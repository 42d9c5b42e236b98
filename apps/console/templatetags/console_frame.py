"""What is around every page of both sites."""

from __future__ import annotations

from typing import Any

from django import template

from apps.console.places import places_of
from apps.console.roles import VIEW, may
from apps.console.saved import views_of

register = template.Library()


@register.inclusion_tag("console/places.html", takes_context=True)
def places(context: Any) -> dict[str, Any]:
    """The navigation; a page says by `place` where it belongs."""
    tenant = context.get("console_tenant")
    current = context.get("place") or ("tables" if tenant is not None else "")
    return {"found": places_of(tenant.slug if tenant is not None else ""), "current": current}


@register.inclusion_tag("console/views.html", takes_context=True)
def saved_views(context: Any) -> dict[str, Any]:
    """The operator's views and the shared ones, below the navigation; read once for the two places where it is."""
    request = context["request"]
    if not hasattr(request, "saved_views"):
        request.saved_views = views_of(request.user) if may(request.user, VIEW) else []
    return {"views": request.saved_views}
