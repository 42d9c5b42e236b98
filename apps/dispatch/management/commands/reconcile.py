"""Looks for what has come apart and repairs it, now and completely."""

from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import CommandParser

from apps.dispatch.reconcile import end_lost
from apps.dispatch.repairs import parked, run_all
from apps.schedules.definitions import Definitions
from apps.tickets import holding
from apps.tickets.store import NOTHING
from tenants import door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.registry import Registry

LOOK_CHUNK = 10_000


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
        wanted: int | None = None
        if options["tenant"]:
            wanted = self.tenant(options["tenant"]).pk
            chosen = [one for one in chosen if one.id == wanted]
        dry_run = options["dry_run"]
        lost = _look(conn, wanted) if dry_run else _end(conn, registry, wanted)
        findings = list(run_all(conn, registry, chosen, dry_run=dry_run))
        slugs = {one.slug for one in chosen}
        findings += [one for one in parked(conn, registry) if not options["tenant"] or one.tenant in slugs]
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


def _look(conn: "psycopg.Connection[Any]", tenant_id: int | None) -> int:
    """How many lost attempts there are, of one tenant or of all."""
    seen, after = 0, NOTHING
    while True:
        found = holding.lost(
            conn, limit=LOOK_CHUNK, grace_s=settings.WORKER_TTL_S, after=after, tenant_id=tenant_id
        )  # fmt: skip
        seen += len(found)
        if len(found) < LOOK_CHUNK:
            return seen
        after = found[-1].started.execution_id


def _end(conn: "psycopg.Connection[Any]", registry: Registry, tenant_id: int | None) -> int:
    """Ends all lost attempts once, of one tenant or of all; those whose tenant does not answer stay."""
    ended, after, definitions = 0, NOTHING, Definitions()
    while True:
        counts, after = end_lost(conn, registry, definitions, after=after, tenant_id=tenant_id)
        ended += counts.get("lost", 0)
        if after == NOTHING:
            return ended
