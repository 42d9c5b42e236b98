"""The operator's saved views: kept from any page, renamed, shared, deleted."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from apps.audit.trail import actor_of
from apps.console.pages import page
from apps.console.saved import (
    LISTED_MAX,
    NAME_CHARS,
    is_page,
    may_change,
    view_change,
    view_delete,
    view_save,
    views_of,
)
from kernel.errors import InvalidInput, ShardbeatError


@page(
    "views", "views/", title="Saved views", template="console/saved_views.html", place="views", methods=("GET", "POST")
)
def saved_views(request: HttpRequest, now: datetime) -> HttpResponse | dict[str, Any]:
    """`url` in the query is the page to keep, as the link of every page says it."""
    given = request.POST if request.method == "POST" else request.GET
    fault = ""
    if request.method == "POST":
        try:
            said, target = _do(request, now)
            messages.success(request, said)
            return HttpResponseRedirect(target)
        except InvalidInput as error:
            fault = " ".join(f"{one.pointer.strip('/').capitalize()} {one.detail}." for one in error.errors)
        except ShardbeatError as error:
            fault = error.detail
    url = given.get("url", "")
    rows = [(view, may_change(request.user, view)) for view in views_of(request.user, most=LISTED_MAX)]
    return {
        "rows": rows, "fault": fault, "url": url if is_page(url) else "", "name": given.get("name", ""),
        "name_chars": NAME_CHARS, "status": 400 if fault else 200,
    }  # fmt: skip


def _do(request: HttpRequest, now: datetime) -> tuple[str, str]:
    """Does what the form says; what to say about it, and where to go on."""
    given = request.POST
    who: dict[str, Any] = {"user": request.user, "actor": actor_of(request), "now": now}
    shared, here = given.get("shared") == "on", reverse("console:views")
    view_id = int(given["view"]) if given.get("view", "").isdecimal() and len(given["view"]) < 19 else 0
    if given.get("do") == "delete":
        view_delete(view_id=view_id, **who)
        return "The view is deleted.", here
    if given.get("do") == "change":
        view_change(view_id=view_id, name=given.get("name", ""), shared=shared, **who)
        return "The view is changed.", here
    made = view_save(name=given.get("name", ""), url=given.get("url", ""), shared=shared, **who)
    return f"The view {made.name} is saved.", made.url
