"""The first page: are we on time, and if not, why?"""

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.console.pages import page
from apps.console.roles import VIEW, may
from tenants.models import DispatchPause


@page("overview", "", title="Overview", template="console/overview.html", level="")
def overview(request: HttpRequest, now: datetime) -> HttpResponse | dict[str, Any]:
    """The state of the platform. Staff without a role of the console have Django's permissions, and so the tables."""
    if not may(request.user, VIEW):
        return redirect("console:tables")
    return {"snapshot_parts": "overview", "is_paused": DispatchPause.objects.filter(pool="", tenant_id=None).exists()}
