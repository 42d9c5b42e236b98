"""Runs a workflow."""

from typing import Any

import orjson
from django.core.management.base import CommandParser

from apps.audit.actors import Actor
from apps.dispatch.workflow_submission import workflow_run
from tenants.commands import Command as Base
from tenants.work import database_now, rehearsing

NAME = "command:workflow_run"


class Command(Base):
    help = "Run a workflow at once or later; prints the id of the run."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--workflow", required=True, metavar="ID")
        parser.add_argument("--input", metavar="JSON", help="Instead of the workflow's own input.")
        parser.add_argument("--at", metavar="TIME", help="RFC 3339; at once when not given.")
        parser.add_argument("--dry-run", action="store_true", help="Only say whether it could be run.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant, dry = self.tenant(options["tenant"]), options["dry_run"]
        given = {"input": self._json(options["input"]), "run_at": options["at"]}
        data = {name: value for name, value in given.items() if value is not None}
        with rehearsing(dry):
            run_id = workflow_run(
                tenant=tenant, actor=Actor(name=NAME, role="admin", tenant_id=tenant.pk),
                workflow_id=self.id_of(options["workflow"]), data=data, now=database_now(),
            )  # fmt: skip
        answer = {"dry_run": dry, "run": None if dry else run_id}
        self.show(answer, "It could be run." if dry else str(run_id), as_json=options["format"] == "json")

    def _json(self, text: str | None) -> Any:
        try:
            return None if text is None else orjson.loads(text)
        except ValueError:
            self.refuse("--input is no JSON.")
