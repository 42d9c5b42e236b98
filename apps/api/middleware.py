"""Which tenant a request is for, and its id. The tenant comes from the API key or the host, never from the body.

The schema of this thread's connection is set for the request only, and public again afterwards whatever happened.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from uuid import uuid4

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.db import connection
from django.http import HttpRequest, HttpResponse
from rest_framework.exceptions import AuthenticationFailed

from apps.api import health, metrics
from apps.api.authentication import actor_of, invalid_key
from apps.api.bodies import BodyBroken, BodyTooLarge, LengthRequired, take_in
from apps.api.problems import (
    NO_DATABASE,
    migrating_response,
    plain_response,
    refusal_response,
    unavailable_response,
    waits_for_migration,
)
from apps.api.throttle import count_failure, count_request, know, look_at
from apps.audit.actors import Actor, at_request
from apps.audit.services import record
from kernel.errors import Forbidden
from kernel.runtokens import PREFIXES, RunToken
from tenants import door
from tenants.keys import apikey_look, apikey_touch
from tenants.models import ApiKey, Domain, Member, Tenant
from tenants.rates import RateLimited, Standing
from tenants.runtokens import runtoken_read
from tenants.work import database_now


class TenantRequest(HttpRequest):
    """What the middlewares leave on a request."""

    request_id: str
    now: datetime  # the database's, set for the API
    tenant: Tenant | None
    api_key: ApiKey | None
    refusal: Exception | None
    completion: RunToken | None  # of whoever reports the end of one attempt
    standing: Standing | None  # where the caller stands with its limit of requests
    member: Member | None  # whose session it is, on the tenant's host
    actor: Actor | None  # the same person as services and the trail know them


Handler = Callable[[TenantRequest], HttpResponse]
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
API_PREFIX = "/api/"
# What runs when its tenant is suspended goes on to its end, so whoever holds it may still say how that went.
ENDS_WHAT_RUNS = re.compile(
    r"/api/v1/(?:executions/[^/]+/(?:complete|heartbeat)"
    r"|queues/leases/(?:settle|[^/]+/(?:heartbeat|complete|fail|release)))"
)
# Answered here, before hosts are looked at: they come with the machine's address as host.
PROBES: Mapping[str, Callable[[HttpRequest], HttpResponse]] = {
    "/healthz": health.alive, "/readyz": health.ready, "/metrics": metrics.metrics, "/metrics/pools": metrics.pools,
}  # fmt: skip
PUBLIC_PATHS = ("/api/v1/schema", "/api/v1/docs")
PUBLIC_PREFIX = f"/{settings.STATIC_URL.strip('/')}/"


class RequestIdMiddleware:
    """Takes over a caller's X-Request-Id when it is harmless, makes one otherwise, and answers with it."""

    def __init__(self, get_response: Handler) -> None:
        self._get_response = get_response

    def __call__(self, request: TenantRequest) -> HttpResponse:
        given = request.headers.get("X-Request-Id", "")
        request.request_id = given if REQUEST_ID.fullmatch(given) else uuid4().hex
        response = self._get_response(request)
        response["X-Request-Id"] = request.request_id
        return response


class TenantMiddleware:
    """Finds the tenant; on hosts that nobody knows only public pages are served."""

    def __init__(self, get_response: Handler) -> None:
        self._get_response = get_response

    def __call__(self, request: TenantRequest) -> HttpResponse:
        request.tenant = request.api_key = request.refusal = request.completion = None
        request.standing = request.member = request.actor = None
        if request.path in PROBES:  # before anything that may wait for the database
            return PROBES[request.path](request)
        try:
            take_in(request)
            return _with_standing(request, self._serve(request))
        except RateLimited as error:
            request.standing = error.standing
            return _with_standing(request, refusal_response(request, error))
        except (BodyTooLarge, BodyBroken, LengthRequired) as error:
            return plain_response(request, status=error.status, code=error.code, detail=error.detail)
        except NO_DATABASE as error:
            return unavailable_response(request, error)
        finally:
            connection.set_schema_to_public()  # type: ignore[attr-defined]  # django-tenants' own connection

    def process_exception(self, request: TenantRequest, exception: Exception) -> HttpResponse | None:
        """Views outside of the API, too: a lost database is no fault of ours."""
        if waits_for_migration(request, exception):
            return migrating_response(request, exception)
        return unavailable_response(request, exception) if isinstance(exception, NO_DATABASE) else None

    def _serve(self, request: TenantRequest) -> HttpResponse:
        api = request.path.startswith(API_PREFIX)
        try:
            host = request.get_host()
        except DisallowedHost:
            if not api:
                raise
            return plain_response(request, status=400, code="unknown_host", detail="This host is not served here.")
        known, tenant = _tenant_of_host(host)
        public = request.path in PUBLIC_PATHS or request.path.startswith(PUBLIC_PREFIX)
        if not known and not public:
            return plain_response(request, status=404, code="unknown_host", detail="This host is not known here.")
        if api and not public and tenant is not None and _by_session(request):
            return self._serve_session(request, tenant)
        if api and not public:
            tenant = _identify(request, tenant)
            if tenant is None and isinstance(request.refusal, AuthenticationFailed | None):
                count_failure(request)
        if tenant is None:
            return self._get_response(request)
        request.tenant = tenant
        with door.inside(tenant):
            return self._get_response(request)

    def _serve_session(self, request: TenantRequest, tenant: Tenant) -> HttpResponse:
        """The API, for whoever has a session cookie; MemberMiddleware finds out whose it is."""
        request.now = database_now()
        cookie = request.COOKIES[settings.SESSION_COOKIE_NAME]
        look_at(request, cookie)
        request.tenant = tenant
        with door.inside(tenant):
            response = self._get_response(request)
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            count_failure(request)
        elif request.member is not None:
            know(request, cookie)
        return response


def _by_session(request: TenantRequest) -> bool:
    return "Authorization" not in request.headers and settings.SESSION_COOKIE_NAME in request.COOKIES


def _tenant_of_host(host: str) -> tuple[bool, Tenant | None]:
    """(known, tenant): a public host is known and has none."""
    name = host.lower()
    name = name[: name.index("]") + 1] if name.startswith("[") and "]" in name else name.partition(":")[0]
    name = name.removesuffix(".")
    if name in settings.PUBLIC_HOSTS:
        return True, None
    domain = Domain.objects.select_related("tenant__plan").filter(domain=name).first()
    return domain is not None, domain.tenant if domain else None


def _with_standing(request: TenantRequest, response: HttpResponse) -> HttpResponse:
    if request.standing is not None:
        for name, value in request.standing.headers().items():
            response[name] = value
    return response


def _identify(request: TenantRequest, of_host: Tenant | None) -> Tenant | None:
    """The tenant of the request's key, which is left on the request; or what is wrong, left there as `refusal`."""
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    if not text or scheme.lower() != "bearer":
        request.now = database_now()
        request.refusal = invalid_key() if text else None
        return None
    if text.strip().startswith(PREFIXES["completion"]):
        request.now = database_now()
        return _of_completion(request, text.strip(), of_host)
    look_at(request, text.strip())
    key, request.now = apikey_look(text.strip())
    if key is None:
        request.refusal = invalid_key()
        return None
    count_request(request, key, text.strip())
    request.refusal = _refusal(request, key, of_host)
    if request.refusal is not None:
        return None
    apikey_touch(key, now=request.now)
    request.api_key = key
    return key.tenant


def _of_completion(request: TenantRequest, text: str, of_host: Tenant | None) -> Tenant | None:
    """The tenant of the run whose token this is; what is wrong is left as `refusal`."""
    token = runtoken_read("completion", text)
    tenant: Tenant | None = None
    if token is not None:
        tenant = Tenant.objects.select_related("plan").filter(pk=token.tenant_id).first()
    if token is None or tenant is None or (of_host is not None and of_host.pk != tenant.pk):
        request.refusal = invalid_key()
        return None
    if not _is_served(request, tenant):
        request.refusal = Forbidden(f"The tenant is {tenant.status}.", code="tenant_not_active")
        return None
    request.completion = token
    return tenant


def _refusal(request: TenantRequest, key: ApiKey, of_host: Tenant | None) -> Forbidden | None:
    if of_host is not None and of_host.pk != key.tenant_id:
        reason, detail = "key_of_another_tenant", "The key belongs to another tenant than this host."
    elif not _is_served(request, key.tenant):
        reason, detail = "tenant_not_active", f"The tenant is {key.tenant.status}."
    else:
        return None
    record(
        actor=at_request(actor_of(key), request), action="request", object_type="tenant",
        object_id=of_host.slug if of_host else key.tenant.slug, now=request.now, tenant_id=key.tenant_id,
        allowed=False, reason=reason,
    )  # fmt: skip
    return Forbidden(detail, code=reason)


def _is_served(request: TenantRequest, tenant: Tenant) -> bool:
    if tenant.status == Tenant.Status.SUSPENDED:
        return ENDS_WHAT_RUNS.fullmatch(request.path) is not None
    return tenant.status == Tenant.Status.ACTIVE
