"""Invites somebody into a tenant, or adds them with a password."""

import sys
from typing import Any

from django.core.management.base import CommandParser

from apps.audit.actors import Actor
from tenants.commands import Command as Base
from tenants.invitations import invitation_create, link, send_invitation
from tenants.people import member_add
from tenants.permissions import ROLES
from tenants.work import database_now, rehearsing

ACTOR = Actor(name="command:member_add", role="admin")


class Command(Base):
    help = (
        "Invite somebody into a tenant: prints a link, once, and mails it where mail is set up. With --password-stdin "
        "the member is made at once, with the password that is read from standard input."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--email", required=True)
        parser.add_argument("--role", choices=ROLES, default="viewer")
        parser.add_argument("--name", default="")
        parser.add_argument("--password-stdin", action="store_true", help="Never give a password as an argument.")
        parser.add_argument("--dry-run", action="store_true", help="Only say whether it could be done.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant, now = self.tenant(options["tenant"]), database_now()
        who = {"email": options["email"], "role": options["role"], "name": options["name"]}
        dry = options["dry_run"]
        answer: dict[str, Any] = {"dry_run": dry, "tenant": tenant.slug}
        with rehearsing(dry):
            if options["password_stdin"]:
                password = sys.stdin.readline().rstrip("\r\n")
                member = member_add(tenant=tenant, actor=ACTOR, now=now, password=password, **who)
                answer |= {"member": None if dry else str(member.uid), "email": member.email, "role": member.role}
                text = "" if dry else f"{member.email} is {member.role} of {tenant.slug}."
            else:
                made, token = invitation_create(tenant=tenant, actor=ACTOR, now=now, send=send_invitation, **who)
                answer |= {"invitation": None if dry else str(made.pk), "email": made.email, "role": made.role}
                text = answer["link"] = "" if dry else link(tenant, token)
        self.show(answer, text or "It could be done.", as_json=options["format"] == "json")
