"""The tenant in the path: `/t/<slug>/admin/...` is the second admin site, in that tenant's schema.

Nothing of it is in the session, so two tabs on two tenants stay apart. What a request sets (schema, script prefix,
URL conf) is put back whatever happens in it. The admin is on the public hosts only.
"""

import logging
import re
from collections.abc import Callable

import psycopg
from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import get_script_prefix, get_urlconf, reverse, set_script_prefix, set_urlconf

from apps.audit.services import OBJECT_ID_CHARS, record
from apps.audit.trail import actor_of, database_now
from kernel.errors import ShardbeatError
from tenants import door
from tenants.models import Tenant

log = logging.getLogger(__name__)
PATH = re.compile(r"/t/(?P<slug>[a-z0-9-]{1,40})(?P<rest>/admin(?:/.*)?)", re.DOTALL)
OPERATORS = ("/admin", "/t/")
TENANT_URLS = "apps.console.tenant_urls"
CLOSED = (Tenant.Status.PROVISIONING, Tenant.Status.DELETING)  # such a tenant has no pages of its own


def tenant_of(request: HttpRequest) -> Tenant:
    """Whose admin a page below `/t/<slug>/` is."""
    tenant: Tenant = request.console_tenant  # type: ignore[attr-defined]  # the class below sets it
    return tenant


class TenantPathMiddleware:
    """Comes last: the schema is the tenant's for the view alone, not for sessions and messages."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        path = request.path_info
        if getattr(request, "tenant", None) is not None and path.startswith(OPERATORS):
            raise Http404
        match = PATH.fullmatch(path)
        if match is None:
            return self._get_response(request)
        user = request.user
        if not (user.is_active and user.is_staff):  # before anything is said about the tenant
            return redirect_to_login(request.get_full_path(), reverse("admin:login"))
        if match["rest"] == "/admin":
            return HttpResponseRedirect(f"{path}/")
        tenant = Tenant.objects.select_related("plan").filter(slug=match["slug"]).first()
        if tenant is not None and tenant.status in CLOSED and request.method == "GET":
            messages.warning(request, f"Tenant {tenant.slug} is {tenant.status}: it has no other page than this one.")
            return HttpResponseRedirect(reverse("admin:tenants_tenant_change", args=[tenant.pk]))
        if tenant is None or tenant.status in CLOSED:
            raise Http404("There is no such tenant.")
        return self._serve(request, tenant, match["rest"])

    def process_exception(self, request: HttpRequest, exception: Exception) -> None:
        """An operator's attempt at what they may not do is in the trail, too."""
        user = getattr(request, "user", None)
        if not isinstance(exception, PermissionDenied) or request.method != "POST" or not getattr(user, "is_staff", 0):
            return
        tenant: Tenant | None = getattr(request, "console_tenant", None)
        try:
            record(
                actor=actor_of(request), action="admin.change", object_type="page",
                object_id=request.path_info[-OBJECT_ID_CHARS:], now=database_now(),
                tenant_id=tenant.pk if tenant else None, allowed=False, reason="permission",
            )  # fmt: skip
        except (DatabaseError, psycopg.Error, ShardbeatError) as lost:
            log.warning("a refusal was not noted: %s", lost)

    def _serve(self, request: HttpRequest, tenant: Tenant, rest: str) -> HttpResponse:
        prefix, urlconf = get_script_prefix(), get_urlconf()
        request.path_info = rest
        request.urlconf = TENANT_URLS
        request.console_tenant = tenant  # type: ignore[attr-defined]  # for the site and its templates
        set_script_prefix(f"{prefix}t/{tenant.slug}/")
        try:
            with door.inside(tenant):
                return self._get_response(request)
        finally:
            set_script_prefix(prefix)
            set_urlconf(urlconf)
