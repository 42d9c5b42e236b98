"""Erases what the audit trail says of one person; the rows and the chain stay."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.core.management.base import CommandParser
from django.db import transaction
from django.db.models import Q

from apps.audit.actors import INVITATION, MEMBER, OPERATOR, Actor, invitation, member, operator
from apps.audit.erasing import person_erase, subjects_named
from kernel.errors import NotFound
from tenants import door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Invitation, Member, Tenant
from tenants.work import database_now, rehearsing

# Kept for idempotency keys: what was answered about members and invitations names them.
_ANSWERS = """
DELETE FROM public.api_idempotentanswer
WHERE (%(tenant)s::bigint IS NULL OR tenant_id = %(tenant)s) AND body LIKE ANY (%(ids)s)
"""


class Command(Base):
    help = (
        "Destroy the keys of a person's name, addresses and programs in the audit trail, of one tenant or of all, and "
        "forget their invitations that are over. Can't be undone. The login itself stays: remove it first. Exit 1 when "
        "the trail had nothing to erase."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        who = parser.add_mutually_exclusive_group(required=True)
        who.add_argument("--user", metavar="NAME", help="Login or e-mail, also of somebody who has left.")
        who.add_argument("--subject", metavar="SUBJECT", help="As the trail names them: user:3, member:<id>, key:<id>.")
        parser.add_argument("--tenant", metavar="SLUG", help="Only in this tenant's trail.")
        parser.add_argument("--reason", default="", help="Why; it is written into the trail.")
        parser.add_argument("--dry-run", action="store_true", help="Only say where there is something.")

    def handle(self, *args: Any, **options: Any) -> None:
        subjects = [options["subject"]] if options["subject"] else _of_login(options["user"])
        tenant = self.tenant(options["tenant"]) if options["tenant"] else None
        within = tenant.pk if tenant else None
        actor, places = Actor(name="command:erase_person", role="admin"), set[int]()
        for subject in subjects:
            now, reason = database_now(), options["reason"]
            with rehearsing(options["dry_run"]), transaction.atomic():
                places |= set(person_erase(subject=subject, actor=actor, now=now, tenant_id=within, reason=reason))
                _forget(subject, within, now)
        slugs = dict(Tenant.objects.filter(pk__in=places).values_list("pk", "slug"))
        names = [slugs.get(one, f"#{one}") if one else "operators" for one in sorted(places)]
        exists = any(_exists(one) for one in subjects)
        answer = {"dry_run": options["dry_run"], "subjects": subjects, "trails": names, "login_exists": exists}
        done, who = "would be erased" if options["dry_run"] else "erased", ", ".join(subjects)
        text = f"{who}: {done} in {', '.join(names)}." if names else f"Nothing is kept of {who}."
        if exists:
            text += " The login, or an open invitation, still exists and names them."
        self.show(answer, text, as_json=options["format"] == "json")
        if not names:
            raise SystemExit(EXIT_FOUND)


def _of_login(name: str) -> list[str]:
    """All subjects of one person: as an operator, as a member of each tenant, as somebody who was invited; also those
    who are not there any more, from the trail."""
    found = list(User.objects.filter(Q(username=name) | Q(memberships__email=name.lower())).distinct().order_by("pk"))
    members = list(Member.objects.filter(Q(user__in=found) | Q(email=name.lower())).order_by("pk"))
    emails = {name.lower(), *(one.email for one in members if one.email)}
    asked = Invitation.objects.filter(email__in=emails, member=None).order_by("pk")
    subjects = [operator(user.pk) for user in found] + [member(one.uid) for one in members]
    subjects += [invitation(pk) for pk in asked.values_list("pk", flat=True)]
    subjects += [one for one in subjects_named(emails) if one not in subjects]
    if not subjects:
        raise NotFound(f"There is nobody {name!r}. Give --subject as the trail names them.")
    return subjects


def _forget(subject: str, tenant_id: int | None, now: datetime) -> None:
    """What names them outside of the trail and of the login: invitations that are over, and answers that are kept."""
    kind, _, number = subject.partition(":")
    if kind not in (MEMBER, INVITATION) or not _is_uuid(number):
        return
    own = Q(pk=number) if kind == INVITATION else Q(member__uid=number)
    over = Q(expires_at__lte=now) | Q(accepted_at__isnull=False) | Q(revoked_at__isnull=False)
    found = Invitation.objects.filter(own, over, **({"tenant_id": tenant_id} if tenant_id else {}))
    ids = [number, *(str(pk) for pk in found.values_list("pk", flat=True))]
    door.raw().execute(_ANSWERS, {"tenant": tenant_id, "ids": [f"%{one}%" for one in ids]})
    found.delete()


def _exists(subject: str) -> bool:
    kind, _, number = subject.partition(":")
    if kind == INVITATION:
        return _is_uuid(number) and Invitation.objects.filter(pk=number).exists()
    if kind == MEMBER:
        return Member.objects.filter(uid=number).exists() if _is_uuid(number) else False
    return kind == OPERATOR and number.isdecimal() and User.objects.filter(pk=int(number)).exists()


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
