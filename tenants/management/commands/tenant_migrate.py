"""Brings the shared schema and every tenant's schema up to date."""

from typing import Any

from django.core.management import call_command
from django.core.management.base import CommandParser

from tenants import door, provisioning
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base


class Command(Base):
    help = "Migrate the shared schema, then all tenants that lack a migration. Can be stopped and run again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--jobs", type=int, default=4, help="Schemas at a time.")
        parser.add_argument("--dry-run", action="store_true", help="Only say which schemas lack what; exit 1 if any.")

    def handle(self, *args: Any, **options: Any) -> None:
        as_json = options["format"] == "json"
        door.become_owner()
        if not options["dry_run"]:
            call_command("migrate_schemas", shared=True, interactive=False, verbosity=0)
            provisioning.grant_shared()
        lacking = provisioning.pending()
        if options["dry_run"]:
            answer = {item.schema: [f"{step.app}.{step.name}" for step in item.steps] for item in lacking}
            text = "\n".join(f"{schema}: {', '.join(names)}" for schema, names in answer.items())
            self.show({"pending": answer}, text or "All schemas are up to date.", as_json=as_json)
            raise SystemExit(EXIT_FOUND if lacking else 0)
        results: dict[str, str] = {}
        failed = provisioning.migrate(lacking, jobs=options["jobs"], report=results.__setitem__)
        text = "\n".join(f"{schema}: {result}" for schema, result in results.items())
        self.show({"schemas": results, "failed": failed}, text or "All schemas are up to date.", as_json=as_json)
        if failed:
            raise SystemExit(EXIT_FOUND)
