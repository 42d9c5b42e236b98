"""What `tenant_suspend` and `tenant_resume` share: they differ in the state that the tenant comes into."""

from collections.abc import Callable
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from apps.audit.services import Actor
from tenants.commands import Command
from tenants.models import Tenant
from tenants.work import database_now, rehearsing


class StatusCommand(Command):
    """Brings a tenant into a state."""

    becomes: ClassVar[Tenant.Status]
    change: ClassVar[Callable[..., Tenant]]  # of `apps.life.suspending`
    name: ClassVar[str]  # who did it, in the trail

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_tenant(parser)
        parser.add_argument("--reason", default="", help="For the audit trail.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be done.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant, dry = self.tenant(self.slug_of(options)), options["dry_run"]
        before = tenant.status
        actor = Actor(name=self.name, role="admin", tenant_id=tenant.pk)
        with rehearsing(dry):
            tenant = self.change(tenant=tenant, actor=actor, now=database_now(), reason=options["reason"])
        answer = {"dry_run": dry, "slug": tenant.slug, "before": before, "status": tenant.status}
        would = "would be" if dry else "is"
        text = f"{tenant.slug} was {before}; it {would} {self.becomes}."
        self.show(answer, text, as_json=options["format"] == "json")
