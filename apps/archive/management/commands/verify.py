"""Reads archive files back and holds them against the catalogue."""

from datetime import datetime, timedelta
from typing import Any

import psycopg
from django.core.management.base import CommandParser

from apps.archive import catalogue
from apps.archive.expiring import made_at_ms, stray_files
from apps.archive.files import Store, store
from apps.archive.models import READABLE_STATES
from apps.archive.verifying import batch_check
from kernel.errors import ShardbeatError
from tenants import door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Tenant
from tenants.work import database_now

Conn = psycopg.Connection[Any]
STRAY_AFTER = timedelta(hours=1)  # younger files may be being written


class Command(Base):
    help = (
        "Read all archive files to their ends and compare checksums, rows and counts with the catalogue; look for "
        "files that nothing knows. Exit 1 when anything is wrong."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--tenant", metavar="SLUG")
        which.add_argument("--all", action="store_true", help="All tenants.")
        parser.add_argument("--remove-strays", action="store_true", help="Remove files that nothing knows.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what --remove-strays would remove.")

    def handle(self, *args: Any, **options: Any) -> None:
        files, now = store(), database_now()
        chosen = [self.tenant(options["tenant"])] if options["tenant"] else _all(now)
        dry, remove = options["dry_run"], options["remove_strays"]
        becomes = ("would be removed" if dry else "removed") if remove else "--remove-strays removes them"
        answer: dict[str, Any] = {"dry_run": dry, "tenants": {}, "findings": [], "removed": []}
        with door.connect("verify command") as conn:
            for tenant in chosen:
                answer["tenants"][tenant.slug] = _verify(conn, tenant, files, answer["findings"])
                strays = _strays(conn, tenant, files, now, becomes)
                if remove and not dry:
                    for stray in strays:
                        files.remove(stray["path"])
                    answer["removed"] += strays
                else:
                    answer["findings"] += strays
        self.show(answer, _text(answer), as_json=options["format"] == "json")
        if answer["findings"]:
            raise SystemExit(EXIT_FOUND)


def _all(now: datetime) -> list[Tenant]:
    """Tenants that have a schema."""
    found = Tenant.objects.exclude(status=Tenant.Status.PROVISIONING).exclude(delete_after__lte=now)
    return list(found.order_by("slug"))


def _verify(conn: Conn, tenant: Tenant, files: Store, findings: list[dict[str, str]]) -> dict[str, int]:
    found = catalogue.of_days(conn, tenant.schema_name, first=None, last=None, states=READABLE_STATES)
    for batch in found:
        try:
            wrong = [one._asdict() for one in batch_check(files, batch)]
        except ShardbeatError as error:
            wrong = [{"kind": error.code, "path": batch.path, "detail": error.detail}]
        findings += [{"tenant": tenant.slug, "day": batch.day.isoformat(), **one} for one in wrong]
    rows = sum(one.counts.get("executions", 0) for one in found)
    return {"batches": len(found), "executions": rows, "bytes": sum(one.bytes for one in found)}


def _strays(conn: Conn, tenant: Tenant, files: Store, now: datetime, becomes: str) -> list[dict[str, str]]:
    """Folders that no batch has. They cost room, and what they hold is in the tables or in another batch."""
    young = (now - STRAY_AFTER).timestamp() * 1_000
    below = catalogue.folder_of(tenant.schema_name, tenant.pk)
    return [
        {
            "tenant": tenant.slug, "day": "", "kind": "stray", "path": folder,
            "detail": f"{len(paths)} files that no batch knows; {becomes}.",
        }
        for folder, paths in stray_files(conn, tenant.schema_name, files, below).items()
        if made_at_ms(folder) <= young
    ]  # fmt: skip


def _text(answer: dict[str, Any]) -> str:
    lines = [
        f"{slug}: {one['batches']:,} batches, {one['executions']:,} executions, {one['bytes']:,} bytes"
        for slug, one in answer["tenants"].items()
    ]
    told = (*answer["findings"], *answer["removed"])
    lines += [f"{one['tenant']} {one['kind']} {one['path']}: {one['detail']}" for one in told]
    return "\n".join(lines) if answer["findings"] else "\n".join([*lines, "Nothing is wrong."])
