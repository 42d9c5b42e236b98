"""Creates a tenant with its schema, domain and first API key."""

from typing import Any

from django.core.management.base import CommandParser

from apps.audit.services import Actor
from tenants import door
from tenants.commands import Command as Base
from tenants.creating import tenant_open
from tenants.models import Plan
from tenants.provisioning import host_for
from tenants.work import database_now


class Command(Base):
    help = "Create a tenant: schema, domain and a first admin API key (printed once)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug")
        parser.add_argument("--name", default="")
        parser.add_argument("--plan", default="standard", help="Name of the plan; 'standard' is made when missing.")
        parser.add_argument("--host", default="", help="Host name; SLUG.TENANT_DOMAIN by default.")
        parser.add_argument("--network", action="append", default=[], metavar="CIDR", help="May call this network too.")
        parser.add_argument("--if-missing", action="store_true", help="One with this slug and host is enough; exit 0.")

    def handle(self, *args: Any, **options: Any) -> None:
        door.become_owner()
        plan = Plan.objects.filter(name=options["plan"]).first()
        if plan is None and options["plan"] == "standard":
            plan = Plan.objects.create(name="standard")
        if plan is None:
            self.refuse(f"There is no plan {options['plan']!r}.")
        host = options["host"] or host_for(options["slug"])
        made = tenant_open(
            slug=options["slug"], name=options["name"], plan=plan, host=host, network=options["network"],
            actor=Actor(name="command:tenant_create", role="admin"), now=database_now(),
            if_missing=options["if_missing"],
        )  # fmt: skip
        tenant = made.tenant
        answer = {"slug": tenant.slug, "schema": tenant.schema_name, "host": host}
        answer |= {"api_key": made.api_key} if made.api_key else {"note": "It is there already."}
        lines = "\n".join(f"{key}: {value}" for key, value in answer.items())
        self.show(answer, lines, as_json=options["format"] == "json")
