"""When will it hurt? What is expected of the next week, what the workers can carry, and who is in a full minute."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest

from apps.console.forecasting import change_words, heat, histogram, instant
from apps.console.machines.slugs import slugs_of
from apps.console.pages import page
from apps.dispatch.forecast.capacity import Capacity, capacity_of
from apps.dispatch.forecast.summing import fullest
from apps.dispatch.forecast.trying import Trial, try_jitter
from apps.due import forecast
from apps.due.forecast import DAY_MINUTES, HOUR, MINUTE, Total
from apps.schedules.load_hints import JITTERS_S
from apps.schedules.timing_zones import zone_names
from apps.usage import pressure
from kernel.durations import span
from tenants import door
from tenants.models import Tenant

OLD = timedelta(minutes=5)  # whoever keeps it says so each minute
FULLEST = 8


@page("forecast", "forecast/", title="Forecast", template="console/forecast.html")
def show(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """The week, an hour of it (that of the fullest minute unless told), and a minute of that."""
    conn = door.raw()
    total = forecast.read(conn)
    if total is None:
        return {"total": None}
    capacity = capacity_of(pressure.read(conn))
    per_minute = capacity.per_minute if capacity is not None else None
    worst = max(total.of_minutes(now), key=lambda one: one[1], default=None)
    minute = instant(request.GET.get("at", ""), MINUTE)
    hour = instant(request.GET.get("hour", ""), HOUR) or (minute or (worst[0] if worst else now)).replace(minute=0)
    zone = request.GET.get("zone", "")
    zone = zone if zone in zone_names() else "UTC"
    known = dict(total.of_minutes(now, len(total.minutes)))
    in_hour = [(at, runs) for at, runs in known.items() if hour <= at < hour + HOUR]
    minute = minute or max(in_hour, key=lambda one: one[1], default=(hour, 0))[0]
    keep = {"zone": zone} if zone != "UTC" else {}
    links = {at: "?" + urlencode({**keep, "hour": _text(at)}) for at, _ in total.of_hours(now, 26) if at in known}
    changes = [one for one in total.clock_changes if one["at"] >= now]
    return {
        "total": total, "unknown": max(0, settings.SHARDS - total.shards), "old": now - total.made_at > OLD,
        "capacity": capacity, "zone": zone,
        "zones": sorted({"UTC", zone, *(one["zone"] for one in changes)}),
        "tiles": _tiles(total, now, capacity), "worst": worst, "hour": hour, "minute": minute,
        "rows": heat(total.of_hours(now), zone=zone, capacity=per_minute and per_minute * 60, changes=changes,
                     links=links, chosen=hour),
        "changes": [(one["at"], change_words(one)) for one in changes],
        "chart": histogram(in_hour, capacity=per_minute, watched=minute) if in_hour else "",
        "in_hour": in_hour, "in_minute": known.get(minute, 0),
        "fullest": [
            (at, known[at], "?" + urlencode({**keep, "at": _text(at)})) for at in fullest(total, now, FULLEST)
        ],
        **_who(total, minute), **_trial(request, total, minute, now),
        "keep": {**keep, "at": _text(minute)},
    }  # fmt: skip


def _tiles(total: Total, now: datetime, capacity: Capacity | None) -> list[tuple[str, int, str, str]]:
    """Name, number, its scope, its tone."""
    hour = sum(runs for _, runs in total.of_minutes(now, 60))
    day = sum(runs for _, runs in total.of_minutes(now, DAY_MINUTES))
    week = sum(runs for _, runs in total.of_hours(now))
    tone = "idle"
    if capacity is not None:
        tone = "bad" if hour > capacity.per_minute * 60 else "ok"
    return [
        ("Next 60 minutes", hour, "runs of all tenants", tone), ("Next 24 hours", day, "runs of all tenants", "idle"),
        ("Next 7 days", week, "runs of all tenants, by whole hours", "idle"),
    ]  # fmt: skip


def _who(total: Total, minute: datetime) -> dict[str, Any]:
    """The tenants in a minute, when the last look counted them."""
    peak = next((one for one in total.peaks if one["at"] == minute), None)
    if peak is None:
        return {"peak": None}
    slugs = slugs_of(one[0] for one in peak["tenants"])
    who = [
        (slugs.get(tenant_id, ""), runs, runs / max(1, peak["runs"]), keys) for tenant_id, runs, keys in peak["tenants"]
    ]
    sampled = peak.get("looked_at", 0) < peak.get("entries", 0)
    return {"peak": peak, "who": who, "more": peak["of"] - len(who), "sampled": sampled}


def _trial(request: HttpRequest, total: Total, minute: datetime, now: datetime) -> dict[str, Any]:
    """What was asked for as a dry run."""
    slug, jitter = request.GET.get("tenant", ""), request.GET.get("jitter_s", "")
    jitter_s = int(jitter) if jitter in {str(one) for one in JITTERS_S} else JITTERS_S[1]
    found: dict[str, Any] = {
        "given": {"tenant": slug, "jitter_s": str(jitter_s)},
        "jitters": [(str(one), span(one)) for one in JITTERS_S],
    }
    if not slug:
        return found
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None:
        return found | {"fault": "There is no such tenant."}
    if minute not in dict(total.of_minutes(now)):
        return found | {"fault": "That minute is not one of the next 24 hours."}
    trial: Trial = try_jitter(door.raw(), tenant, total, minute=minute, jitter_s=jitter_s, now=now)
    return found | {"trial": trial, "jitter_words": span(jitter_s), "tried": tenant.slug}


def _text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%MZ}"
