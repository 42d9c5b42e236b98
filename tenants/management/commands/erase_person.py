"""Erases what the audit trail says of one person; the rows and the chain stay."""

from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.core.management.base import CommandParser
from django.db.models import Q

from apps.audit.actors import MEMBER, OPERATOR, Actor, invitation, member, operator
from apps.audit.erasing import person_erase
from apps.audit.models import SubjectKey
from kernel.errors import NotFound
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Invitation, Member, Tenant
from tenants.work import database_now


class Command(Base):
    help = (
        "Destroy the keys of a person's name, addresses and programs in the audit trail, of one tenant or of all. "
        "Can't be undone. The login itself stays: remove it first. Exit 1 when there was nothing to erase."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        who = parser.add_mutually_exclusive_group(required=True)
        who.add_argument("--user", metavar="NAME", help="Login or e-mail of somebody who still exists.")
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
            if options["dry_run"]:
                found = SubjectKey.objects.filter(subject=subject, **({"tenant_id": within} if within else {}))
                places |= set(found.values_list("tenant_id", flat=True))
            else:
                now, reason = database_now(), options["reason"]
                places |= set(person_erase(subject=subject, actor=actor, now=now, tenant_id=within, reason=reason))
        slugs = dict(Tenant.objects.filter(pk__in=places).values_list("pk", "slug"))
        names = [slugs.get(one, f"#{one}") if one else "operators" for one in sorted(places)]
        exists = any(_exists(one) for one in subjects)
        answer = {"dry_run": options["dry_run"], "subjects": subjects, "trails": names, "login_exists": exists}
        done, who = "would be erased" if options["dry_run"] else "erased", ", ".join(subjects)
        text = f"{who}: {done} in {', '.join(names)}." if names else f"Nothing is kept of {who}."
        if exists:
            text += " The login still exists and names them."
        self.show(answer, text, as_json=options["format"] == "json")
        if not names:
            raise SystemExit(EXIT_FOUND)


def _of_login(name: str) -> list[str]:
    """All subjects of one person: as an operator, as a member of each tenant, as somebody who was invited."""
    found = list(User.objects.filter(Q(username=name) | Q(memberships__email=name)).distinct().order_by("pk"))
    members = list(Member.objects.filter(Q(user__in=found) | Q(email=name)).order_by("pk"))
    emails = {name, *(one.email for one in members if one.email)}
    invited = Invitation.objects.filter(email__in=emails).order_by("pk").values_list("pk", flat=True)
    subjects = [operator(user.pk) for user in found] + [member(one.uid) for one in members]
    subjects += [invitation(pk) for pk in invited]
    if not subjects:
        raise NotFound(f"There is nobody {name!r}. Give --subject as the trail names them.")
    return subjects


def _exists(subject: str) -> bool:
    kind, _, number = subject.partition(":")
    if kind == MEMBER:
        return Member.objects.filter(uid=number).exists() if _is_uuid(number) else False
    return kind == OPERATOR and number.isdecimal() and User.objects.filter(pk=int(number)).exists()


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
