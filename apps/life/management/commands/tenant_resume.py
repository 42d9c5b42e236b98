"""Lets a suspended tenant go on."""

from typing import Any

from django.core.management.base import CommandParser

from apps.audit.services import Actor
from apps.life.suspending import tenant_resume
from tenants.commands import Command as Base
from tenants.work import database_now


class Command(Base):
    help = "Let a suspended tenant go on, with the next occurrences of its schedules and all that waited."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug")
        parser.add_argument("--reason", default="", help="For the audit trail.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be done.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = self.tenant(options["slug"])
        before = tenant.status
        if not options["dry_run"]:
            actor = Actor(name="command:tenant_resume", role="admin", tenant_id=tenant.pk)
            tenant = tenant_resume(tenant=tenant, actor=actor, now=database_now(), reason=options["reason"])
        answer = {"slug": tenant.slug, "before": before, "status": tenant.status}
        would = "would be" if options["dry_run"] else "is"
        text = f"{tenant.slug} was {before}; it {would} active."
        self.show(answer, text, as_json=options["format"] == "json")
