"""Finding: a page, a tenant, a schedule, or where an id lives. The palette of every page asks here, too."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.http import urlencode

from apps.console.finding.matching import TEXT_CHARS, Page, find
from apps.console.pages import page
from apps.console.places import places_of
from apps.console.saved import views_of
from tenants import door

FRAGMENT = "X-Shardbeat-Fragment"  # the palette wants the answers alone
AFTER_MAX = 2**31 - 1


@page("find", "find/", title="Find", template="console/find.html")
def find_page(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """`q` is what was typed, `tenant` on whose pages, `after` goes on with an id that was not found in some tenants."""
    text, slug = request.GET.get("q", "")[:TEXT_CHARS], request.GET.get("tenant", "")[:40]
    after = request.GET.get("after", "")
    answer = find(
        text, conn=door.raw(), pages=_pages(request, slug, whole=bool(text.strip())), now=now, slug=slug,
        after=int(after) if after.isascii() and after.isdigit() and int(after) <= AFTER_MAX else 0,
    )  # fmt: skip
    asked: dict[str, str | int] = {"q": text, **({"tenant": slug} if slug else {})}
    found: dict[str, Any] = {"answer": answer, "text": text, "slug": slug, "place": ""}
    if answer.after is not None:
        found["more_url"] = f"{request.path}?{urlencode({**asked, 'after': answer.after})}"
    if request.headers.get(FRAGMENT) == "found":
        found["template"] = "console/found.html"
    return found


def _pages(request: HttpRequest, slug: str, *, whole: bool) -> list[Page]:
    """The places of the platform and of the tenant, the operator's views, and, when something is asked, all tables."""
    found = [Page(place.label, url) for place, url in places_of(request.user)]
    if slug:
        found += [Page(f"{place.label} of {slug}", url) for place, url in places_of(request.user, slug)[1:]]
    found += [Page(view.name, view.url) for view in views_of(request.user)]
    if whole:
        tables = (model for app in admin.site.get_app_list(request) for model in app["models"])
        found += [Page(f"{one['name']} (table)", one["admin_url"]) for one in tables if one.get("admin_url")]
    return found
