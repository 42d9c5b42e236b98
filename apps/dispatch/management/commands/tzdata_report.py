"""Recomputes what new time zone data changes, and says what it was."""

from typing import Any

from django.core.management.base import CommandParser

from apps.dispatch import zonedata
from apps.schedules.timing_triggers import instant_text
from tenants import door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.registry import Registry
from tenants.work import database_now


class Command(Base):
    help = "Recompute due entries after a change of time zone data. Exit 1 with --dry-run when some would move."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only report.")

    def handle(self, *args: Any, **options: Any) -> None:
        line = door.Line("tzdata_report")
        try:
            conn = line.get()
            registry = Registry(line)
            registry.refresh(force=True)
            now, was = database_now(conn), zonedata.stored(conn)
            moved = list(zonedata.report(conn, registry, now=now, dry_run=options["dry_run"]))
        finally:
            line.close()
        shown = [
            {
                "tenant": one.tenant, "schedule": str(one.schedule_id), "timezone": one.zone,
                "before": instant_text(one.before), "after": one.after and instant_text(one.after),
            }
            for one in moved
        ]  # fmt: skip
        answer = {"stored": was, "installed": zonedata.installed(), "dry_run": options["dry_run"], "moved": shown}
        lines = [f"Time zone data: due entries {was or 'unknown'}, installed {zonedata.installed()}."]
        lines += [
            f"{one['tenant']} {one['schedule']} {one['timezone']}: {one['before']} -> {one['after']}" for one in shown
        ]
        lines.append(f"{len(shown)} due entries {'would move' if options['dry_run'] else 'moved'}.")
        self.show(answer, "\n".join(lines), as_json=options["format"] == "json")
        if shown and options["dry_run"]:
            raise SystemExit(EXIT_FOUND)
