"""Template tags that operators' and tenants' pages share: states, icons, charts, durations, JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from apps.presenting.icons import PATHS
from apps.presenting.shown import json_text, look_of
from kernel.durations import span

register = template.Library()


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


@register.simple_tag
def svg(chart: str) -> SafeString:
    """A chart of apps.presenting.charts, which escapes what it writes."""
    return mark_safe(chart)


@register.filter
def duration(seconds: float | None) -> str:
    """ "1.5 s", "3 min"; a dash where there is none."""
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
def thousands(value: int) -> str:
    """1023 -> 1,023"""
    return f"{value:,}"
