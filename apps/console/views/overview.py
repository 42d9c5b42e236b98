"""The first page: are we on time, and if not, why?"""

from datetime import datetime
from typing import Any

from django.http import HttpRequest

from apps.console.pages import page


@page("overview", "", title="Overview", template="console/overview.html")
def overview(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """The state of the platform; the template asks for it."""
    return {}
