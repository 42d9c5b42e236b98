"""Shows what a workflow would run in which order, before anything runs or is even saved."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from django.core.management.base import CommandParser

from apps.workflows.definitions.selecting import preview_of, workflow_find
from apps.workflows.definitions.services import workflow_rehearse
from tenants.commands import Command as Base
from tenants.work import in_tenant


class Command(Base):
    help = "Show what a workflow would run in which order. Exit 2 with all faults when it is not valid."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--workflow", metavar="ID")
        what.add_argument("--file", metavar="PATH", help="JSON as POST /workflows takes it; - is standard input.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = self.tenant(options["tenant"])
        if options["file"] is None:
            key = self.id_of(options["workflow"])
            form = in_tenant(
                tenant, lambda: workflow_rehearse(tenant=tenant, data={}, changes=workflow_find(key))
            )  # fmt: skip
        else:
            form = workflow_rehearse(tenant=tenant, data=self._read(options["file"]))
        found = in_tenant(tenant, lambda: preview_of(tenant, form))
        lines = [f"{found['step_count']:,} steps, {found['depth']:,} deep, up to {found['width']:,} steps at once"]
        lines += [f"{one['level']:>4}  {one['name']}: {_what(one)}, {one['starts']}" for one in found["steps"]]
        self.show(found, "\n".join(lines), as_json=options["format"] == "json")

    def _read(self, path: str) -> Any:
        try:
            return orjson.loads(sys.stdin.read() if path == "-" else Path(path).read_bytes())
        except (OSError, ValueError) as error:
            self.refuse(f"{path} can't be read: {error}")


def _what(step: Mapping[str, Any]) -> str:
    """What a step is: its kind, and whether it runs once or for each item of a list."""
    if step["items_max"] is None:
        return str(step["type"])
    at_once = "" if step["items_at_once"] is None else f", {step['items_at_once']:,} at once"
    return f"{step['type']} for each of up to {step['items_max']:,} items{at_once}"
