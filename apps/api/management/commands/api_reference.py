"""Writes the generated parts of docs/reference; with --check it only tells which are stale."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.api.reference import FILES, refreshed


class Command(BaseCommand):
    help = "Write the generated parts of docs/reference from the API's own description."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is stale")

    def handle(self, *args: Any, check: bool = False, **options: Any) -> None:
        pages = {name: Path(settings.BASE_DIR, name) for name in FILES}
        stale = {
            name: text for name, page in pages.items() if (text := refreshed(page.read_text())) != page.read_text()
        }
        if check and stale:
            raise CommandError(f"Stale: {', '.join(stale)}. Run manage.py api_reference.")
        for name, text in stale.items():
            pages[name].write_text(text)
            self.stdout.write(f"wrote {name}")
