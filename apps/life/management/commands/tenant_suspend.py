"""Suspends a tenant."""

from typing import Any

from django.core.management.base import CommandParser

from apps.audit.services import Actor
from apps.life.suspending import tenant_suspend
from tenants.commands import Command as Base
from tenants.work import database_now


class Command(Base):
    help = (
        "Suspend a tenant: nothing of it fires or starts, what runs goes on to its end, and nothing is owed "
        "afterwards. Asked again, it changes nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug")
        parser.add_argument("--reason", default="", help="For the audit trail.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be done.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = self.tenant(options["slug"])
        before = tenant.status
        if not options["dry_run"]:
            actor = Actor(name="command:tenant_suspend", role="admin", tenant_id=tenant.pk)
            tenant = tenant_suspend(tenant=tenant, actor=actor, now=database_now(), reason=options["reason"])
        answer = {"slug": tenant.slug, "before": before, "status": tenant.status}
        would = "would be" if options["dry_run"] else "is"
        text = f"{tenant.slug} was {before}; it {would} suspended."
        self.show(answer, text, as_json=options["format"] == "json")
