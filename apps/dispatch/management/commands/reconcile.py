"""Looks for what has come apart and repairs it, now and completely."""

from typing import Any

from django.core.management.base import CommandParser

from apps.dispatch.reconcile import end_lost
from apps.dispatch.repairs import run_all
from apps.schedules.definitions import Definitions
from apps.tickets import store
from tenants import door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.registry import Registry


class Command(Base):
    help = "Repair what has come apart: lost attempts, missing due entries or tickets, gaps. Exit 1 when it found any."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", metavar="SLUG", help="Only this tenant.")
        parser.add_argument("--dry-run", action="store_true", help="Only report.")

    def handle(self, *args: Any, **options: Any) -> None:
        line = door.Line("reconcile command")
        conn = line.get()
        registry = Registry(line)
        registry.refresh(force=True)
        chosen = sorted(registry.by_id.values(), key=lambda one: one.slug)
        if options["tenant"]:
            wanted = self.tenant(options["tenant"]).pk
            chosen = [one for one in chosen if one.id == wanted]
        dry_run = options["dry_run"]
        lost = len(store.lost(conn, limit=10_000)) if dry_run else 0
        while not dry_run and (ended := end_lost(conn, registry, Definitions()).get("lost", 0)):
            lost += ended
        findings = list(run_all(conn, registry, chosen, dry_run=dry_run))
        line.close()
        answer = {
            "dry_run": dry_run,
            "lost_attempts": lost,
            "findings": [
                {"check": one.check, "tenant": one.tenant, "id": str(one.object_id), "detail": one.detail}
                for one in findings
            ],
        }
        rows = [f"{one.tenant} {one.check} {one.object_id}: {one.detail}" for one in findings]
        if lost:
            rows.append(f"{lost} lost attempts")
        self.show(answer, "\n".join(rows) or "Nothing had come apart.", as_json=options["format"] == "json")
        if findings or lost:
            raise SystemExit(EXIT_FOUND)
