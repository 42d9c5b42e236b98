"""Lists tenants."""

from typing import Any

from django.core.management.base import CommandParser
from django.db.models import OuterRef, Subquery

from tenants.commands import Command as Base
from tenants.models import Domain, Suspension, Tenant


class Command(Base):
    help = "List tenants: slug, status and since when, plan, host, name."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--status", choices=Tenant.Status.values, help="Only these.")
        parser.add_argument("--plan", help="Only those of this plan.")

    def handle(self, *args: Any, **options: Any) -> None:
        first = Domain.objects.filter(tenant=OuterRef("pk")).order_by("-is_primary", "pk")
        stands = Suspension.objects.filter(tenant=OuterRef("pk"), ended_at=None)
        rows = Tenant.objects.annotate(
            host=Subquery(first.values("domain")[:1]), since=Subquery(stands.values("began_at")[:1]),
            reason=Subquery(stands.values("reason")[:1]),
        ).order_by("slug")  # fmt: skip
        wanted = {"status": options["status"], "plan__name": options["plan"]}
        names = ("slug", "status", "since", "reason", "delete_after", "plan__name", "host", "name", "schema_name")
        found = list(rows.filter(**{key: value for key, value in wanted.items() if value}).values(*names))
        text = "\n".join(map(_line, found)) or "There is none."
        self.show({"tenants": found}, text, as_json=options["format"] == "json")


def _line(one: dict[str, Any]) -> str:
    since = f"{one['since']:%Y-%m-%d %H:%M}" if one["since"] else ""
    columns = f"{one['slug']:<24}  {one['status']:<12}  {since:<16}  {one['plan__name']:<12}"
    return f"{columns}  {one['host'] or '-'}  {one['name']}"
