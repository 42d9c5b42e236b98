"""People's sessions at the API, on their tenant's host: the console's login, with the form token in X-CSRFToken."""

from rest_framework.authentication import BaseAuthentication, CSRFCheck
from rest_framework.request import Request

from apps.api.middleware import TenantRequest
from apps.api.throttle import count_session
from apps.audit.actors import Actor
from apps.audit.services import record
from kernel.errors import Forbidden, ShardbeatError
from tenants.models import Member, Tenant

SAFE = ("GET", "HEAD", "OPTIONS")
FORMS = ("multipart/form-data", "application/x-www-form-urlencoded", "text/plain")


class FormTokenMissing(ShardbeatError):
    """What changes something by a session proves that a page of ours sent it."""

    code = "csrf_failed"
    status = 403


class SessionAuthentication(BaseAuthentication):
    """The member that `MemberMiddleware` found. An API key, where there is one, decides alone."""

    def authenticate(self, request: Request) -> tuple[Actor, Member] | None:
        inner: TenantRequest = request._request  # type: ignore[assignment]  # our middleware has made it one
        member, actor = inner.member, inner.actor
        if member is None or actor is None:
            return None
        if str(request.method) not in SAFE:
            _check_form_token(inner)
        if member.tenant.status != Tenant.Status.ACTIVE:
            record(
                actor=actor, action="request", object_type="tenant", object_id=member.tenant.slug, now=inner.now,
                tenant_id=member.tenant_id, allowed=False, reason="tenant_not_active",
            )  # fmt: skip
            raise Forbidden(f"The tenant is {member.tenant.status}.", code="tenant_not_active")
        count_session(inner, member)
        return actor, member


def _check_form_token(request: TenantRequest) -> None:
    """FormTokenMissing. Bodies that a foreign page may send without asking are refused before anything reads them."""
    text = "Send JSON, and the csrftoken cookie's value as X-CSRFToken, from a page of this host."
    if request.content_type in FORMS or not request.headers.get("X-CSRFToken"):
        raise FormTokenMissing(text)
    check = CSRFCheck(lambda _: None)  # type: ignore[arg-type]  # it never answers here
    check.process_request(request)
    if check.process_view(request, None, (), {}) is not None:  # type: ignore[arg-type]  # no view is needed
        raise FormTokenMissing(text)
