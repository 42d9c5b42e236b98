"""What is around every page: whose console it is, who looks, and where else to go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

from django.urls import reverse

from tenants.permissions import may

HUES = 12  # classes hue-0 to hue-11 in portal.css


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of the navigation."""

    section: str
    label: str
    icon: str
    url_name: str
    action: str


PLACES = (
    Place("home", "Overview", "home", "portal:home", "execution.read"),
    Place("schedules", "Schedules", "clock", "portal:schedules", "schedule.read"),
    Place("jobs", "Jobs", "box", "portal:jobs", "job.read"),
    Place("executions", "Executions", "play", "portal:executions", "execution.read"),
    Place("workflowruns", "Workflow runs", "steps", "portal:workflowruns", "workflowrun.read"),
    Place("deadletters", "Dead letters", "alert", "portal:deadletters", "deadletter.read"),
    Place("operations", "Operations", "stack", "portal:operations", "operation.read"),
    Place("usage", "Usage", "gauge", "portal:usage", "usage.read"),
    Place("webhooks", "Webhooks", "hook", "portal:webhooks", "webhook.read"),
    Place("keys", "API keys", "key", "portal:keys", "apikey.read"),
    Place("members", "Members", "people", "portal:members", "member.read"),
    Place("trail", "Audit trail", "list", "portal:trail", "audit.read"),
)


def frame_of(request: Any) -> dict[str, Any]:
    """For the templates; on pages that nobody is signed in for, there is no way to the others."""
    tenant, actor = getattr(request, "tenant", None), getattr(request, "actor", None)
    return {
        "tenant": tenant,
        "actor": actor,
        "member": getattr(request, "member", None),
        "hue": crc32(tenant.slug.encode()) % HUES if tenant is not None else 0,
        "places": [(one, reverse(one.url_name)) for one in PLACES if actor is not None and may(actor, one.action)],
    }
