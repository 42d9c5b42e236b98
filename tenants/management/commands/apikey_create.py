"""Creates an API key for a tenant."""

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser

from apps.audit.actors import Actor
from kernel.clock import utc_now
from tenants.apikeys import apikey_issue
from tenants.commands import Command as Base
from tenants.models import Role
from tenants.work import database_now, rehearsing

ACTOR = Actor(name="command:apikey_create", role="admin")


class Command(Base):
    help = "Create an API key. The key is printed once and can't be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--name", default="command line")
        parser.add_argument("--role", choices=Role.values, default=Role.ADMIN)
        parser.add_argument("--scope", action="append", metavar="SCOPE", help="What of the role it may do; repeatable.")
        parser.add_argument("--expires-in-days", type=int, default=None)
        parser.add_argument("--dry-run", action="store_true", help="Only say whether it could be made.")

    def handle(self, *args: Any, **options: Any) -> None:
        days = options["expires_in_days"]
        if days is not None and days < 1:
            self.refuse("--expires-in-days must be at least 1.")
        expires_at = utc_now() + timedelta(days=days) if days else None
        dry = options["dry_run"]
        with rehearsing(dry):
            key, text = apikey_issue(
                tenant=self.tenant(options["tenant"]), actor=ACTOR, name=options["name"], role=options["role"],
                scopes=options["scope"], expires_at=expires_at, now=database_now(),
            )  # fmt: skip
        answer: dict[str, Any] = {"dry_run": dry, "role": key.role, "scopes": key.scopes, "expires_at": expires_at}
        answer |= {} if dry else {"id": str(key.id), "api_key": text}
        self.show(answer, "It could be made." if dry else text, as_json=options["format"] == "json")
