"""Creates a tenant with its schema, domain and first API key."""

from typing import Any

from django.core.management.base import CommandParser

from apps.audit.services import Actor
from tenants import door
from tenants.commands import Command as Base
from tenants.creating import tenant_open
from tenants.models import Plan
from tenants.provisioning import host_for
from tenants.work import database_now, rehearsing


class Command(Base):
    help = "Create a tenant: schema, domain and a first admin API key (printed once)."

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_tenant(parser)
        parser.add_argument("--name", default="")
        parser.add_argument("--plan", default="standard", help="Name of the plan; 'standard' is made when missing.")
        parser.add_argument("--host", default="", help="Host name; SLUG.TENANT_DOMAIN by default.")
        parser.add_argument("--network", action="append", default=[], metavar="CIDR", help="May call this network too.")
        parser.add_argument("--if-missing", action="store_true", help="One with this slug and host is enough; exit 0.")
        parser.add_argument("--dry-run", action="store_true", help="Only say whether it could be made, and as what.")

    def handle(self, *args: Any, **options: Any) -> None:
        slug, dry = self.slug_of(options), options["dry_run"]
        host = options["host"] or host_for(slug)
        door.become_owner()
        with rehearsing(dry):
            made = tenant_open(
                slug=slug, name=options["name"], plan=self._plan(options["plan"]), host=host,
                network=options["network"], actor=Actor(name="command:tenant_create", role="admin"),
                now=database_now(), if_missing=options["if_missing"],
            )  # fmt: skip
        tenant = made.tenant
        answer = {"slug": tenant.slug, "schema": tenant.schema_name, "host": host}
        if not made.api_key:
            answer |= {"note": "It is there already."}
        elif dry:
            answer |= {"note": "It could be made."}
        else:
            answer |= {"api_key": made.api_key}
        lines = "\n".join(f"{key}: {value}" for key, value in answer.items())
        self.show({"dry_run": dry, **answer}, lines, as_json=options["format"] == "json")

    def _plan(self, name: str) -> Plan:
        if name == "standard":
            return Plan.objects.get_or_create(name=name)[0]
        plan = Plan.objects.filter(name=name).first()
        if plan is None:
            self.refuse(f"There is no plan {name!r}.")
        return plan
