"""The gate of all pages but those for signing in: a member of the tenant whose host it is."""

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect

from apps.audit.services import Actor
from tenants.models import Member, Tenant
from tenants.work import database_now

LOGIN_PATH = "/console/login"


class PortalRequest(HttpRequest):
    """What pages behind the gate find on a request; the schema is the tenant's."""

    tenant: Tenant
    member: Member
    actor: Actor
    request_id: str
    now: datetime  # the database's


def signed_in(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Only for members of the tenant; others are sent to the login, and back afterwards. 404 on the public hosts."""

    @wraps(view)
    def gate(request: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        if getattr(request, "tenant", None) is None:
            raise Http404
        if getattr(request, "actor", None) is None:
            back = request.get_full_path() if request.method in ("GET", "HEAD") else "/console/"
            return HttpResponseRedirect(f"{LOGIN_PATH}?{urlencode({'next': back})}")
        request.now = database_now()
        response = view(request, *args, **kwargs)
        response.headers.setdefault("Cache-Control", "no-store")  # a page is for this person only
        return response

    return gate
