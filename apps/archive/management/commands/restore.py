"""Brings archived history back into the tables."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
from django.core.management.base import CommandParser

from apps.archive import catalogue
from apps.archive.catalogue import Batch
from apps.archive.files import Store, store
from apps.archive.restoring import KEEP_DAYS, batch_restore, unit_of
from apps.archive.tables import TABLES
from apps.archive.writing import BatchLost
from apps.audit.services import Actor, Entry, record_many
from kernel.errors import NotFound, ShardbeatError
from tenants import door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Tenant
from tenants.work import database_now

Conn = psycopg.Connection[Any]


class Command(Base):
    help = (
        "Bring archived executions back into the tables, with all that goes with them. They stay there for --keep-days "
        "whatever their age. Exit 1 when some could not come back (a file is damaged, a row has taken their place), or "
        "another process works at a batch."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--day", metavar="DAY", help="What was made on this day of UTC, as 2026-03-31.")
        parser.add_argument("--from", dest="first", metavar="DAY", help="What was made on this day or later ...")
        parser.add_argument("--to", dest="last", metavar="DAY", help="... up to this day, which is included.")
        parser.add_argument("--execution", metavar="ID", help="One execution; of a workflow's run all of the run.")
        parser.add_argument("--keep-days", type=int, default=KEEP_DAYS, help="How long it is not archived again.")
        parser.add_argument("--reason", default="", help="For the audit trail.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would come back.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant, files = self.tenant(options["tenant"]), store()
        if not 1 <= options["keep_days"] <= 3_650:
            self.refuse("--keep-days: 1 to 3650.")
        now = database_now()
        with door.connect("restore command") as conn:
            wanted = self._wanted(conn, tenant, files, options)
            answer: dict[str, Any] = {"dry_run": options["dry_run"], "rows": {}, "refused": [], "busy": 0, "failed": {}}
            rows: Counter[str] = Counter()
            for batch, only in wanted:
                if options["dry_run"]:
                    rows.update({"executions": len(only)} if only else batch.counts)
                    continue
                try:
                    keep_until = now + timedelta(days=options["keep_days"])
                    note = partial(_note, conn, tenant, batch, only, options["reason"])
                    found = batch_restore(
                        conn, tenant, files, batch, keep_until=keep_until, only=only, note=note
                    )  # fmt: skip
                except BatchLost:
                    answer["busy"] += 1
                    continue
                except ShardbeatError as error:  # one day's trouble is not the others'
                    answer["failed"][batch.day.isoformat()] = error.detail
                    continue
                rows.update(found.counts)
                answer["refused"] += [str(one) for one in found.refused]
            answer["rows"] = {name: count for name, count in rows.items() if count}
        self.show(answer, _text(answer), as_json=options["format"] == "json")
        if answer["refused"] or answer["busy"] or answer["failed"]:
            raise SystemExit(EXIT_FOUND)

    def _wanted(
        self, conn: Conn, tenant: Tenant, files: Store, options: dict[str, Any]
    ) -> list[tuple[Batch, Sequence[UUID]]]:  # fmt: skip
        """Batches, and which of their executions; all where none is named."""
        ways = [bool(options["day"]), bool(options["first"] or options["last"]), bool(options["execution"])]
        if sum(ways) != 1:
            self.refuse("Give one of --day, --from with --to, or --execution.")
        if options["execution"]:
            key = self.id_of(options["execution"])
            for batch in catalogue.holding(conn, tenant.schema_name, key):
                unit = unit_of(files, batch, key)
                if unit:
                    return [(batch, unit)]
            raise NotFound(f"{tenant.slug} has no archived execution {key}.")
        if not options["day"] and not (options["first"] and options["last"]):
            self.refuse("--from and --to belong together.")
        first = self.day_of("--from", options["day"] or options["first"])
        last = self.day_of("--to", options["day"] or options["last"])
        if first > last:
            self.refuse("--to must not be before --from.")
        found = catalogue.of_days(conn, tenant.schema_name, first=first, last=last, states=["done", "restoring"])
        return [(batch, ()) for batch in found]


def _note(conn: Conn, tenant: Tenant, batch: Batch, only: Sequence[UUID], reason: str) -> None:
    entry = Entry(
        "archive.restore", "archive_batch", batch.id, reason=reason,
        after={"day": batch.day.isoformat(), "executions": len(only) or batch.counts.get("executions", 0)},
    )  # fmt: skip
    actor = Actor(name="command:restore", role="admin", tenant_id=tenant.pk)
    record_many([entry], actor=actor, now=None, tenant_id=tenant.pk, conn=conn)


def _text(answer: dict[str, Any]) -> str:
    named = [(table.name, answer["rows"].get(table.name, 0)) for table in TABLES]
    rows = ", ".join(f"{count:,} {name}" for name, count in named if count) or "nothing"
    lines = [f"{'Would come back' if answer['dry_run'] else 'Back in the tables'}: {rows}."]
    lines += [f"{one} stays archived: another row has its run key or occurrence." for one in answer["refused"]]
    lines += [f"{day} failed: {detail}" for day, detail in answer["failed"].items()]
    if answer["busy"]:
        lines.append(f"{answer['busy']} batches are being worked at; try again.")
    return "\n".join(lines)
