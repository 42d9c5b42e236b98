"""Gives a tenant another plan or worker group."""

from typing import Any

from django.core.management.base import CommandParser

from apps.audit.services import Actor
from tenants.changing import tenant_change
from tenants.commands import Command as Base
from tenants.models import Plan
from tenants.work import database_now, rehearsing


class Command(Base):
    help = "Give a tenant another plan or worker group. Limits hold from the next request on; what there is stays."

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_tenant(parser)
        parser.add_argument("--plan", help="Name of a plan.")
        parser.add_argument("--worker-group", help="Workers that run its jobs; '' are those of its plan.")
        parser.add_argument("--reason", default="", help="For the audit trail.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be done.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant, plan, dry = self.tenant(self.slug_of(options)), None, options["dry_run"]
        if options["plan"] is not None and (plan := Plan.objects.filter(name=options["plan"]).first()) is None:
            self.refuse(f"There is no plan {options['plan']!r}.")
        with rehearsing(dry):
            before, after = tenant_change(
                tenant=tenant, plan=plan, worker_group=options["worker_group"], reason=options["reason"],
                actor=Actor(name="command:tenant_change", role="admin", tenant_id=tenant.pk), now=database_now(),
            )  # fmt: skip
        lines = [f"{key}: {before[key] or '-'} -> {after[key] or '-'}" for key in after if before[key] != after[key]]
        text = "\n".join(lines) or "Nothing is to be changed."
        self.show({"dry_run": dry, "before": before, "after": after}, text, as_json=options["format"] == "json")
