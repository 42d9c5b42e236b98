"""Makes the successor of an API key, or ends a key."""

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser

from apps.audit.actors import Actor
from kernel.errors import NotFound
from tenants.apikeys import OVERLAP, OVERLAP_MAX, apikey_end, apikey_rotate
from tenants.commands import Command as Base
from tenants.models import ApiKey
from tenants.work import database_now, rehearsing

ACTOR = Actor(name="command:apikey_rotate", role="admin")


class Command(Base):
    help = "Make the successor of an API key (printed once); the key itself works on for a while. Or revoke a key."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--prefix", required=True, help="The beginning of the key: sb_ and eight characters.")
        parser.add_argument("--overlap-s", type=int, default=int(OVERLAP.total_seconds()))
        parser.add_argument("--revoke", action="store_true", help="End it now, without a successor.")
        parser.add_argument("--dry-run", action="store_true", help="Only say whether it could be done.")

    def handle(self, *args: Any, **options: Any) -> None:
        if not 0 <= options["overlap_s"] <= OVERLAP_MAX.total_seconds():
            self.refuse(f"--overlap-s must be from 0 to {int(OVERLAP_MAX.total_seconds())}.")
        tenant, now, dry = self.tenant(options["tenant"]), database_now(), options["dry_run"]
        prefix = options["prefix"].removeprefix("sb_").partition("_")[0]
        old = ApiKey.objects.filter(tenant=tenant, prefix=prefix).first()
        if old is None:
            raise NotFound(f"{tenant.slug} has no key {options['prefix']!r}.")
        answer: dict[str, Any] = {"dry_run": dry, "id": str(old.pk)}
        text = f"{old.name} is revoked."
        with rehearsing(dry):
            if options["revoke"]:
                apikey_end(tenant=tenant, actor=ACTOR, key_id=old.pk, now=now)
            else:
                overlap = timedelta(seconds=options["overlap_s"])
                key, text = apikey_rotate(tenant=tenant, actor=ACTOR, key_id=old.pk, now=now, overlap=overlap)
                answer |= {} if dry else {"successor": str(key.pk), "api_key": text}
        self.show(answer, "It could be done." if dry else text, as_json=options["format"] == "json")
