"""How figures are written, and how is said which of them are not well."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.presenting.templatetags.presenting import icon

register = template.Library()


@register.filter
def percent(share: float | None) -> str:
    """0.123 -> 12 %; a dash of nothing, and never 0 % of something."""
    if share is None:
        return "-"
    if 0 < share < 0.01:
        return "< 1 %"
    return f"{share:.0%}".replace("%", " %")


@register.simple_tag
def marked(tone: str, word: str) -> SafeString:
    """What a number's colour means, as icon and word: of the tones that are not well, nothing of the others."""
    if tone not in ("warn", "bad"):
        return SafeString()
    return format_html('<span class="state tone-{}">{}<span>{}</span></span>', tone, icon("alert"), word)
