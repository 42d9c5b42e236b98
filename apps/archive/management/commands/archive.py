"""Archives old history now, or says what would be."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.core.management.base import CommandParser

from apps.archive.archiving import Run, archive_run
from apps.archive.files import store
from apps.archive.standing import waiting
from apps.archive.tables import TABLES
from kernel.errors import ShardbeatError
from tenants import door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Tenant
from tenants.work import database_now

EARLIEST = 1970


class Command(Base):
    help = (
        "Move history that is older than the plan's retention into archive files, and remove files that are older than "
        "its archive_days. The periodic task does the same. Exit 1 when a tenant failed or another process is at it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--tenant", metavar="SLUG", help="Only this tenant.")
        which.add_argument("--all", action="store_true", help="All tenants whose plan has archive_days.")
        parser.add_argument("--before", metavar="DAY", help="What ended before it, instead of before the retention.")
        parser.add_argument("--dry-run", action="store_true", help="Only say how many executions of which days.")

    def handle(self, *args: Any, **options: Any) -> None:
        now = database_now()
        given = None
        if options["before"]:
            given = datetime.combine(self.day_of("--before", options["before"]), time.min, tzinfo=UTC)
            if given > now:
                self.refuse("--before: it must not be a day to come.")
            if given.year < EARLIEST:
                self.refuse(f"--before: nothing is older than the year {EARLIEST}.")
        answer: dict[str, Any] = {"dry_run": options["dry_run"], "tenants": {}}
        failed, files = False, store()
        with door.connect("archive command") as conn:
            for tenant in self._tenants(options["tenant"]):
                by_plan = now - timedelta(days=tenant.plan.retention_days)
                before = given or by_plan
                if options["dry_run"]:
                    days = waiting(conn, tenant.schema_name, before=before)
                    answer["tenants"][tenant.slug] = {day.isoformat(): count for day, count in days.items()}
                    continue
                try:
                    # A later day archives more, and removes no file before its time.
                    keep = timedelta(days=tenant.plan.archive_days) + max(before - by_plan, timedelta())
                    run = archive_run(conn, tenant, files, before=before, keep=keep, more=lambda: True)
                    answer["tenants"][tenant.slug] = _told(run)
                    failed = failed or run.busy
                except ShardbeatError as error:  # one tenant's trouble is not the others'
                    answer["tenants"][tenant.slug] = {"failed": error.detail}
                    failed = True
        self.show(answer, _text(answer), as_json=options["format"] == "json")
        if failed:
            raise SystemExit(EXIT_FOUND)

    def _tenants(self, slug: str | None) -> list[Tenant]:
        if slug is None:
            found = Tenant.objects.select_related("plan").filter(plan__archive_days__gt=0)
            return list(found.filter(status__in=[Tenant.Status.ACTIVE, Tenant.Status.SUSPENDED]).order_by("slug"))
        tenant = self.tenant(slug)
        if not tenant.plan.archive_days:
            self.refuse(f"The plan {tenant.plan.name!r} of {slug} has archive_days 0: its old history is deleted.")
        return [tenant]


def _told(run: Run) -> dict[str, Any]:
    return {
        "batches": run.batches, "rows": run.counts, "bytes": run.bytes, "expired": run.expired, "busy": run.busy,
    }  # fmt: skip


def _text(answer: dict[str, Any]) -> str:
    lines = []
    for slug, one in answer["tenants"].items():
        if answer["dry_run"]:
            lines += [f"{slug} {day}: {count:,} executions" for day, count in one.items()] or [f"{slug}: nothing"]
        elif "failed" in one:
            lines.append(f"{slug}: failed: {one['failed']}")
        else:
            named = [(table.name, one["rows"].get(table.name, 0)) for table in TABLES]
            rows = ", ".join(f"{count:,} {name}" for name, count in named if count) or "nothing new"
            files = f"; {one['batches']:,} new batches, {one['bytes']:,} bytes" if one["batches"] else ""
            gone = f"; {one['expired']:,} old batches removed" if one["expired"] else ""
            busy = "; another process works at it" if one["busy"] else ""
            lines.append(f"{slug}: {rows}{files}{gone}{busy}")
    return "\n".join(lines) or "No tenant's plan has archive_days."
