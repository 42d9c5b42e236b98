"""Gives an operator a role in the console, or says which they have."""

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser

from apps.audit.actors import Actor
from apps.console.roles import ROLES, roles_give, roles_of
from tenants.commands import Command as Base
from tenants.work import database_now, rehearsing

ACTOR = Actor(name="command:operator_role", role="admin")
NONE = "none"
ALL = "superuser: everything"  # whatever their roles are


class Command(Base):
    help = (
        "Give an operator's login a role in the console instead of the roles that it has. Several --role are several "
        "roles; '--role none' takes all away. Without --role it says which they have."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--login", required=True)
        parser.add_argument("--role", action="append", choices=[*ROLES, NONE])
        parser.add_argument("--dry-run", action="store_true", help="Only say what would change.")

    def handle(self, *args: Any, **options: Any) -> None:
        login, wanted = options["login"], options["role"]
        if wanted is None:
            user = User.objects.filter(username=login, is_staff=True).first()
            if user is None:
                self.refuse(f"There is no staff user {login!r}.")
            before = after = roles_of(user)
        else:
            with rehearsing(options["dry_run"]):
                before, after = roles_give(
                    login=login, roles=[one for one in wanted if one != NONE], actor=ACTOR, now=database_now()
                )
        everything = User.objects.filter(username=login, is_superuser=True, is_active=True).exists()
        text = f"{login}: {', '.join([*([ALL] if everything else []), *after]) or 'no role'}"
        if before != after:
            text += f" (before: {', '.join(before) or 'no role'})"
        answer = {"dry_run": options["dry_run"], "login": login, "before": before, "roles": after,
                  "superuser": everything}  # fmt: skip
        self.show(answer, text, as_json=options["format"] == "json")
