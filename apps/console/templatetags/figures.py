"""How figures are written."""

from __future__ import annotations

from django import template

register = template.Library()


@register.filter
def percent(share: float | None) -> str:
    """0.123 -> 12 %; a dash of nothing, and never 0 % of something."""
    if share is None:
        return "-"
    if 0 < share < 0.01:
        return "< 1 %"
    return f"{share:.0%}".replace("%", " %")
