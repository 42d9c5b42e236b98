"""Gives a tenant a new signing secret; the former one signs as well for a while."""

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser

from apps.audit.services import Actor
from apps.secrets.signing import OVERLAP, OVERLAP_MAX, signing_rotate
from tenants.commands import Command as Base
from tenants.work import database_now, rehearsing


class Command(Base):
    help = "Make a new secret that signs a tenant's outgoing calls. It is printed once and can't be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument(
            "--overlap-s",
            type=int,
            default=int(OVERLAP.total_seconds()),
            help="So long the former signs as well.",
        )
        parser.add_argument("--dry-run", action="store_true", help="Only say whether it could be done.")

    def handle(self, *args: Any, **options: Any) -> None:
        overlap = timedelta(seconds=options["overlap_s"])
        if not timedelta(0) <= overlap <= OVERLAP_MAX:
            self.refuse(f"--overlap-s must be from 0 to {int(OVERLAP_MAX.total_seconds())}.")
        tenant, dry = self.tenant(options["tenant"]), options["dry_run"]
        actor = Actor(name="command:signing_rotate", role="admin", tenant_id=tenant.pk)
        with rehearsing(dry):
            made = signing_rotate(tenant=tenant, actor=actor, now=database_now(), overlap=overlap)
        answer: dict[str, Any] = {"dry_run": dry, "overlap_s": options["overlap_s"]}
        answer |= {} if dry else {"id": str(made.secret.pk), "signing_secret": made.text}
        self.show(answer, "It could be done." if dry else made.text, as_json=options["format"] == "json")
