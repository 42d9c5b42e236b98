"""All tables of the platform: the stock pages of the admin."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest

from apps.console.pages import page


@page("tables", "tables/", title="All tables", template="console/tables.html", level="")
def tables(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """Those that the person may see; each site's context has them already."""
    return {}
