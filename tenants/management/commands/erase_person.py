"""Erases what the audit trail says of one person; the rows and the chain stay."""

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser
from django.db.models import Q

from apps.audit.actors import Actor, person
from apps.audit.erasing import person_erase
from apps.audit.models import SubjectKey
from kernel.errors import NotFound
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Tenant
from tenants.work import database_now


class Command(Base):
    help = (
        "Destroy the keys of a person's name, addresses and programs in the audit trail, of one tenant or of all. "
        "Can't be undone. The login itself stays: remove it first. Exit 1 when there was nothing to erase."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        who = parser.add_mutually_exclusive_group(required=True)
        who.add_argument("--user", metavar="NAME", help="Login or e-mail of somebody who still exists.")
        who.add_argument("--subject", metavar="SUBJECT", help="As the trail names them: user:3, key:<id>, anonymous.")
        parser.add_argument("--tenant", metavar="SLUG", help="Only in this tenant's trail.")
        parser.add_argument("--reason", default="", help="Why; it is written into the trail.")
        parser.add_argument("--dry-run", action="store_true", help="Only say where there is something.")

    def handle(self, *args: Any, **options: Any) -> None:
        subject = options["subject"] or _of_login(options["user"])
        tenant = self.tenant(options["tenant"]) if options["tenant"] else None
        if options["dry_run"]:
            found = SubjectKey.objects.filter(subject=subject, **({"tenant_id": tenant.pk} if tenant else {}))
            places = sorted(set(found.values_list("tenant_id", flat=True)))
        else:
            places = person_erase(
                subject=subject, actor=Actor(name="command:erase_person", role="admin"), now=database_now(),
                tenant_id=tenant.pk if tenant else None, reason=options["reason"],
            )  # fmt: skip
        slugs = dict(Tenant.objects.filter(pk__in=places).values_list("pk", "slug"))
        names = [slugs.get(one, f"#{one}") if one else "operators" for one in places]
        exists = subject.startswith(f"{person(0)[:-1]}") and User.objects.filter(
            pk=subject.partition(":")[2] if subject.partition(":")[2].isdigit() else 0
        ).exists()  # fmt: skip
        answer = {"dry_run": options["dry_run"], "subject": subject, "trails": names, "login_exists": exists}
        done = "would be erased" if options["dry_run"] else "is erased"
        text = f"{subject} {done} in: {', '.join(names)}." if names else f"Nothing is kept of {subject}."
        if exists:
            text += " The login still exists and names them."
        self.show(answer, text, as_json=options["format"] == "json")
        if not names:
            raise SystemExit(EXIT_FOUND)


def _of_login(name: str) -> str:
    found = sorted(set(User.objects.filter(Q(username=name) | Q(memberships__email=name)).values_list("pk", flat=True)))
    if len(found) != 1:
        what = "no login" if not found else "several logins"
        raise NotFound(f"There is {what} {name!r}. Give --subject as the trail names them.")
    return person(found[0])
