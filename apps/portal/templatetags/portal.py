"""What the templates need besides Django's own: times, states, icons."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.portal.frame import frame_of
from apps.portal.standing import COUNTED_MAX
from apps.presenting.shown import ago, moment
from apps.presenting.templatetags import presenting

register = template.Library()
# What both consoles say alike.
register.tags |= presenting.register.tags
register.filters |= presenting.register.filters


@register.simple_tag(takes_context=True)
def frame(context: Any) -> dict[str, Any]:
    """What is around every page."""
    return frame_of(context["request"])


@register.simple_tag(takes_context=True)
def at(context: Any, value: datetime | None, none: str = "-") -> SafeString:
    """A time, and how far from now; the whole is one line that may break in the middle."""
    if value is None:
        return format_html('<span class="quiet">{}</span>', none)
    return format_html(
        '<time datetime="{}"><span class="moment">{}</span> <span class="ago">{}</span></time>',
        value.isoformat(), moment(value), ago(value, context["now"]),
    )  # fmt: skip


@register.simple_tag(takes_context=True)
def since(context: Any, value: datetime | None, none: str = "-") -> SafeString:
    """How far from now, with the time on hover and for programs."""
    if value is None:
        return format_html('<span class="quiet">{}</span>', none)
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>', value.isoformat(), moment(value), ago(value, context["now"])
    )


@register.filter
def counted(value: int) -> str:
    """1023 -> 1,023; past COUNTED_MAX there is more than was counted."""
    return f"{value:,}" if value <= COUNTED_MAX else f"{COUNTED_MAX:,}+"


@register.filter
def cut_t(value: str) -> str:
    """2026-03-01T08:00:00 -> 2026-03-01 08:00:00"""
    return str(value).replace("T", " ", 1)
