"""Signing in with a password: slowed, the same answer and about the same time whatever is wrong."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from django.contrib.auth.hashers import make_password
from django.http import HttpRequest

from apps.audit.actors import address_of
from apps.audit.services import record
from kernel.errors import ShardbeatError
from tenants import guard
from tenants.emails import typed_email
from tenants.models import Member, Tenant
from tenants.people import MAX_PASSWORD_CHARS
from tenants.sessions import actor_of_member


class Busy(ShardbeatError):
    """As many passwords are being checked as this process does at a time."""

    code = "busy"
    status = 503


def sign_in(*, request: HttpRequest, tenant: Tenant, email: str, password: str, now: datetime) -> Member | None:
    """The member with this e-mail and password; None when either is wrong. RateLimited, Busy."""
    account, address = typed_email(email), address_of(request)
    guard.attempt(tenant_id=tenant.pk, account=account, address=address)
    member = _active(tenant, account)
    if not _proves(member, password):
        if member is not None:
            _record(member, "session.refuse", now, request, allowed=False, reason="wrong password")
        return None
    assert member is not None
    guard.succeeded(tenant_id=tenant.pk, account=account, address=address)
    _record(member, "session.begin", now, request)
    return member


def confirm(*, request: HttpRequest, member: Member, password: str, now: datetime) -> bool:
    """Whether somebody who is signed in knows the password; as slow to guess as at the door. RateLimited, Busy."""
    address = address_of(request)
    guard.attempt(tenant_id=member.tenant_id, account=member.email, address=address)
    if not _proves(member, password):
        _record(member, "member.password", now, request, allowed=False, reason="wrong password")
        return False
    guard.succeeded(tenant_id=member.tenant_id, account=member.email, address=address)
    return True


def signed_out(*, request: HttpRequest, member: Member, now: datetime) -> None:
    """Notes the end of a session."""
    _record(member, "session.end", now, request)


def _active(tenant: Tenant, account: str) -> Member | None:
    if not account:
        return None
    found = Member.objects.select_related("user").filter(tenant=tenant, email=account, user__is_active=True).first()
    if found is not None:
        found.tenant = tenant
    return found


def _proves(member: Member | None, password: str) -> bool:
    """Costs one hash in any case."""
    usable = member is not None and member.user.has_usable_password() and len(password) <= MAX_PASSWORD_CHARS
    with hashing():
        if member is not None and usable:
            return member.user.check_password(password)
        make_password("for the time that it takes")
        return False


@contextmanager
def hashing() -> Iterator[None]:
    if not guard.hashing.acquire(timeout=guard.HASH_WAIT_S):
        raise Busy("Too many people sign in right now; try again.", retry_after_s=1)
    try:
        yield
    finally:
        guard.hashing.release()


def _record(
    member: Member, action: str, now: datetime, request: HttpRequest, *, allowed: bool = True, reason: str = ""
) -> None:  # fmt: skip
    record(
        actor=actor_of_member(member, request), action=action, object_type="member",
        object_id=member.uid, now=now, tenant_id=member.tenant_id, allowed=allowed, reason=reason,
    )  # fmt: skip
