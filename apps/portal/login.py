"""Signing in with a password, out again, and changing the password."""

from typing import Any

from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from apps.portal.login_gate import HOME, LOGIN_PATH, PortalRequest, of_tenant, signed_in
from apps.signin.flow import provider_of
from kernel.errors import InvalidInput, ShardbeatError
from tenants.people import password_set
from tenants.rates import RateLimited
from tenants.sessions import session_begin, session_end
from tenants.signin import Busy, confirm, sign_in, signed_out

MAX_NEXT_CHARS = 2_000
WRONG = "E-mail or password is wrong."
TOO_MANY = "Too many attempts. Try again in {} s."


@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
@of_tenant
def login(request: PortalRequest) -> HttpResponse:
    """E-mail and password, and back to where one wanted to go."""
    back = safe_next(request.POST.get("next") or request.GET.get("next") or "")
    if request.method != "POST":
        if request.actor is not None:
            return HttpResponseRedirect(back)
        return _login_page(request, back)
    email = request.POST.get("email", "")
    try:
        member = sign_in(
            tenant=request.tenant, email=email, password=request.POST.get("password", ""),
            request=request, now=request.now,
        )  # fmt: skip
    except (RateLimited, Busy) as error:
        return slowed(_login_page(request, back, email=email, error=_wait(error), status=error.status), error)
    if member is None:
        return _login_page(request, back, email=email, error=WRONG, status=401)
    session_begin(request, member)
    return HttpResponseRedirect(back)


@require_POST
@of_tenant
def logout(request: PortalRequest) -> HttpResponse:
    """Ends this session."""
    if request.actor is not None:
        signed_out(request=request, member=request.member, now=request.now)
    session_end(request)
    return HttpResponseRedirect(LOGIN_PATH)


@sensitive_post_parameters("current", "password", "again")
@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def password(request: PortalRequest) -> HttpResponse:
    """Another password, for who knows the present one; all other sessions end."""
    if not request.member.user.has_usable_password():
        return render(request, "portal/login_password.html", {"elsewhere": True})
    if request.method != "POST":
        return render(request, "portal/login_password.html")
    new = request.POST.get("password", "")
    errors: list[str] = []
    if new != request.POST.get("again", ""):
        errors = ["The new passwords differ."]
    try:
        if not errors and not confirm(
            request=request, member=request.member, password=request.POST.get("current", ""), now=request.now
        ):  # fmt: skip
            errors = ["The present password is wrong."]
        if not errors:
            member = password_set(
                tenant=request.tenant, actor=request.actor, member_uid=request.member.uid, password=new,
                now=request.now,
            )  # fmt: skip
            session_begin(request, member)
            return render(request, "portal/login_password.html", {"done": True})
    except InvalidInput as error:
        errors = [fault.detail for fault in error.errors]
    except (RateLimited, Busy) as error:
        page = render(request, "portal/login_password.html", {"errors": [_wait(error)]}, status=error.status)
        return slowed(page, error)
    return render(request, "portal/login_password.html", {"errors": errors}, status=422)


def safe_next(path: str) -> str:
    """A page of this console and of nothing else, whatever was given."""
    plain = path.isascii() and path.isprintable() and len(path) <= MAX_NEXT_CHARS
    plain = plain and not any(part in path for part in ("\\", ".."))
    inside = path.startswith(HOME) and not path.startswith((LOGIN_PATH, f"{HOME}/", f"{HOME}logout"))
    return path if plain and inside else HOME


def slowed(response: HttpResponse, error: ShardbeatError) -> HttpResponse:
    """Says when to come again."""
    response["Retry-After"] = str(error.extra.get("retry_after_s", 1))
    return response


def _wait(error: ShardbeatError) -> str:
    return TOO_MANY.format(error.extra["retry_after_s"]) if isinstance(error, RateLimited) else error.detail


def _login_page(
    request: PortalRequest, back: str, *, email: str = "", error: str = "", status: int = 200
) -> HttpResponse:  # fmt: skip
    context: dict[str, Any] = {"next": back, "email": email[:254], "error": error}
    context["sso"] = provider_of(request.tenant) is not None
    return render(request, "portal/login.html", context, status=status)
