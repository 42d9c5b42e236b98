"""Approvals that wait for a person, with what their definitions ask."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

import orjson

from apps.schedules.models import Job
from apps.workflows.definitions.graph import Graph
from apps.workflows.models import Run
from apps.workflows.runs.known import graphs_here
from apps.workflows.views.steps_reading import StepRow, approvals_read
from tenants import door
from tenants.models import Tenant


class Awaited(NamedTuple):
    """One of them; `role` is the least that may answer, None when the definition can't be read any more."""

    row: StepRow
    workflow_id: UUID
    workflow_name: str
    role: str | None
    message: str


def approvals_awaited(tenant: Tenant, *, after: int = 0, limit: int) -> list[Awaited]:
    """Up to `limit` of them, the longest waiting first."""
    rows = approvals_read(tenant, after=after, limit=limit)
    runs = Run.objects.in_bulk({row.run_id for row in rows})
    names = dict(Job.objects.filter(pk__in={run.workflow_id for run in runs.values()}).values_list("pk", "name"))
    versions = {(run.workflow_id, run.version) for run in runs.values()}
    graphs = graphs_here().load(door.raw(), tenant.schema_name, versions)
    return [_awaited(row, runs[row.run_id], names, graphs) for row in rows]


def _awaited(row: StepRow, run: Run, names: Mapping[UUID, str], graphs: Mapping[tuple[UUID, int], Graph]) -> Awaited:
    graph = graphs.get((run.workflow_id, run.version))
    approval = None if graph is None else graph.steps[row.step].approval
    name = names.get(run.workflow_id, "")
    if approval is None:
        return Awaited(row, run.workflow_id, name, None, "")
    message = approval.message if row.value is None else orjson.loads(row.value)
    return Awaited(row, run.workflow_id, name, approval.role, message)
