"""Looks for tenants that are neither whole nor gone."""

from typing import Any

from tenants import behind, deletion, door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Tenant


class Command(Base):
    help = (
        "Find schemas and rows of tenants that do not exist, deletions that are stuck, imports that have not come to "
        "their end, and schemas that lack a migration. Exit 1 when there are any. Meant to be run every night."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        door.become_owner()
        with door.connect("tenant check", owner=True, guarded=False) as conn:
            orphans, stuck = deletion.orphans(conn), deletion.stuck(conn)
        unfinished = list(Tenant.objects.filter(status=Tenant.Status.PROVISIONING).values_list("slug", flat=True))
        lacking = [one.schema for one in behind.pending()]
        answer = {
            "orphans": orphans, "behind": lacking, "unfinished": unfinished,
            "stuck": [{"slug": slug, "delete_after": at, "note": note} for slug, at, note in stuck],
        }  # fmt: skip
        lines = [
            *(f"belongs to no tenant: {what}" for what in orphans),
            *(f"deletion is stuck: {slug} since {at:%Y-%m-%d %H:%M} {note}".rstrip() for slug, at, note in stuck),
            *(f"import has not come to its end: {slug} (tenant_import, again or --abandon)" for slug in unfinished),
            *(f"lacks migrations: {schema} (manage.py tenant_migrate)" for schema in lacking),
        ]
        self.show(answer, "\n".join(lines) or "All tenants are whole.", as_json=options["format"] == "json")
        if lines:
            raise SystemExit(EXIT_FOUND)
