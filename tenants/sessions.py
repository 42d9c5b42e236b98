"""Sessions of people on their tenant's host.

A session belongs to the place where it began: one tenant's host, or the public hosts of the operators. Elsewhere it is
nobody's, whatever cookie reaches it; so neither a copied cookie nor a tenant's identity provider opens another door.
"""

from typing import Any

from django.conf import settings
from django.contrib.auth import login, logout
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest

from apps.audit.actors import Actor, at_request
from apps.audit.actors import member as subject_of_member
from tenants.models import Member, Tenant

PLACE, EPOCH = "tenant", "epoch"  # keys of the session: the tenant's number, which operators' sessions lack; see Member
BACKEND = "django.contrib.auth.backends.ModelBackend"


def session_begin(request: HttpRequest, member: Member) -> None:
    """Signs a member in: a new session under a new key, with nothing of what the former one held."""
    request.session.flush()  # what was written into it before the login, by whomever, is gone
    login(request, member.user, backend=BACKEND)
    request.session[PLACE], request.session[EPOCH] = member.tenant_id, member.session_epoch
    request.session.set_expiry(settings.MEMBER_SESSION_S)  # from now on, however much it is used


def session_end(request: HttpRequest) -> None:
    """Signs out, here."""
    logout(request)


def member_of(request: HttpRequest, tenant: Tenant | None) -> Member | None:
    """The member whose session this is; None when it is nobody's here. Then `request.user` is nobody, too."""
    session: Any = request.session
    if session.get(PLACE) != (None if tenant is None else tenant.pk):
        request.user = AnonymousUser()
        return None
    if tenant is None or not request.user.is_authenticated:
        return None
    found = Member.objects.select_related("user").filter(tenant=tenant, user_id=request.user.pk).first()
    if found is None or session.get(EPOCH) != found.session_epoch:
        request.user = AnonymousUser()
        return None
    found.tenant = tenant  # with its plan
    return found


def actor_of_member(member: Member, request: HttpRequest) -> Actor:
    """The person as the audit trail names them."""
    name = f"member:{member.email or member.user.get_username()} ({member.role})"
    made = Actor(name=name, role=member.role, tenant_id=member.tenant_id, subject=subject_of_member(member.uid))
    return at_request(made, request)
