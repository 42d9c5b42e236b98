"""Answers why a run, a schedule or a step of a workflow does not run, from the rows as they are now."""

from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser

from apps.dispatch.explaining.execution import execution_explain
from apps.dispatch.explaining.schedules import schedule_explain
from apps.dispatch.explaining.shape import explanation_shape, explanation_text
from apps.dispatch.explaining.values import Explanation
from apps.dispatch.explaining.workflow_runs import run_explain, step_explain
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.work import database_now, in_tenant


class Command(Base):
    help = "Say why a run, a schedule, a workflow or a step does not go on. Exit 0 when all is fine, else 1."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--execution", metavar="ID")
        what.add_argument("--schedule", metavar="ID")
        what.add_argument("--workflow-run", metavar="ID")
        parser.add_argument("--step", metavar="NAME", help="With --workflow-run: one step of it.")
        parser.add_argument("--item", type=int, metavar="N", help="With --step: this place of its list, from 0.")
        parser.add_argument("--at", metavar="TIME", help="With --schedule: what became of that instant.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = self.tenant(options["tenant"])
        key = self.id_of(options["execution"] or options["schedule"] or options["workflow_run"])
        at = self._at(options["at"])
        if at is not None and options["schedule"] is None:
            self.refuse("--at goes with --schedule only.")
        step, item = options["step"], options["item"]
        if (step is not None and options["workflow_run"] is None) or (item is not None and step is None):
            self.refuse("--step goes with --workflow-run only, and --item with --step.")
        now = database_now()

        def explained() -> Explanation:
            if options["execution"] is not None:
                return execution_explain(tenant, key, now=now, named=True, operator=True)
            if options["schedule"] is not None:
                return schedule_explain(tenant, key, now=now, at=at, named=True, operator=True)
            if step is None:
                return run_explain(tenant, key, now=now, named=True, operator=True)
            return step_explain(tenant, key, step, item=item, now=now, named=True, operator=True)

        found = in_tenant(tenant, explained)
        self.show(explanation_shape(found), explanation_text(found), as_json=options["format"] == "json")
        if not found.verdict.fine:
            raise SystemExit(EXIT_FOUND)

    def _at(self, text: str | None) -> datetime | None:
        faults = Faults()
        found = None if text is None else read_instant(text, "--at", "UTC", faults)
        faults.raise_if_any()
        return found
