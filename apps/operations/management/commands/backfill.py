"""Runs past occurrences of a schedule: says first what it would do, then shows how far it is."""

import sys
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from apps.audit.actors import Actor
from apps.operations.backfill.reading import backfill_find, backfill_shape, outlook_shape
from apps.operations.backfill.recognising import ONLY
from apps.operations.backfill.segments import DEFINITIONS
from apps.operations.backfill.services import Rehearsal, backfill_ask, schedule_of_workflow
from apps.operations.backfill.wish import AT_ONCE, OVERLAPS
from apps.operations.backfill.within import ORDERS
from apps.operations.models import Operation
from apps.operations.progress_line import progress_line
from apps.operations.states import ENDS
from apps.operations.watching import Look, stands_still, until_ended
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Tenant
from tenants.work import database_now, in_tenant

NAME = "command:backfill"
MEMBERS = ("only", "order", "overlap", "priority", "definition", "max_in_flight", "rate_per_s", "canary",
           "stop_after_failures", "reason")  # fmt: skip


class Command(Base):
    help = (
        "Run past occurrences of a schedule. Says first what it will do, and asks when a person sits at the terminal."
        " Exit 0 when all of it succeeded, 1 when some did not or it was stopped, 2 for bad input."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--schedule", metavar="ID")
        what.add_argument("--workflow", metavar="ID", help="One that has a single schedule; else name the schedule.")
        what.add_argument("--watch", metavar="ID", help="Show the progress of a backfill that there is.")
        parser.add_argument("--from", metavar="TIME", help="A time, or a date in the zone of the schedule.")
        parser.add_argument("--to", metavar="TIME", help="The same; it does not belong to the range.")
        parser.add_argument("--only", choices=ONLY, help="missing when not given.")
        parser.add_argument("--order", choices=ORDERS, help="asc when not given.")
        parser.add_argument("--max-in-flight", type=int, metavar="N", help=f"Runs at once; {AT_ONCE}.")
        parser.add_argument("--overlap", choices=OVERLAPS, help="As the schedule says when not given.")
        parser.add_argument("--priority", type=int, metavar="0-9", help="0, the lowest, when not given.")
        parser.add_argument("--definition", choices=DEFINITIONS, help="The schedule's of now, or those of then.")
        parser.add_argument("--rate", type=float, dest="rate_per_s", metavar="N", help="Runs that begin in a second.")
        parser.add_argument("--canary", type=int, metavar="N", help="So many first; the others when they succeeded.")
        parser.add_argument("--stop-after", type=int, dest="stop_after_failures", metavar="N", help="Failures.")
        parser.add_argument("--reason", metavar="TEXT")
        parser.add_argument("--dry-run", action="store_true", help="Only say what it would do.")
        parser.add_argument("--yes", action="store_true", help="Do not ask, also at a terminal.")
        parser.add_argument("--no-wait", action="store_true", help="Only print its id.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant, as_json = self.tenant(options["tenant"]), options["format"] == "json"
        if options["watch"] is not None:
            self._watch(tenant, self.id_of(options["watch"]), as_json=as_json)
            return
        schedule_id = self._schedule(tenant, options)
        given = {"from": options["from"], "to": options["to"], **{name: options[name] for name in MEMBERS}}
        data = {name: value for name, value in given.items() if value is not None}
        seen = outlook_shape(*self._ask(tenant, schedule_id, {**data, "dry_run": True}, Rehearsal))
        if options["dry_run"]:
            self.show(seen, outlook_text(seen), as_json=as_json)
            return
        if not options["yes"]:
            self._confirm(seen)
        made = self._ask(tenant, schedule_id, data, Operation)
        if options["no_wait"]:
            self.show({"backfill": made.pk}, str(made.pk), as_json=as_json)
            return
        self._watch(tenant, made.pk, as_json=as_json)

    def _schedule(self, tenant: Tenant, options: Mapping[str, Any]) -> UUID:
        if options["schedule"] is not None:
            return self.id_of(options["schedule"])
        workflow_id = self.id_of(options["workflow"])
        return in_tenant(tenant, lambda: schedule_of_workflow(workflow_id, None))

    def _ask(self, tenant: Tenant, schedule_id: UUID, data: Mapping[str, Any], kind: type[Any]) -> Any:
        actor = Actor(name=NAME, role="admin", tenant_id=tenant.pk)
        found = backfill_ask(tenant=tenant, actor=actor, schedule_id=schedule_id, data=data, now=database_now())
        assert isinstance(found, kind)
        return found

    def _confirm(self, seen: Mapping[str, Any]) -> None:
        """Says what will be done, and asks whether it may. A script has been told what to do by whoever wrote it."""
        self.stderr.write(outlook_text(seen))
        if sys.stdin is None or not sys.stdin.isatty():
            return
        self.stderr.write(f"Run {seen['count']:,} occurrences? [y/N] ", ending="")  # what is printed is the answer's
        self.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            self.refuse("Nothing was done.")

    def _watch(self, tenant: Tenant, backfill_id: UUID, *, as_json: bool) -> None:
        """Shows its progress until it has ended; whoever interrupts stops looking, and nothing else."""

        def look() -> Look:
            shape = in_tenant(
                tenant, lambda: backfill_shape(tenant, backfill_find(backfill_id), now=database_now())
            )  # fmt: skip
            has_ended = shape["state"] in ENDS and shape["finished_at"] is not None
            return Look(_line(shape), has_ended or stands_still(shape["state"], shape["counts"]), shape)

        try:
            shape = until_ended(self.stderr, look)
        except KeyboardInterrupt:
            self.stderr.write(f"\nIt goes on. Look again with --watch {backfill_id}.")
            raise SystemExit(EXIT_FOUND) from None
        self.show(shape, ended_text(shape), as_json=as_json)
        counts = shape["counts"]
        if shape["state"] != "completed" or counts["failed"]:
            raise SystemExit(EXIT_FOUND)


def outlook_text(seen: Mapping[str, Any]) -> str:
    """What a backfill would do, for people."""
    standings = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in seen["standings"].items() if count)
    lines = [f"{seen['occurrences']:,} occurrences in the range: {standings or 'none'}."]
    if seen["count"]:
        lines.append(f"{seen['count']:,} would run, from {_at(seen['first'])} to {_at(seen['last'])}.")
    if seen["expected_end"] is not None and seen["count"]:
        lines.append(f"They would have ended about {_at(seen['expected_end'])}.")
    lines += [
        f"{one['quota']}: {one['use']:,} of {one['limit']:,} are used; this adds {one['adds']:,}."
        for one in seen["quotas"]
    ]
    return "\n".join([*lines, *(f"Note: {warning}" for warning in seen["warnings"])])


def ended_text(shape: Mapping[str, Any]) -> str:
    """How a backfill ended, for people."""
    counts = ", ".join(f"{count:,} {name}" for name, count in shape["counts"].items() if count)
    return f"{shape['id']} {shape['state']}: {counts or 'nothing was to be run'}."


def _line(shape: Mapping[str, Any]) -> str:
    return progress_line(
        shape["state"], shape["counts"], planned=shape["planned"], expected_end=shape["expected_end"],
        waits_for=shape["waits_for"] or "",
    )  # fmt: skip


def _at(at: Any) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
