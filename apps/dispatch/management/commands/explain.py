"""Answers why a run or a schedule does not run, from the rows as they are now."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from apps.dispatch.explaining.execution import execution_explain
from apps.dispatch.explaining.schedules import schedule_explain
from apps.dispatch.explaining.shape import explanation_shape, explanation_text
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.work import database_now, in_tenant


class Command(Base):
    help = "Say why an execution or a schedule does not run. Exit 0 when all is fine, 1 when something holds it back."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--execution", metavar="ID")
        what.add_argument("--schedule", metavar="ID")
        parser.add_argument("--at", metavar="TIME", help="With --schedule: what became of that instant.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = self.tenant(options["tenant"])
        key = self._id(options["execution"] or options["schedule"])
        at = self._at(options["at"])
        if at is not None and options["schedule"] is None:
            self.refuse("--at goes with --schedule only.")
        now = database_now()
        if options["execution"] is not None:
            found = in_tenant(tenant, lambda: execution_explain(tenant, key, now=now, named=True, operator=True))
        else:
            found = in_tenant(tenant, lambda: schedule_explain(tenant, key, now=now, at=at, named=True, operator=True))
        self.show(explanation_shape(found), explanation_text(found), as_json=options["format"] == "json")
        if not found.verdict.fine:
            raise SystemExit(EXIT_FOUND)

    def _id(self, text: str) -> UUID:
        try:
            return UUID(text)
        except ValueError:
            self.refuse(f"{text!r} is no id.")

    def _at(self, text: str | None) -> datetime | None:
        faults = Faults()
        found = None if text is None else read_instant(text, "--at", "UTC", faults)
        faults.raise_if_any()
        return found
