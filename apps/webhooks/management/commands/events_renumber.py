"""Brings events and webhooks back into order after a dump was restored into another cluster."""

from typing import Any

from django.core.management.base import CommandParser

from apps.webhooks.renumbering import renumber
from tenants import door
from tenants.commands import Command as Base
from tenants.models import Tenant


class Command(Base):
    help = "After restoring a dump into another cluster: events that are hidden there come before all new ones again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", metavar="SLUG", help="Only this one.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be changed.")

    def handle(self, *args: Any, **options: Any) -> None:
        chosen = [self.tenant(options["tenant"])] if options["tenant"] else list(Tenant.objects.order_by("pk"))
        answer = []
        with door.connect("events renumber") as conn:
            for tenant in chosen:
                done = renumber(conn, tenant.schema_name, tenant.pk, dry_run=options["dry_run"])
                answer.append({"tenant": tenant.slug, "events": done.events, "webhooks": done.webhooks})
        verb = "would be" if options["dry_run"] else "were"
        text = "\n".join(
            f"{one['tenant']}: {one['events']:,} events and {one['webhooks']:,} webhooks {verb} renumbered"
            for one in answer
        )
        self.show({"tenants": answer, "dry_run": options["dry_run"]}, text, as_json=options["format"] == "json")
