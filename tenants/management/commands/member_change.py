"""Changes or removes a member, signs one out, or lets one choose a new password."""

from typing import Any

from django.core.management.base import CommandParser

from apps.audit.actors import Actor
from kernel.errors import NotFound
from tenants.commands import Command as Base
from tenants.emails import typed_email
from tenants.invitations import link, reset_create, send_invitation
from tenants.models import Member, Tenant
from tenants.people import member_change, member_remove, sessions_end
from tenants.permissions import ROLES
from tenants.work import database_now, rehearsing

ACTOR = Actor(name="command:member_change", role="admin")


class Command(Base):
    help = "Change a member's role, sign one out everywhere, make a link for a new password, or remove one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--email", required=True)
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--role", choices=ROLES)
        what.add_argument("--sign-out", action="store_true")
        what.add_argument("--reset", action="store_true", help="Prints the link, once.")
        what.add_argument("--remove", action="store_true")
        parser.add_argument("--dry-run", action="store_true", help="Only say whether it could be done.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = self.tenant(options["tenant"])
        email = typed_email(options["email"])
        member = Member.objects.filter(tenant=tenant, email=email).exclude(email="").first()
        if member is None:
            raise NotFound(f"{tenant.slug} has no member {options['email']!r}.")
        with rehearsing(options["dry_run"]):
            done = _done(tenant, member, options)
        answer = {"dry_run": options["dry_run"], "member": str(member.uid), "email": member.email, **done}
        text = "It could be done." if options["dry_run"] else done.get("link", f"{member.email}: done.")
        self.show(answer, text, as_json=options["format"] == "json")


def _done(tenant: Tenant, member: Member, options: dict[str, Any]) -> dict[str, str]:
    who: dict[str, Any] = {"tenant": tenant, "actor": ACTOR, "member_uid": member.uid, "now": database_now()}
    if options["role"]:
        return {"role": member_change(changes={"role": options["role"]}, **who).role}
    if options["sign_out"]:
        sessions_end(**who)
    elif options["remove"]:
        member_remove(**who)
    else:
        _, token = reset_create(send=send_invitation, **who)
        return {} if options["dry_run"] else {"link": link(tenant, token)}
    return {}
