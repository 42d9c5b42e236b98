"""Makes the demo's tenants, people, jobs and schedules, or brings them up to date; writes var/demo.json."""

import json
import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from demo import backfill, content, people, workflows
from tenants import door
from tenants.commands import Command as Base
from tenants.work import database_now, rehearsing


class Command(Base):
    help = "Set up the demo of `make run`: two tenants with real schedules. Can be run again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--base-url", required=True, metavar="URL", help="Where the web is.")
        parser.add_argument("--receiver", required=True, metavar="URL", help="Where the demo's receiver is.")
        parser.add_argument("--dry-run", action="store_true", help="Only say how many schedules would be made.")

    def handle(self, *args: Any, **options: Any) -> None:
        door.become_owner()
        dry = options["dry_run"]
        with rehearsing(dry):
            counts = self._set_up(options)
        be = "would be " if dry else ""
        lines = [f"{slug}: {one.made} schedules {be}made, {one.mended} {be}mended" for slug, one in counts.items()]
        answer = {slug: one._asdict() for slug, one in counts.items()}
        self.show(answer, "\n".join(lines), as_json=options["format"] == "json")

    def _set_up(self, options: dict[str, Any]) -> dict[str, content.Counts]:
        path = Path(settings.VAR_DIR) / "demo.json"
        before = people.Remembered.read(path)
        base_url, receiver = (str(options[name]).rstrip("/") for name in ("base_url", "receiver"))
        now = database_now()
        tenants = [people.tenant(slug) for slug in people.TENANTS]
        answer = {
            "base_url": base_url,
            "admin": {"url": f"{base_url}/admin/", **people.operator(before)},
            "operators": people.operators(before, now=now),
            "tenants": [
                {
                    "slug": tenant.slug,
                    "host": people.host(tenant),
                    "api_key": people.api_key(tenant, before, now=now),
                    "console": people.logins(tenant, before, now=now),
                }
                for tenant in tenants
            ],
        }
        if not options["dry_run"]:
            write_private(path, json.dumps(answer, indent=2) + "\n")
        counts: dict[str, content.Counts] = {}
        for number, tenant in enumerate(tenants):
            wanted = content.items(number, of=len(tenants), receiver=receiver, now=now)
            filled = content.fill(tenant, wanted, now=now), workflows.fill(tenant, receiver=receiver, now=now)
            counts[tenant.slug] = content.Counts(*map(sum, zip(*filled, strict=True)))
        backfill.ask(tenants[0], now=now)
        return counts


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step; only its owner may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)
