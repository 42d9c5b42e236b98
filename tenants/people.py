"""Members: who belongs to a tenant, with which role. Each service is one transaction with its audit row.

A member has a login of its own in each tenant (a Django user that nobody else has), so nothing that one tenant does to
its people reaches another one: no password, no identity provider, no invitation.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError
from django.db.models import QuerySet

from apps.audit.actors import member as subject_of_member
from apps.audit.services import Actor, record
from kernel.errors import Conflict, FieldError, Forbidden, InvalidInput, NotFound, Stale
from kernel.ids import uuid7
from tenants.emails import plain_email
from tenants.limits import make_room
from tenants.models import Invitation, Member, Role, Tenant
from tenants.permissions import ROLES, may_grant
from tenants.work import atomically

MAX_PASSWORD_CHARS = 1_024  # what is longer only costs time
USER_PREFIX = "member-"


def member_add(
    *, tenant: Tenant, actor: Actor, email: str, role: str, now: datetime, name: str = "", password: str | None = None
) -> Member:  # fmt: skip
    """A new member; without a password it can't sign in with one. InvalidInput; Conflict when the e-mail is taken."""
    email = plain_email(email)
    check_role(actor, role)
    if password is not None:
        check_password(password, email=email, name=name)

    def work() -> Member:
        make_room_for_person(tenant, email=email, now=now)
        member = member_make(tenant=tenant, email=email, role=role, name=name, password=password)
        _record(actor, "member.create", member, now, after={"role": role})
        return member

    return atomically(work)


def make_room_for_person(tenant: Tenant, *, email: str, now: datetime) -> None:
    """QuotaExceeded when the plan has no place for one more; open invitations have theirs, but for this e-mail's."""
    members, invited = counted_people(tenant, now=now)
    what = "members, people who are invited included"
    make_room(tenant, members, invited.exclude(email=email), quota="max_members", what=what)


def counted_people(tenant: Tenant, *, now: datetime) -> "tuple[QuerySet[Member], QuerySet[Invitation]]":
    """Whom a plan counts: members, and those who are invited and may still accept."""
    invited = Invitation.objects.filter(
        tenant=tenant, member=None, accepted_at=None, revoked_at=None, expires_at__gt=now
    )  # fmt: skip
    return Member.objects.filter(tenant=tenant), invited


def member_make(*, tenant: Tenant, email: str, role: str, name: str, password: str | None) -> Member:
    """The rows alone, in the caller's transaction. Conflict when the e-mail is taken."""
    uid = uuid7()
    user = User(username=f"{USER_PREFIX}{uid.hex}", email=email)
    user.set_password(password)  # None is one that nobody can have
    user.save(force_insert=True)
    try:
        return Member.objects.create(tenant=tenant, user=user, uid=uid, email=email, name=name, role=role)
    except IntegrityError:
        raise Conflict(f"{email} is a member already.", code="member_exists") from None


def member_change(
    *, tenant: Tenant, actor: Actor, member_uid: UUID, changes: Mapping[str, str], now: datetime,
    expect: Collection[int] | None = None,
) -> Member:  # fmt: skip
    """Changes `role` and `name`. NotFound, Stale; Conflict for the last admin."""
    if "role" in changes:
        check_role(actor, changes["role"])

    def work() -> Member:
        member = _locked(tenant, member_uid, expect)
        before = {name: getattr(member, name) for name in changes if getattr(member, name) != changes[name]}
        if not before:
            return member
        if "role" in before:
            check_role(actor, member.role)
            if member.role == Role.ADMIN:
                _another_admin(tenant, member)
        after: dict[str, str] = {name: changes[name] for name in before}
        for name, value in after.items():
            setattr(member, name, value)
        member.revision += 1
        member.save(update_fields=[*after, "revision"])
        if "name" in after:  # the trail can't forget a person's name
            before["name"] = after["name"] = ""
        _record(actor, "member.update", member, now, before=before, after=after)
        return member

    return atomically(work)


def member_remove(
    *, tenant: Tenant, actor: Actor, member_uid: UUID, now: datetime, expect: Collection[int] | None = None
) -> None:
    """Ends a membership: sessions are over with the next request. NotFound, Stale; Conflict for the last admin."""

    def work() -> None:
        member = _locked(tenant, member_uid, expect)
        check_role(actor, member.role)
        if member.role == Role.ADMIN:
            _another_admin(tenant, member)
        user, pk = member.user, member.pk
        _record(actor, "member.remove", member, now, before={"role": member.role})
        member.delete()
        if user.username.startswith(USER_PREFIX) and not Member.objects.filter(user=user).exclude(pk=pk).exists():
            user.delete()

    atomically(work)


def sessions_end(*, tenant: Tenant, actor: Actor, member_uid: UUID, now: datetime) -> Member:
    """Signs a member out everywhere. NotFound."""

    def work() -> Member:
        member = _locked(tenant, member_uid, None)
        member.session_epoch += 1
        member.save(update_fields=["session_epoch"])
        _record(actor, "member.sign_out", member, now)
        return member

    return atomically(work)


def password_set(*, tenant: Tenant, actor: Actor, member_uid: UUID, password: str, now: datetime) -> Member:
    """Another password; all sessions are over. InvalidInput, NotFound."""
    known = Member.objects.filter(tenant=tenant, uid=member_uid).first()
    if known is None:
        raise NotFound("There is no such member.")
    check_password(password, email=known.email, name=known.name)
    hashed = make_password(password)  # takes long, so not while rows are locked

    def work() -> Member:
        member = _locked(tenant, member_uid, None)
        member.user.password = hashed
        member.user.save(update_fields=["password"])
        member.session_epoch += 1
        member.save(update_fields=["session_epoch"])
        Invitation.objects.filter(member=member, accepted_at=None, revoked_at=None).update(revoked_at=now)
        _record(actor, "member.password", member, now)
        return member

    return atomically(work)


def check_role(actor: Actor, role: str) -> None:
    """InvalidInput for what is no role of people; Forbidden for more than the actor may itself."""
    if role not in ROLES:
        detail = f"must be one of {', '.join(ROLES)}."
        raise InvalidInput([FieldError("/role", "choice", detail)], detail)
    if not may_grant(actor, role=role, scopes=None):
        raise Forbidden("Nobody grants or takes more than they may themselves.", code="grant_too_high")


def check_password(password: str, *, email: str, name: str) -> None:
    """InvalidInput with every reason against a password; nothing said repeats it."""
    if len(password) > MAX_PASSWORD_CHARS:
        faults = [f"At most {MAX_PASSWORD_CHARS:,} characters."]
    else:
        try:
            validate_password(password, User(username=email, email=email, first_name=name))
            return
        except ValidationError as error:
            faults = list(error.messages)
    raise InvalidInput([FieldError("/password", "weak_password", one) for one in faults], " ".join(faults))


def _locked(tenant: Tenant, member_uid: UUID, expect: Collection[int] | None) -> Member:
    """The member, locked with the tenant's admins, all in the order of their ids: the last one is counted once."""
    found = Member.objects.filter(tenant=tenant, uid=member_uid).values_list("pk", flat=True).first()
    if found is None:
        raise NotFound("There is no such member.")
    admins = Member.objects.filter(tenant=tenant, role=Role.ADMIN).values_list("pk", flat=True)
    keys = sorted({found, *admins})
    rows = {
        row.pk: row
        for row in Member.objects.select_for_update(of=("self",))
        .select_related("user")
        .filter(pk__in=keys)
        .order_by("pk")
    }
    member = rows.get(found)
    if member is None:
        raise NotFound("There is no such member.")
    if expect is not None and member.revision not in expect:
        raise Stale("The member has changed since; read it again.")
    member.tenant = tenant
    return member


def _another_admin(tenant: Tenant, member: Member) -> None:
    if not Member.objects.filter(tenant=tenant, role=Role.ADMIN).exclude(pk=member.pk).exists():
        raise Conflict("The last admin stays; make somebody else admin first.", code="last_admin")


def _record(actor: Actor, action: str, member: Member, now: datetime, **more: Any) -> None:
    record(
        actor=actor, action=action, object_type="member", object_id=member.uid, now=now, tenant_id=member.tenant_id,
        about=subject_of_member(member.uid), personal={"email": member.email, "name": member.name}, **more,
    )  # fmt: skip
