"""Who somebody is that a provider vouches for: a known member, an invited one, a new one, or nobody.

By the subject first, for good. By e-mail only the first time, and only when the provider says that it is verified and
its domain is one that the tenant named: an e-mail that anybody may claim opens no account.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.http import HttpRequest

from apps.audit.services import Actor, record
from apps.signin.models import Identity, Provider
from apps.signin.provider import TokenRefused
from kernel.errors import Conflict, InvalidInput, QuotaExceeded
from tenants.emails import plain_email
from tenants.models import Invitation, Member
from tenants.people import make_room_for_person, member_change, member_make
from tenants.permissions import ROLES
from tenants.sessions import actor_of_member
from tenants.work import Again, atomically

NOT_KNOWN = "You are not a member here. Ask for an invitation."
NOT_VERIFIED = "Your identity provider does not vouch for an e-mail of this company."
OTHER_PERSON = "Another login of your identity provider belongs to this e-mail."
NO_ROOM = "There is no place for one more member here. Tell your admin."
MAX_NAME_CHARS = 100


def arrive(*, request: HttpRequest, provider: Provider, claims: Mapping[str, Any], now: datetime) -> Member:
    """The member, with the role that the provider's claim gives. TokenRefused with what the person is told."""

    def work() -> Member:
        member = _known(provider, str(claims["sub"])) or _by_email(provider, claims, now)
        if not member.user.is_active:
            raise TokenRefused(NOT_KNOWN)
        member.tenant = provider.tenant
        return member

    try:
        member = atomically(work)
    except Conflict:  # the same e-mail comes and goes all the time
        raise TokenRefused(OTHER_PERSON) from None
    except QuotaExceeded:
        raise TokenRefused(NO_ROOM) from None
    _give_role(provider, member, claims, now)
    record(
        actor=actor_of_member(member, request), action="session.begin", object_type="member", object_id=member.uid,
        now=now, tenant_id=member.tenant_id, reason="identity provider",
    )  # fmt: skip
    return member


def role_of(provider: Provider, claims: Mapping[str, Any]) -> str:
    """The highest role that values of the claim give; empty when none does."""
    given = claims.get(provider.role_claim) if provider.role_claim else None
    values = given if isinstance(given, list) else [given]
    found = {provider.roles.get(value) for value in values if isinstance(value, str)}
    return next((role for role in reversed(ROLES) if role in found), "")


def _known(provider: Provider, subject: str) -> Member | None:
    found = (
        Identity.objects.select_related("member__user")
        .filter(tenant=provider.tenant, issuer=provider.issuer, subject=subject)
        .first()
    )
    return found.member if found else None


def _by_email(provider: Provider, claims: Mapping[str, Any], now: datetime) -> Member:
    email = _verified_email(provider, claims)
    member = Member.objects.select_related("user").filter(tenant=provider.tenant, email=email).first()
    if member is None:
        member = _join(provider, claims, email, now)
    elif Identity.objects.filter(member=member, issuer=provider.issuer).exclude(subject=claims["sub"]).exists():
        raise TokenRefused(OTHER_PERSON)  # the same subject is who came in another window since we looked
    made = Identity(
        member=member, tenant=provider.tenant, issuer=provider.issuer, subject=str(claims["sub"]), created_at=now
    )
    if not Identity.objects.bulk_create([made], ignore_conflicts=True) or _known(provider, made.subject) != member:
        raise TokenRefused(OTHER_PERSON)
    return member


def _join(provider: Provider, claims: Mapping[str, Any], email: str, now: datetime) -> Member:
    """A new member: by an open invitation, or because the provider's people may come. QuotaExceeded."""
    make_room_for_person(provider.tenant, email=email, now=now)  # who is invited has a place; locks the tenant first
    invited = (
        Invitation.objects.select_for_update()
        .filter(tenant=provider.tenant, email=email, member=None, accepted_at=None, revoked_at=None, expires_at__gt=now)
        .first()
    )
    role = invited.role if invited is not None else role_of(provider, claims) or provider.default_role
    if not role:
        raise TokenRefused(NOT_KNOWN)
    given = claims.get("name")
    name = "".join(one for one in given if one.isprintable())[:MAX_NAME_CHARS] if isinstance(given, str) else ""
    if invited is not None:
        Invitation.objects.filter(pk=invited.pk).update(accepted_at=now)
    try:
        member = member_make(tenant=provider.tenant, email=email, role=role, name=name.strip(), password=None)
    except Conflict:  # made just now, such as by a second click: then it is to be found
        raise Again from None
    record(
        actor=_provider_actor(provider), action="member.create", object_type="member", object_id=member.uid, now=now,
        tenant_id=provider.tenant_id, after={"role": role, "invited": invited is not None},
    )  # fmt: skip
    return member


def _verified_email(provider: Provider, claims: Mapping[str, Any]) -> str:
    given = claims.get("email")
    if claims.get("email_verified") is not True or not isinstance(given, str):
        raise TokenRefused(NOT_VERIFIED)
    try:
        email = plain_email(given)
    except InvalidInput:
        raise TokenRefused(NOT_VERIFIED) from None
    if email.rpartition("@")[2] not in provider.domains:
        raise TokenRefused(NOT_VERIFIED)
    return email


def _give_role(provider: Provider, member: Member, claims: Mapping[str, Any], now: datetime) -> None:
    """The claim's role, when it gives one; the last admin stays admin whatever it says."""
    role = role_of(provider, claims)
    if not role or role == member.role:
        return
    try:
        changed = member_change(
            tenant=provider.tenant, actor=_provider_actor(provider), member_uid=member.uid, changes={"role": role},
            now=now,
        )  # fmt: skip
        member.role = changed.role
    except Conflict:
        return


def _provider_actor(provider: Provider) -> Actor:
    return Actor(name="identity provider", role="admin", tenant_id=provider.tenant_id)
