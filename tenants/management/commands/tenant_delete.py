"""Marks a tenant for deletion, or takes the mark away."""

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser

from apps.audit.services import Actor
from tenants.commands import Command as Base
from tenants.deletion import GRACE, tenant_delete, tenant_undelete
from tenants.models import Tenant
from tenants.work import database_now, rehearsing


class Command(Base):
    help = (
        "Delete a tenant: everything of it stops at once; when the grace is over a dispatcher removes its data. "
        "Asked again, it says how far it is."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_tenant(parser)
        parser.add_argument("--grace-s", type=int, default=int(GRACE.total_seconds()), help="Until then --undo works.")
        parser.add_argument("--undo", action="store_true", help="Keep the tenant; it is suspended then.")
        parser.add_argument("--reason", default="", help="For the audit trail.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be done.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant, now = self.tenant(self.slug_of(options)), database_now()
        asked_before = tenant.delete_after is not None
        actor = Actor(name="command:tenant_delete", role="admin", tenant_id=tenant.pk)
        with rehearsing(options["dry_run"]):
            if options["undo"]:
                tenant = tenant_undelete(tenant=tenant, actor=actor, now=now, reason=options["reason"])
            else:
                grace = timedelta(seconds=min(options["grace_s"], 10**9))
                tenant = tenant_delete(tenant=tenant, actor=actor, now=now, grace=grace, reason=options["reason"])
        answer = {
            "dry_run": options["dry_run"], "slug": tenant.slug, "schema": tenant.schema_name, "status": tenant.status,
            "delete_after": tenant.delete_after, "note": tenant.delete_note,
        }  # fmt: skip
        text = _is(tenant)
        if options["dry_run"] and options["undo"]:
            text = f"{tenant.slug} would be kept, suspended."
        elif options["dry_run"] and not asked_before:
            text = _would(tenant, options["grace_s"])
        self.show(answer, text, as_json=options["format"] == "json")


def _would(tenant: Tenant, grace_s: int) -> str:
    return f"{tenant.slug} would stop now and be deleted with schema {tenant.schema_name} in {grace_s:,} s."


def _is(tenant: Tenant) -> str:
    if tenant.delete_after is None:
        return f"{tenant.slug} is kept; it is {tenant.status}."
    note = f" The last step failed: {tenant.delete_note}" if tenant.delete_note else ""
    return f"{tenant.slug} has stopped; its data are removed after {tenant.delete_after:%Y-%m-%d %H:%M:%S} UTC.{note}"
