"""Moves tenants' secrets to the current key of SECRETS_KEYS, and with --data-keys to new data keys."""

from dataclasses import asdict
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandParser

from apps.audit import chain, personal
from apps.audit.services import Actor
from apps.secrets.keyring import keyring
from apps.secrets.rotation import BATCH, Counts, tenant_rotate
from tenants import door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Tenant
from tenants.work import database_now

TRAIL = "(audit trail)"


class Command(Base):
    help = (
        "Wrap data keys with the first key of SECRETS_KEYS. Can be stopped and run again. Exit 1 when something could "
        "not be read; a key may be removed from SECRETS_KEYS when nothing is left under it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", metavar="SLUG", help="Only this one.")
        parser.add_argument("--data-keys", action="store_true", help="Also encrypt all values with new data keys.")
        parser.add_argument("--batch", type=int, default=BATCH, help="Values in one transaction.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be done.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["batch"] < 1:
            self.refuse("--batch must be at least 1.")
        try:
            current = keyring().current
        except ImproperlyConfigured as error:
            self.refuse(str(error))
        tenants = [self.tenant(options["tenant"])] if options["tenant"] else _all()
        actor = Actor(name="command:secrets_rotate", role="admin")
        found: dict[str, Counts] = {}
        for tenant in tenants:
            found[tenant.slug] = tenant_rotate(
                tenant=tenant, actor=actor, data_keys=options["data_keys"], dry_run=options["dry_run"],
                clock=database_now, batch=options["batch"],
            )  # fmt: skip
        if not options["tenant"]:
            found[TRAIL] = _of_trail(dry_run=options["dry_run"])
        total = {
            name: sum(getattr(one, name) for one in found.values())
            for name in ("rewrapped", "new_data_keys", "reencrypted", "removed_data_keys", "left")
        }
        unreadable = {slug: one.unreadable for slug, one in found.items() if one.unreadable}
        answer = {
            "key": current, "dry_run": options["dry_run"], "tenants": len(tenants), **total, "unreadable": unreadable,
            "changed": {slug: asdict(one) for slug, one in found.items() if one.changed},
        }  # fmt: skip
        would = "would be " if options["dry_run"] else ""
        lines = [
            f"{len(tenants)} tenants: {total['rewrapped']} data keys {would}wrapped with {current}, "
            f"{total['reencrypted']} values {would}encrypted anew, {total['left']} data keys left under other keys."
        ]
        lines += [f"{slug}: can't be read: {', '.join(names)}" for slug, names in unreadable.items()]
        self.show(answer, "\n".join(lines), as_json=options["format"] == "json")
        if unreadable:
            raise SystemExit(EXIT_FOUND)


def _of_trail(*, dry_run: bool) -> Counts:
    """The keys of the audit trail, which belong to no tenant's schema."""
    with door.connect("secrets rotate") as conn:
        (links, broken), (people, unreadable) = (
            chain.rewrap(conn, dry_run=dry_run),
            personal.rewrap(conn, dry_run=dry_run),
        )
    lost = [*broken, *unreadable]
    return Counts(rewrapped=links + people, left=len(lost), unreadable=lost)


def _all() -> list[Tenant]:
    kept = (Tenant.Status.ACTIVE, Tenant.Status.SUSPENDED)
    return list(Tenant.objects.filter(status__in=kept).order_by("pk"))
