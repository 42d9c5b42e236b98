"""Checks that each occurrence that a schedule had to account for ran, or has a row that says why not."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from apps.audit.services import Actor
from apps.dispatch.completeness.checking import Completeness, completeness_of
from apps.dispatch.completeness.repairing import HOW, completeness_repair
from apps.dispatch.completeness.shape import completeness_shape, completeness_text, repair_shape, repair_text
from apps.schedules.models import Schedule
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults, NotFound
from kernel.printing import printable
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Tenant
from tenants.work import database_now, in_tenant

NAME = "command:completeness"
LOOKS_BACK = timedelta(days=7)
CHUNK = 500


class Command(Base):
    help = "Say whether each occurrence of a schedule is accounted for, or repair what is missing. Exit 1 when any is."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--schedule", metavar="ID", help="This schedule, which may be deleted.")
        what.add_argument("--all", action="store_true", help="All schedules that are not deleted.")
        parser.add_argument("--from", dest="since", metavar="TIME", help="First instant; 7 days ago by itself.")
        parser.add_argument("--to", dest="until", metavar="TIME", help="The instant after the last one; now by itself.")
        parser.add_argument("--repair", action="store_true", help="Account for what is missing.")
        parser.add_argument(
            "--how", choices=HOW, default="policy",
            help="With --repair: by the misfire policy (the default), or all as skipped.",
        )  # fmt: skip
        parser.add_argument("--dry-run", action="store_true", help="With --repair: only say what it would do.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant, now = self.tenant(options["tenant"]), database_now().replace(microsecond=0)
        since, until = self._instant(options["since"], "--from"), self._instant(options["until"], "--to")
        end = "--to" if until else "now"
        until = until or now
        since = since or min(now, until) - LOOKS_BACK
        if until < since:
            self.refuse(f"--from is later than {end}.")
        as_json = options["format"] == "json"
        answers, incomplete, looked = [], 0, 0
        for schedule_id, name in self._chosen(tenant, options):
            looked += 1
            shape, text, fine = self._one(tenant, schedule_id, name, since, until, now, options)
            incomplete += not fine
            if as_json:
                answers.append(shape)
            elif options["schedule"] or not fine:
                self.stdout.write(text)
        if as_json:
            self.show({"looked_at": looked, "incomplete": incomplete, "schedules": answers}, "", as_json=True)
        elif options["all"]:
            self.stdout.write(f"{looked:,} schedules looked at, {incomplete:,} with gaps.")
        if incomplete:
            raise SystemExit(EXIT_FOUND)

    def _one(
        self, tenant: Tenant, schedule_id: UUID, name: str, since: datetime, until: datetime, now: datetime,
        options: dict[str, Any],
    ) -> tuple[dict[str, Any], str, bool]:  # fmt: skip
        """Its answer as JSON and as text, and whether nothing was missing."""

        def look() -> Completeness:
            return completeness_of(tenant, schedule_id, since=since, until=until, now=now)

        if not options["repair"]:
            found = in_tenant(tenant, look)
            return {"name": name, **completeness_shape(found)}, completeness_text(name, found), found.complete
        actor, dry_run = Actor(name=NAME, role="admin", tenant_id=tenant.pk), options["dry_run"]
        done = completeness_repair(
            tenant=tenant, actor=actor, schedule_id=schedule_id, since=since, until=until, now=now,
            how=options["how"], dry_run=dry_run,
        )  # fmt: skip
        text = f"{completeness_text(name, done.before)}\n{repair_text(done)}"
        return {"name": name, **repair_shape(done)}, text, done.before.complete and not done.put_back

    def _chosen(self, tenant: Tenant, options: dict[str, Any]) -> Iterator[tuple[UUID, str]]:
        if options["schedule"]:
            wanted = self.id_of(options["schedule"])
            found = in_tenant(tenant, lambda: Schedule.objects.filter(pk=wanted).values_list("pk", "name").first())
            if found is None:
                raise NotFound("There is no such schedule.")
            yield found[0], printable(found[1])
            return
        last = UUID(int=0)
        while True:
            alive = Schedule.objects.filter(deleted_at=None, pk__gt=last).order_by("pk").values_list("pk", "name")
            rows = in_tenant(tenant, lambda alive=alive: list(alive[:CHUNK]))  # type: ignore[misc]  # of this turn
            for key, name in rows:
                yield key, printable(name)
            if len(rows) < CHUNK:
                return
            last = rows[-1][0]

    def _instant(self, text: str | None, pointer: str) -> datetime | None:
        faults = Faults()
        found = None if text is None else read_instant(text, pointer, "UTC", faults)
        faults.raise_if_any()
        return found
