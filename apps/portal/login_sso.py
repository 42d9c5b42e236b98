"""Signing in with the company's identity provider."""

import logging

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.http import require_GET

from apps.audit.actors import Actor, address_of, at_request
from apps.audit.services import record
from apps.portal.login import TOO_MANY, safe_next, slowed
from apps.portal.login_gate import PortalRequest, of_tenant
from apps.signin import flow
from apps.signin.arriving import arrive
from apps.signin.fetch import ProviderUnusable
from apps.signin.models import Provider
from apps.signin.provider import TokenRefused
from kernel.errors import ShardbeatError
from tenants import guard
from tenants.rates import RateLimited
from tenants.sessions import session_begin

log = logging.getLogger(__name__)
CALLBACK = "/console/sso/callback"
COOKIE_PATH = "/console/sso"
UNUSABLE = "The identity provider does not answer as it should. Tell your admin; the request id is {}."


@require_GET
@of_tenant
def start(request: PortalRequest) -> HttpResponse:
    """Off to the provider. A link, not a form: it only begins something."""
    provider = _provider(request)
    try:
        guard.provider_asked(address=address_of(request))
        begun = flow.begin(provider, redirect_uri=_callback(request), back=safe_next(request.GET.get("next", "")))
    except (RateLimited, ProviderUnusable) as error:
        return _refused(request, error)
    response = HttpResponseRedirect(begun.location)
    response.set_cookie(
        flow.COOKIE, begun.cookie, max_age=flow.LIFE_S, path=COOKIE_PATH, httponly=True, samesite="Lax",
        secure=bool(settings.SESSION_COOKIE_SECURE),
    )  # fmt: skip
    response["Referrer-Policy"] = "no-referrer"
    return response


@require_GET
@of_tenant
def callback(request: PortalRequest) -> HttpResponse:
    """Back from the provider, with a code for whoever began in this browser."""
    provider = _provider(request)
    try:
        guard.provider_asked(address=address_of(request))
        proved = flow.finish(
            provider, cookie=request.COOKIES.get(flow.COOKIE, ""), answer=request.GET.dict(),
            redirect_uri=_callback(request), now=request.now,
        )  # fmt: skip
        member = arrive(request=request, provider=provider, claims=proved.claims, now=request.now)
    except (RateLimited, ProviderUnusable, TokenRefused) as error:
        response = _refused(request, error)
    else:
        session_begin(request, member)
        response = HttpResponseRedirect(safe_next(proved.back))
    response.delete_cookie(flow.COOKIE, path=COOKIE_PATH, samesite="Lax")
    # The code is in this page's address, and there may be a form: with "no-referrer" it came with `Origin: null`.
    response["Referrer-Policy"] = "strict-origin"
    return response


def _provider(request: PortalRequest) -> Provider:
    found = flow.provider_of(request.tenant)
    if found is None:
        raise Http404
    return found


def _callback(request: HttpRequest) -> str:
    """Where the provider sends people: this host, as the outside sees it."""
    secure = settings.PUBLIC_URL.startswith("https://") or request.is_secure()
    return f"{'https' if secure else 'http'}://{request.get_host()}{CALLBACK}"


def _refused(request: PortalRequest, error: ShardbeatError) -> HttpResponse:
    """The login page with the reason; it is noted, too. What a provider did wrong is for admins, who find it there."""
    if isinstance(error, RateLimited):
        text = TOO_MANY.format(error.extra["retry_after_s"])
    else:
        actor = at_request(Actor(name="identity provider", role="", tenant_id=request.tenant.pk), request)
        record(
            actor=actor, action="session.refuse", object_type="provider", object_id=request.tenant.pk, now=request.now,
            tenant_id=request.tenant.pk, allowed=False, reason=error.detail,
        )  # fmt: skip
        text = error.detail
    if isinstance(error, ProviderUnusable):
        log.warning("identity provider of %s: %s", request.tenant.slug, error.detail)
        text = UNUSABLE.format(request.request_id)
    context = {"error": text, "sso": True, "next": "/console/", "email": ""}
    page = render(request, "portal/login.html", context, status=error.status)
    return slowed(page, error) if isinstance(error, RateLimited) else page
