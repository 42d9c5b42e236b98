"""How moments and numbers look on every page for operators: `{% load when %}`, `{{ at|when }}`, `{{ count|many }}`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import template
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.console.reading import CAP
from kernel.clock import utc_now

register = template.Library()
NONE = "-"


@register.filter
def when(at: datetime | str | None, zone: str = "") -> str:
    """A moment; `-` for none. `zone` is its schedule's: `{{ run.nominal_at|when:schedule.timezone }}`.

    The text is exact, in UTC; times.js makes it relative or tells it in the zone that was chosen on the page. Takes the
    text of a moment, too, as it stands in JSON.
    """
    moment = parse_datetime(at) if isinstance(at, str) else at
    if moment is None:
        return NONE
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return time_element(moment, zone, text=f"{moment:%Y-%m-%d %H:%M:%S}", classes="when")


@register.filter
def many(count: Any, cap: int | str | None = None) -> str:
    """A number with its thousands apart, `1,204`; `-` for none. What was counted to a cap only says so:
    `{{ found|many:"capped" }}` is `10,000+` where there are more than reading.CAP, `{{ found|many:500 }}` is `500+`.
    """
    if count is None or count == "":
        return NONE
    if cap is not None:
        most = CAP if cap == "capped" else int(cap)
        if count > most:
            return f"{most:,}+"
    return f"{count:,.1f}" if isinstance(count, float) and not count.is_integer() else f"{int(count):,}"


@register.simple_tag
def server_time() -> str:
    """What times.js counts from: the clock of whoever looks may be wrong."""
    return _rfc3339(utc_now())


def time_element(moment: datetime, zone: str, *, text: str, classes: str) -> SafeString:
    """What times.js finds: a moment in UTC with its exact text, and the zone of its schedule where that is another."""
    of_schedule = format_html(' data-zone="{}"', zone) if zone and zone != "UTC" else ""
    return format_html(
        '<time class="{}" datetime="{}" title="{} UTC"{}>{}</time>', classes, _rfc3339(moment), text, of_schedule, text
    )


def _rfc3339(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
