"""Writes the generated parts of docs/reference; with --check it only tells which are stale."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from apps.api.reference import FILES, refreshed
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base


class Command(Base):
    help = "Write the generated parts of docs/reference from the API's own description."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--check",
            "--dry-run",
            dest="check",
            action="store_true",
            help="Write nothing; exit 1 when a page is stale.",
        )

    def handle(self, *args: Any, check: bool = False, **options: Any) -> None:
        pages = {name: Path(settings.BASE_DIR, name) for name in FILES}
        stale = {
            name: text for name, page in pages.items() if (text := refreshed(page.read_text())) != page.read_text()
        }
        if not check:
            for name, text in stale.items():
                pages[name].write_text(text)
        verb = "stale:" if check else "wrote"
        told = "\n".join(f"{verb} {name}" for name in stale) or "No page is stale."
        self.show({"dry_run": check, "stale": list(stale)}, told, as_json=options["format"] == "json")
        if check and stale:
            raise SystemExit(EXIT_FOUND)
