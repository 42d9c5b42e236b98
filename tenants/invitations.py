"""Invitations: somebody may become a member, or a member choose a new password, with a token that works once.

Whoever holds the token is believed to be meant: it goes out by mail where mail is set up, and is shown once to whoever
invited. An invitation makes a new account in this tenant and opens no existing one; only one for a member who is named
by it (a reset) changes a password.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from smtplib import SMTPException
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.core.mail import send_mail
from django.db import transaction
from django.http import HttpRequest

from apps.audit.actors import invitation as subject_of_invitation
from apps.audit.actors import member as subject_of_member
from apps.audit.services import Actor, record
from kernel.errors import Conflict, NotFound
from tenants.emails import plain_email
from tenants.models import Domain, Invitation, Member, Tenant
from tenants.people import check_password, check_role, make_room_for_person, member_make
from tenants.sessions import actor_of_member
from tenants.work import atomically

log = logging.getLogger(__name__)
PREFIX = "sbi_"
ACCEPT_PATH = "/console/invitation"
RESET_LIFE = timedelta(hours=24)
MAX_TOKEN_CHARS = 100


def invitation_create(
    *, tenant: Tenant, actor: Actor, email: str, role: str, now: datetime, name: str = "",
    send: Callable[[Invitation, str], None] | None = None,
) -> tuple[Invitation, str]:  # fmt: skip
    """Invites somebody; an open invitation of the same e-mail ends. Returns it with its token, shown once.

    InvalidInput, Forbidden; Conflict when there is such a member. `send` is called once it is committed.
    """
    email = plain_email(email)
    check_role(actor, role)
    expires_at = now + timedelta(seconds=settings.INVITATION_LIFE_S)

    def work() -> tuple[Invitation, str]:
        if Member.objects.filter(tenant=tenant, email=email).exists():
            raise Conflict(f"{email} is a member already.", code="member_exists")
        make_room_for_person(tenant, email=email, now=now)
        made, token = _open(tenant, actor, now, email=email, role=role, name=name, expires_at=expires_at)
        _record(actor, "invitation.create", made, now, after={"role": role})
        if send is not None:
            transaction.on_commit(lambda: send(made, token))
        return made, token

    return atomically(work)


def reset_create(
    *, tenant: Tenant, actor: Actor, member_uid: UUID, now: datetime,
    send: Callable[[Invitation, str], None] | None = None,
) -> tuple[Invitation, str]:  # fmt: skip
    """Lets a member choose a new password. NotFound, Forbidden; Conflict for a member without an e-mail."""

    def work() -> tuple[Invitation, str]:
        member = Member.objects.select_for_update().filter(tenant=tenant, uid=member_uid).first()
        if member is None:
            raise NotFound("There is no such member.")
        check_role(actor, member.role)
        if not member.email:
            raise Conflict("The member has no e-mail to sign in with.", code="member_without_email")
        made, token = _open(
            tenant, actor, now, email=member.email, role=member.role, name=member.name, expires_at=now + RESET_LIFE,
            member=member,
        )  # fmt: skip
        _record(actor, "member.reset", made, now, after={"member": str(member.uid)})
        if send is not None:
            transaction.on_commit(lambda: send(made, token))
        return made, token

    return atomically(work)


def invitation_revoke(*, tenant: Tenant, actor: Actor, invitation_id: UUID, now: datetime) -> None:
    """Ends an invitation; one that is over stays as it is. NotFound."""

    def work() -> None:
        found = Invitation.objects.select_for_update().filter(tenant=tenant, pk=invitation_id).first()
        if found is None:
            raise NotFound("There is no such invitation.")
        if found.accepted_at is None and found.revoked_at is None:
            Invitation.objects.filter(pk=found.pk).update(revoked_at=now)
            _record(actor, "invitation.revoke", found, now, before={"role": found.role})

    atomically(work)


def invitation_find(*, tenant: Tenant, token: str, now: datetime) -> Invitation | None:
    """The open invitation of this token in this tenant; None when unknown, over, or another tenant's."""
    if not token.startswith(PREFIX) or len(token) > MAX_TOKEN_CHARS:
        return None
    return (
        Invitation.objects.select_related("member")
        .filter(tenant=tenant, digest=_digest(token), accepted_at=None, revoked_at=None, expires_at__gt=now)
        .first()
    )


def invitation_accept(
    *, request: HttpRequest, tenant: Tenant, token: str, password: str, name: str, now: datetime
) -> Member:  # fmt: skip
    """Makes the member, or gives one its new password (and ends its sessions). NotFound, InvalidInput, Conflict."""
    known = invitation_find(tenant=tenant, token=token, now=now)
    if known is None:
        raise NotFound("There is no such invitation.")
    check_password(password, email=known.email, name=name)
    hashed = make_password(password)  # takes long, so not while rows are locked

    def work() -> Member:
        # A removal of the member takes the rows the other way round: a deadlock is tried again.
        taken = Invitation.objects.filter(
            pk=known.pk, accepted_at=None, revoked_at=None, expires_at__gt=now
        ).update(accepted_at=now)  # fmt: skip
        if not taken:
            raise NotFound("There is no such invitation.")
        if known.member is None:
            member = member_make(tenant=tenant, email=known.email, role=known.role, name=name, password=None)
        else:
            rows = Member.objects.select_for_update(of=("self",)).select_related("user")
            found = rows.filter(pk=known.member.pk).first()
            if found is None:
                raise NotFound("There is no such invitation.")
            member = found
            member.session_epoch += 1
            member.save(update_fields=["session_epoch"])
        member.user.password = hashed
        member.user.save(update_fields=["password"])
        member.tenant = tenant
        action = "invitation.accept" if known.member is None else "member.password"
        _record(
            actor_of_member(member, request), action, known, now, after={"member": str(member.uid), "role": member.role}
        )
        return member

    return atomically(work)


def link(tenant: Tenant, token: str, *, asked: HttpRequest | None = None) -> str:
    """Where the token is used, on the tenant's own host: with PUBLIC_URL's scheme and port, else those of a request."""
    host = Domain.objects.filter(tenant=tenant).order_by("-is_primary", "pk").values_list("domain", flat=True).first()
    base = settings.PUBLIC_URL or (f"{asked.scheme}://{asked.get_host()}" if asked is not None else "http://")
    parts = urlsplit(base)
    at = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{at}{ACCEPT_PATH}?token={token}"


def mails() -> bool:
    """Whether mail goes out."""
    return bool(settings.EMAIL_URL)


def send_invitation(invitation: Invitation, token: str) -> None:
    """Mails the link, where mail is set up. A failure is logged; the invitation stands."""
    if not mails():
        return
    what = "choose a new password" if invitation.member_id else "join"
    where = " ".join(invitation.tenant.name.split())  # in a header: one line
    text = (
        f"Open this link to {what} ({where} on Shardbeat):\n\n{link(invitation.tenant, token)}\n\n"
        f"It works once, until {invitation.expires_at:%Y-%m-%d %H:%M} UTC. "
        "If you do not know what this is about, do nothing.\n"
    )
    try:
        send_mail(f"Shardbeat: {what} ({where})", text, settings.EMAIL_SENDER, [invitation.email])
    except (OSError, SMTPException) as error:
        log.warning("invitation %s could not be mailed: %s", invitation.pk, error)


def _open(
    tenant: Tenant, actor: Actor, now: datetime, *, email: str, role: str, name: str, expires_at: datetime,
    member: Member | None = None,
) -> tuple[Invitation, str]:  # fmt: skip
    Invitation.objects.filter(tenant=tenant, email=email, accepted_at=None, revoked_at=None).update(revoked_at=now)
    token = PREFIX + secrets.token_urlsafe(32)
    made = Invitation(
        tenant=tenant, member=member, email=email, name=name, role=role, digest=_digest(token), created_at=now,
        created_by=actor.stored, expires_at=expires_at,
    )  # fmt: skip
    inserted = Invitation.objects.bulk_create([made], ignore_conflicts=True)
    if not Invitation.objects.filter(pk=inserted[0].pk).exists():
        raise Conflict("This address is being invited right now.", code="busy")
    return made, token


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def about_invitation(invitation: Invitation) -> str:
    """Whom the trail's rows of an invitation are about: who is a member already, or whoever is invited."""
    return (
        subject_of_invitation(invitation.pk) if invitation.member is None else subject_of_member(invitation.member.uid)
    )


def _record(actor: Actor, action: str, invitation: Invitation, now: datetime, **more: Any) -> None:
    record(
        actor=actor, action=action, object_type="invitation", object_id=invitation.pk, now=now,
        tenant_id=invitation.tenant_id, about=about_invitation(invitation), personal={"email": invitation.email},
        **more,
    )  # fmt: skip
