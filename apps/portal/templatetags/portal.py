"""What the templates need besides Django's own: times, states, icons."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from apps.portal.frame import frame_of
from apps.portal.icons import PATHS
from apps.portal.shown import ago, json_text, look_of, moment
from apps.portal.standing import COUNTED_MAX
from kernel.durations import span

register = template.Library()


@register.simple_tag(takes_context=True)
def frame(context: Any) -> dict[str, Any]:
    """What is around every page."""
    return frame_of(context["request"])


@register.simple_tag
def icon(name: str) -> SafeString:
    """Decoration only: the word beside it says it."""
    return format_html(
        '<svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">'
        '<path d="{}"/></svg>',
        PATHS.get(name, PATHS["dot"]),
    )


@register.simple_tag
def state(value: str) -> SafeString:
    """A state with icon, word and colour."""
    look = look_of(str(value))
    return format_html('<span class="state tone-{}">{}<span>{}</span></span>', look.tone, icon(look.icon), look.word)


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
def duration(seconds: float | None) -> str:
    return "-" if seconds is None else span(seconds)


@register.filter
def pretty(value: Any) -> str:
    """JSON to read, escaped like any text by the template."""
    return json_text(value)


@register.filter
def pairs(mapping: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names and values. A template that asks for `.items` gets the value of a label with that name."""
    return list(mapping.items())


@register.filter
def words(value: str) -> str:
    """overlap_skipped -> overlap skipped"""
    return str(value).replace("_", " ")


@register.filter
def counted(value: int) -> str:
    """1023 -> 1,023; past COUNTED_MAX there is more than was counted."""
    return f"{value:,}" if value <= COUNTED_MAX else f"{COUNTED_MAX:,}+"


@register.filter
def thousands(value: int) -> str:
    """1023 -> 1,023"""
    return f"{value:,}"


@register.filter
def cut_t(value: str) -> str:
    """2026-03-01T08:00:00 -> 2026-03-01 08:00:00"""
    return str(value).replace("T", " ", 1)


@register.simple_tag
def svg(chart: str) -> SafeString:
    """A chart of apps.portal.charts, which escapes what it writes."""
    return mark_safe(chart)
