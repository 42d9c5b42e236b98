"""Reading runs of workflows: those that go on and have ended, and those that wait to begin.

A run is an execution; its row here is made when it begins. So its state is that row's once it is there, and before the
execution's: one that waits for its time is `scheduled`, one that waits for a place or is about to begin is `ready`.
What never began has ended as executions do: skipped, expired, cancelled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import orjson
from psycopg import sql

from kernel.ids import ID_SLACK, first_id_at
from kernel.keyset import WHOLE, Condition, Count, Listing, Order, Page, Part, Path, Position, count_read, page_read
from kernel.pools import WORKFLOW
from tenants import door
from tenants.models import Tenant

STATES = (
    "scheduled", "ready", "running", "paused", "cancelling", "succeeded", "failed", "cancelled", "expired", "skipped",
)  # fmt: skip
ALIVE = frozenset(STATES[:5])
ORDERS: Mapping[str, Order] = {"-created_at": Order(), "created_at": Order(descending=False)}
# Workflows whose runs are read one beside the other. Of a tenant with more of them the newest executions are looked at.
MAX_APART = 50
_IN_HISTORY: Mapping[str, str] = {"failed": "dead"}  # where a state is called otherwise


class RunRow(NamedTuple):
    """One row of the statement. JSON members are texts; `input` and `output` only of a run that is read alone."""

    id: UUID
    workflow_id: UUID
    workflow_name: str
    version: int
    state: str
    trigger: str
    schedule_id: UUID | None
    nominal_at: datetime | None
    run_key: str
    priority: int
    created_at: datetime
    actual_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime | None
    paused_at: datetime | None
    paused_by: str
    paused_reason: str
    reason: str
    error: str | None
    replay_of: UUID | None
    fired_by: str
    labels: str | None
    generation: int
    revision: int
    parent_run_id: UUID | None
    parent_step: str | None
    parent_item: int | None
    wait_reason: str | None
    input: str | None
    output: str | None

    @property
    def begun(self) -> bool:
        """Whether it has steps."""
        return self.revision > 0


_STATE = """CASE
    WHEN r.execution_id IS NOT NULL AND (r.finished_at IS NOT NULL OR e.finished_at IS NULL) THEN r.state
    WHEN e.state = 'dead' THEN 'failed'
    WHEN e.finished_at IS NOT NULL OR e.state = 'scheduled' THEN e.state ELSE 'ready' END"""

_COLUMNS = f"""
    e.id, e.job_id, j.name, coalesce(r.version, e.job_version), {_STATE}, e.trigger, e.schedule_id, e.nominal_at,
    e.run_key, e.priority, e.created_at, e.actual_at, r.started_at, coalesce(r.finished_at, e.finished_at),
    r.deadline_at, r.paused_at, coalesce(r.paused_by, ''), coalesce(r.paused_reason, ''),
    coalesce(nullif(r.reason, ''), e.reason), coalesce(r.error, e.error)::text, e.replay_of, e.fired_by,
    e.labels::text, coalesce(r.generation, 1), coalesce(r.revision, 0), p.run_id, p.step, p.item,
    CASE WHEN t.state = 'blocked' THEN 'workflow_blocked'
         WHEN t.state = 'ready' AND t.rank IS NULL THEN t.wait_reason END, {{whole}}
"""
_RUN = "LEFT JOIN {schema}.workflows_run r ON r.execution_id = e.id LEFT JOIN tickets_ticket t ON t.execution_id = e.id"
_JOINS = f"""
JOIN {{schema}}.schedules_job j ON j.id = e.job_id {_RUN}
LEFT JOIN {{schema}}.workflows_steprun p ON p.id = coalesce(
    r.parent_step_id, (SELECT s.id FROM {{schema}}.workflows_steprun s WHERE s.execution_id = e.id))
"""
_STATE_OF_ROW = f"(SELECT {_STATE} FROM (SELECT 1) x {_RUN})"


@dataclass(frozen=True, slots=True)
class RunFilter:
    """What a list of runs is asked for; None and empty ask for nothing. Times are exclusive."""

    workflow_id: UUID | None = None
    states: Sequence[str] = ()
    triggers: Sequence[str] = ()
    schedule_id: UUID | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    created_after: datetime | None = None
    created_before: datetime | None = None


def run_read(tenant: Tenant, run_id: UUID) -> RunRow | None:
    """One run with its input and its output; None when there is no such run of a workflow."""
    columns = _COLUMNS.format(whole="coalesce(r.input, e.payload)::text, coalesce(r.output, e.result)::text")
    query = f"SELECT {columns} FROM {{schema}}.executions_execution e {_JOINS} WHERE e.id = %s AND j.kind = %s"
    composed = sql.SQL(query).format(schema=sql.Identifier(tenant.schema_name))
    row = door.raw().execute(composed, [run_id, WORKFLOW]).fetchone()
    return None if row is None else RunRow(*row)


def runs_read(
    tenant: Tenant, wanted: RunFilter, *, order: str = "-created_at", after: Position | None = None, size: int
) -> Page[RunRow]:
    """Runs in an order of ORDERS, without input and output."""
    found = page_read(door.raw(), tenant.schema_name, _listing(tenant, wanted, order), size=size, after=after)
    return Page([RunRow(*row) for row in found.rows], found.after)


def runs_count(tenant: Tenant, wanted: RunFilter) -> Count:
    """How many there are; see `kernel.keyset.count_read`."""
    return count_read(door.raw(), tenant.schema_name, _listing(tenant, wanted, "-created_at"))


def _listing(tenant: Tenant, wanted: RunFilter, order: str) -> Listing:
    workflows = [wanted.workflow_id] if wanted.workflow_id is not None else _workflows(tenant)
    paths, rest = _paths(workflows, wanted), _created(wanted)
    if wanted.workflow_id is not None or len(workflows) > MAX_APART or wanted.states:  # else the path has no other rows
        is_run = "EXISTS (SELECT FROM {schema}.schedules_job j WHERE j.id = e.job_id AND j.kind = %s)"
        rest.append(Condition(is_run, (WORKFLOW,)))
    if wanted.states:
        rest.append(Condition(f"{_STATE_OF_ROW} = ANY(%s)", (list(wanted.states),)))
    if wanted.triggers:
        rest.append(Condition("e.trigger = ANY(%s)", (list(wanted.triggers),)))
    if wanted.schedule_id is not None:
        rest.append(Condition("e.schedule_id = %s", (wanted.schedule_id,)))
    if wanted.labels:
        rest.append(Condition("e.labels @> %s::jsonb", (orjson.dumps(dict(wanted.labels)).decode(),)))
    bounds = _id_bounds(wanted)
    return Listing(
        table="{schema}.executions_execution", columns=_COLUMNS.format(whole="NULL, NULL"), joins=_JOINS,
        paths=tuple(path.within(*bounds) for path in paths), rest=tuple(rest), order=ORDERS[order],
    )  # fmt: skip


def _paths(workflows: Sequence[UUID], wanted: RunFilter) -> list[Path]:
    """By the workflows where they are few, and by what is alive or went wrong."""
    found = []
    if len(workflows) <= MAX_APART:
        parts = tuple(Part((), "e.job_id", one) for one in workflows)
        found.append(Path(parts or (Part((Condition("false"),)),)))
    if wanted.states and "succeeded" not in wanted.states:
        bad = Condition("e.state IN ('dead', 'cancelled', 'expired', 'skipped')")
        ended = [_IN_HISTORY.get(one, one) for one in wanted.states if one not in ALIVE]
        # What has failed or been cancelled is alive until its execution is settled, a moment later.
        alive = Part((Condition("e.finished_at IS NULL"),))
        found.append(Path((alive, *(Part((bad,), "e.state", one) for one in ended))))
    return found or [WHOLE]


def _workflows(tenant: Tenant) -> list[UUID]:
    """The tenant's workflows, deleted ones too; one more than are read apart when there are more."""
    query = "SELECT id FROM {schema}.schedules_job WHERE kind = %s ORDER BY id LIMIT %s"
    composed = sql.SQL(query).format(schema=sql.Identifier(tenant.schema_name))
    return [row[0] for row in door.raw().execute(composed, [WORKFLOW, MAX_APART + 1])]


def _created(wanted: RunFilter) -> list[Condition]:
    found = []
    if wanted.created_after is not None:
        found.append(Condition("e.created_at > %s", (wanted.created_after,)))
    if wanted.created_before is not None:
        found.append(Condition("e.created_at < %s", (wanted.created_before,)))
    return found


def _id_bounds(wanted: RunFilter) -> list[Condition]:
    """Ids hold when they were made."""
    found = []
    if wanted.created_after is not None:
        found.append(Condition("e.id > %s", (first_id_at(wanted.created_after - ID_SLACK),)))
    if wanted.created_before is not None:
        found.append(Condition("e.id < %s", (first_id_at(wanted.created_before + ID_SLACK),)))
    return found
