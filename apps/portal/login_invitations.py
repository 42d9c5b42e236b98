"""Accepting an invitation, or choosing a new password with a token."""

from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from apps.audit.actors import address_of
from apps.portal.login import TOO_MANY, slowed
from apps.portal.login_gate import HOME, PortalRequest, of_tenant
from kernel.errors import Conflict, InvalidInput, NotFound
from tenants import guard
from tenants.invitations import invitation_accept, invitation_find
from tenants.rates import RateLimited
from tenants.sessions import session_begin

MAX_NAME_CHARS = 100


@sensitive_post_parameters("password", "again", "token")
@require_http_methods(["GET", "HEAD", "POST"])
@of_tenant
def invitation(request: PortalRequest) -> HttpResponse:
    """Looking changes nothing (mail scanners look); the form's answer makes the account and signs in."""
    token = request.POST.get("token") or request.GET.get("token") or ""
    try:
        guard.token_tried(address=address_of(request))
    except RateLimited as error:
        text = TOO_MANY.format(error.extra["retry_after_s"])
        return slowed(_page(request, "", {"errors": [text], "over": True}, status=429), error)
    found = invitation_find(tenant=request.tenant, token=token, now=request.now)
    if found is None:
        return _page(request, "", {"over": True}, status=404)
    context = {"invitation": found, "reset": found.member_id is not None, "name": found.name}
    if request.method != "POST":
        return _page(request, token, context)
    name = "".join(char for char in request.POST.get("name", "") if char.isprintable()).strip()[:MAX_NAME_CHARS]
    password = request.POST.get("password", "")
    if password != request.POST.get("again", ""):
        return _page(request, token, {**context, "name": name, "errors": ["The passwords differ."]}, status=422)
    try:
        member = invitation_accept(
            request=request, tenant=request.tenant, token=token, password=password, name=name, now=request.now
        )  # fmt: skip
    except InvalidInput as error:
        faults = [fault.detail for fault in error.errors]
        return _page(request, token, {**context, "name": name, "errors": faults}, status=422)
    except (NotFound, Conflict):
        return _page(request, "", {"over": True}, status=404)
    session_begin(request, member)
    return HttpResponseRedirect(HOME)


def _page(request: PortalRequest, token: str, context: dict[str, object], *, status: int = 200) -> HttpResponse:
    response = render(request, "portal/login_invitation.html", {**context, "token": token}, status=status)
    # The token is in this page's address. "no-referrer" would have browsers send the form with `Origin: null`.
    response["Referrer-Policy"] = "strict-origin"
    return response
