"""Lists a tenant's members."""

from typing import Any

from django.core.management.base import CommandParser

from tenants.commands import Command as Base
from tenants.models import Member


class Command(Base):
    help = "List the members of a tenant, in the order in which they came."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")

    def handle(self, *args: Any, **options: Any) -> None:
        members = Member.objects.select_related("user").filter(tenant=self.tenant(options["tenant"])).order_by("pk")
        found = [
            {
                "id": str(one.uid), "email": one.email, "name": one.name, "role": one.role,
                "last_login_at": one.user.last_login,
            }
            for one in members
        ]  # fmt: skip
        lines = [f"{one['email']}  {one['role']}  {one['last_login_at'] or 'never signed in'}" for one in found]
        self.show({"members": found}, "\n".join(lines) or "There are no members.", as_json=options["format"] == "json")
