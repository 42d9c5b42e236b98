"""Draws a workflow, or one run of it with the states of its steps."""

from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from apps.workflows.definitions.definition import Workflow
from apps.workflows.definitions.selecting import workflow_find
from apps.workflows.views.drawing import Shown, graph_json, graph_svg
from apps.workflows.views.runs_reading import run_read
from apps.workflows.views.runs_viewing import run_graph, run_states
from kernel.errors import NotFound
from tenants.commands import Command as Base
from tenants.models import Tenant
from tenants.work import in_tenant

Drawn = tuple[str, Workflow, dict[str, Shown] | None]  # title, graph, states of a run


class Command(Base):
    help = "Print the graph of a workflow, or of a run of it: as text, as JSON, or with --svg as a picture."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--workflow", metavar="ID")
        what.add_argument("--run", metavar="ID")
        parser.add_argument("--svg", action="store_true", help="A picture; it loads and runs nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant, key = self.tenant(options["tenant"]), self.id_of(options["workflow"] or options["run"])
        read = _run if options["workflow"] is None else _workflow
        title, workflow, states = in_tenant(tenant, lambda: read(tenant, key))
        if options["svg"]:
            self.stdout.write(graph_svg(workflow, title=title, states=states))
            return
        found = graph_json(workflow, states)
        self.show(found, "\n".join([title, *map(_line, found["nodes"])]), as_json=options["format"] == "json")


def _workflow(tenant: Tenant, key: UUID) -> Drawn:
    found = workflow_find(key)
    return f"{found.job.name}, version {found.definition.version}", found.workflow, None


def _run(tenant: Tenant, key: UUID) -> Drawn:
    run = run_read(tenant, key)
    if run is None:
        raise NotFound("There is no such run.")
    title = f"{run.workflow_name}, version {run.version}: {run.state}"
    return title, run_graph(tenant, run).workflow, run_states(tenant, run)


def _line(node: dict[str, Any]) -> str:
    state = f": {node['state']}{' (' + node['note'] + ')' if node['note'] else ''}" if "state" in node else ""
    return f"{'  ' * node['level']}{node['step']}{state}"
