"""The gate of all pages but those for signing in: a member of the tenant whose host it is."""

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from apps.audit.services import Actor
from tenants.models import Member, Tenant
from tenants.work import database_now

HOME = "/console/"
LOGIN_PATH = "/console/login"


class PortalRequest(HttpRequest):
    """What pages find on a request; the schema is the tenant's."""

    tenant: Tenant
    member: Member
    actor: Actor
    request_id: str
    now: datetime  # the database's


View = Callable[..., HttpResponse]


def signed_in(view: View) -> View:
    """Only for members of the tenant; others are sent to the login, and back afterwards. 404 on the public hosts."""

    @wraps(view)
    def gate(request: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.actor is None:
            back = request.get_full_path() if request.method in ("GET", "HEAD") else HOME
            return HttpResponseRedirect(f"{LOGIN_PATH}?{urlencode({'next': back})}")
        return view(request, *args, **kwargs)

    return of_tenant(gate)


def of_tenant(view: View) -> View:
    """Only on the host of a tenant that is active; for anybody there. What is answered is for this person only."""

    @wraps(view)
    def gate(request: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        tenant: Tenant | None = getattr(request, "tenant", None)
        if tenant is None:
            raise Http404
        request.now = database_now()
        if tenant.status == Tenant.Status.ACTIVE:
            response = view(request, *args, **kwargs)
        else:
            response = render(request, "portal/login_closed.html", status=403)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return gate
