"""What the pages of runs need besides the shared tags."""

from __future__ import annotations

from datetime import UTC, datetime

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.console.shown import beginning
from apps.console.templatetags.when import time_element

register = template.Library()


@register.filter
def excerpted(text: str, label: str) -> SafeString:
    """The beginning of a long text, whatever it holds, in a place of its own that is called `label`."""
    return format_html(
        '<pre class="excerpt" tabindex="0" role="region" aria-label="{}">{}</pre>', label, beginning(text)
    )


@register.filter
def clock(at: datetime, zone: str = "") -> SafeString:
    """A moment of a timeline, to the millisecond in UTC; times.js tells it in the zone that was chosen."""
    moment = at.astimezone(UTC)
    text = f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
    return time_element(moment, zone, text=text, classes="when clock")
