"""Gives a tenant another slug, name or host."""

from fnmatch import fnmatchcase
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from apps.audit.services import Actor
from apps.tickets.models import Subscription
from tenants.commands import Command as Base
from tenants.renaming import Renamed, tenant_rename
from tenants.work import database_now, rehearsing


class Command(Base):
    help = (
        "Give a tenant another slug, name or host. Its keys, runs and schema stay; what is queued goes to the queues "
        "of the new name, what runs goes on. Old hosts still lead to it unless they are dropped."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_tenant(parser)
        parser.add_argument("--slug", dest="new_slug", help="The new slug.")
        parser.add_argument("--name", help="The new name.")
        parser.add_argument("--host", help="The host that it is shown under; one made of the slug follows by itself.")
        parser.add_argument("--drop-hosts", action="store_true", help="No other host leads to it any more.")
        parser.add_argument("--reason", default="", help="For the audit trail.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be done.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = self.tenant(self.slug_of(options))
        with rehearsing(options["dry_run"]):
            done = tenant_rename(
                tenant=tenant, actor=Actor(name="command:tenant_rename", role="admin", tenant_id=tenant.pk),
                now=database_now(), slug=options["new_slug"], name=options["name"], host=options["host"],
                keep_hosts=not options["drop_hosts"], reason=options["reason"],
            )  # fmt: skip
        notes = _notes(done)
        answer = {"before": done.before, "after": done.after, "notes": notes, "dry_run": options["dry_run"]}
        self.show(answer, _text(done, notes), as_json=options["format"] == "json")


def _notes(done: Renamed) -> list[str]:
    """What still means the old name: this process's configuration, which workers may share, and what they were told."""
    old, new = done.before["slug"], done.after["slug"]
    notes = []
    if settings.WORKER_TENANTS.take(old) != settings.WORKER_TENANTS.take(new):
        notes.append(f"WORKER_TENANTS does not mean {new} as it meant {old}.")
    for before, after in done.queues:
        if settings.WORKER_QUEUES.take(before) != settings.WORKER_QUEUES.take(after):
            notes.append(f"WORKER_QUEUES does not mean {after} as it meant {before}.")
        notes += [
            f"Workers were told of {one}, which fits {before} and not {after}: see worker_queues."
            for one in Subscription.objects.order_by("pk").values_list("pattern", flat=True)
            if fnmatchcase(before, one) and not fnmatchcase(after, one)
        ]
    images = [one for one in settings.CONTAINER_IMAGES if old != new and one.startswith(f"{old}=")]
    return notes + [f"CONTAINER_IMAGES has {one}: its jobs may not run that image any more." for one in images]


def _text(done: Renamed, notes: list[str]) -> str:
    if done.before == done.after:
        return "Nothing is to be changed."
    lines = [
        f"{key}: {_plain(done.before[key])} -> {_plain(done.after[key])}"
        for key in ("slug", "name", "hosts") if done.before[key] != done.after[key]
    ]  # fmt: skip
    lines += [f"queue: {before} -> {after}" for before, after in done.queues]
    return "\n".join(lines + notes)


def _plain(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
