"""The console's own pages: how one is made, and where it is.

    @page("live", "live/", title="Live", template="console/live.html")
    def live(request: HttpRequest, now: datetime) -> dict[str, Any]:
        return {"rows": ...}

A page is a function in a module of `apps.console.views`, which is found there; nothing else has to be edited. It is
given the database's time and the parts of its path, and returns what its template is shown (or a response). The
template extends `console/page.html`. Its address is `console:<name>`, on the public site below `/admin/`, with
`site=TENANT` below `/t/<slug>/admin/`. A page that only reads is one transaction, no statement of which takes longer
than three seconds.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from importlib import import_module
from typing import Any

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from psycopg.errors import QueryCanceled

from apps.audit.trail import database_now
from apps.console import roles, views
from apps.console.reading import short_statements
from kernel.errors import ShardbeatError
from tenants import door

View = Callable[..., HttpResponse | dict[str, Any]]
PUBLIC, TENANT = "public", "tenant"
PROBLEMS = {400: "That can't be done like this", 403: "This is not for your role", 409: "Its state does not allow this"}


@dataclass(frozen=True, slots=True)
class Page:
    """One page. `place` is the entry of the navigation that it belongs to; `level` what its reader's roles have to
    have, empty for all staff."""

    name: str
    route: str
    title: str
    template: str
    level: str
    place: str
    site: str
    methods: tuple[str, ...]
    view: View


PAGES: dict[tuple[str, str], Page] = {}


def page(
    name: str, route: str, *, title: str, template: str, level: str = roles.VIEW, place: str = "", site: str = PUBLIC,
    methods: tuple[str, ...] = ("GET",),
) -> Callable[[View], View]:  # fmt: skip
    """Makes a page of a function. `title` and `status` in what it returns go before the page's own."""

    def made(view: View) -> View:
        assert (site, name) not in PAGES, f"two pages are called {name}"
        PAGES[site, name] = Page(name, route, title, template, level, place or name, site, methods, view)
        return view

    return made


def patterns(kind: str, site: AdminSite) -> list[URLPattern]:
    """The addresses of one site's pages."""
    _find()
    return [
        path(one.route, site.admin_view(partial(_serve, one, site)), name=one.name)
        for one in PAGES.values()
        if one.site == kind
    ]


def level_of(kind: str, name: str) -> str | None:
    """What a page takes, "" for all staff; None where there is no such page."""
    _find()
    found = PAGES.get((kind, name))
    return found.level if found is not None else None


def shown(
    one: Page, site: AdminSite, request: HttpRequest, /, *, template: str = "", status: int = 200, **context: Any
) -> TemplateResponse:
    """What all pages have around them."""
    request.current_app = site.name  # Django's own way to say it to `{% url %}`
    whole = {**site.each_context(request), "title": one.title, "place": one.place, **context}
    return TemplateResponse(request, template or one.template, whole, status=status)


def _serve(one: Page, site: AdminSite, request: HttpRequest, **kwargs: Any) -> HttpResponse:
    if request.method not in (*one.methods, "HEAD"):
        return HttpResponseNotAllowed(one.methods)
    if one.level and not roles.may(request.user, one.level):
        raise PermissionDenied(roles.lacks(request.user, one.level))
    try:
        if request.method == "POST":  # services have their own transactions
            return _answer(one, site, request, database_now(), kwargs)
        with short_statements() as now:
            return _answer(one, site, request, now, kwargs)
    except ShardbeatError as error:
        if error.status == 404:
            raise Http404(error.detail) from error
        if error.status not in PROBLEMS:
            raise
        return shown(
            one, site, request, template="console/problem.html", status=error.status, title=PROBLEMS[error.status],
            detail=error.detail,
        ).render()  # fmt: skip
    except (OperationalError, QueryCanceled) as error:
        if not isinstance(door.cause_of(error), QueryCanceled):
            raise
    title = "This takes too long"
    return shown(one, site, request, template="console/narrow_page.html", status=503, title=title).render()


def _answer(
    one: Page, site: AdminSite, request: HttpRequest, now: datetime, kwargs: dict[str, Any]
) -> HttpResponse:  # fmt: skip
    found = one.view(request, now, **kwargs)
    if isinstance(found, dict):
        found = shown(one, site, request, **{"now": now, **found})
    return found.render() if isinstance(found, TemplateResponse) else found


@cache
def _find() -> None:
    """Once a process: the navigation of every page asks for the levels of some twenty others."""
    for module in pkgutil.iter_modules(views.__path__):
        import_module(f"{views.__name__}.{module.name}")
