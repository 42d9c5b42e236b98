"""What a run looks like: its graph with the states of its steps, and where its time went."""

from datetime import datetime

from apps.workflows.definitions.graph import Graph
from apps.workflows.runs.known import graphs_here
from apps.workflows.views.critical import Timeline, timeline
from apps.workflows.views.drawing import Shown
from apps.workflows.views.runs_reading import RunRow
from apps.workflows.views.steps_reading import states_shown, step_times
from kernel.errors import Conflict
from tenants import door
from tenants.models import Tenant

EMPTY = Timeline((), (), 0.0)


def run_graph(tenant: Tenant, run: RunRow) -> Graph:
    """The graph of the version that the run keeps. Conflict when it can't be read any more."""
    version = (run.workflow_id, run.version)
    found = graphs_here().load(door.raw(), tenant.schema_name, [version]).get(version)
    if found is None:
        raise Conflict("The definition of this run can't be read.", code="undecodable")
    return found


def run_states(tenant: Tenant, run: RunRow) -> dict[str, Shown]:
    """How its steps stand; of a run that has not begun, none."""
    return states_shown(tenant, run.id) if run.begun else {}


def run_timeline(tenant: Tenant, run: RunRow, *, now: datetime) -> Timeline:
    """Bars and critical path, up to `now` of a run that goes on. Conflict when its definition can't be read."""
    if run.started_at is None:
        return EMPTY
    return timeline(run_graph(tenant, run), step_times(tenant, run.id), started_at=run.started_at, now=now)
