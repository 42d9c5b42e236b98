"""Links to pages that not every role may open."""

from __future__ import annotations

from typing import Any

from django import template

from apps.console import roles

register = template.Library()


@register.inclusion_tag("console/level_link.html", takes_context=True)
def level_link(context: Any, level: str, label: str, url: str, key: str = "") -> dict[str, str]:
    """A link that looks like a button; for whose role has not the level, a disabled one with the reason."""
    return {"label": label, "url": url, "key": key, "off": roles.lacks(context["request"].user, level)}
