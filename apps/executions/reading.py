"""Reading executions: history and live state in one statement, so that an answer is of one instant.

The state of an execution that is alive is its ticket's. How a list is found is in `filtering`.
"""

from dataclasses import replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from psycopg import sql

from apps.executions.filtering import ORDERS, ExecutionFilter, paths_of
from kernel.keyset import Count, Listing, Page, Position, count_read, page_read
from tenants import door
from tenants.models import Tenant


class ExecutionRow(NamedTuple):
    """One row of the statement. JSON members are texts."""

    id: UUID
    run_key: str
    job_id: UUID
    job_version: int
    schedule_id: UUID | None
    schedule_version: int | None
    trigger: str
    state: str
    priority: int
    nominal_at: datetime | None
    until_at: datetime | None
    occurrences: int
    actual_at: datetime
    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    attempt_count: int
    result: str | None
    error: str | None
    reason: str
    replay_of: UUID | None
    workflow_run_id: UUID | None
    step: str | None
    fired_by: str
    labels: str | None
    available_at: datetime | None
    start_by: datetime | None
    wait_reason: str | None
    cancel_requested: bool
    progress: str | None
    payload: str | None
    erased_at: datetime | None = None
    archived_at: datetime | None = None  # when it left the tables, of a row that was read from a file


_COLUMNS = """
    e.id, e.run_key, e.job_id, e.job_version, e.schedule_id, e.schedule_version, e.trigger, coalesce(t.state, e.state),
    e.priority, e.nominal_at, e.until_at, e.count, e.actual_at, e.created_at,
    coalesce(t.first_queued_at, e.queued_at), coalesce(t.first_started_at, e.started_at), e.finished_at,
    coalesce(t.attempt, e.attempt_count), e.result::text, e.error::text, e.reason, e.replay_of,
    e.workflow_run_id, e.step, e.fired_by,
    e.labels::text, CASE WHEN e.state = 'scheduled' THEN e.actual_at ELSE t.available_at END,
    t.start_by, CASE WHEN t.state = 'ready' AND t.rank IS NULL THEN t.wait_reason END,
    coalesce(t.cancel_requested, false), t.progress::text, {payload},
    (SELECT x.at FROM {{schema}}.executions_erasure x WHERE x.execution_id = e.id)
"""
_JOIN = "LEFT JOIN tickets_ticket t ON t.execution_id = e.id"


def execution_read(tenant: Tenant, execution_id: UUID) -> ExecutionRow | None:
    """One execution with its payload."""
    columns = _COLUMNS.format(payload="e.payload::text")
    query = sql.SQL(f"SELECT {columns} FROM {{schema}}.executions_execution e {_JOIN} WHERE e.id = %s")
    row = door.raw().execute(query.format(schema=sql.Identifier(tenant.schema_name)), [execution_id]).fetchone()
    return None if row is None else ExecutionRow(*row)


def executions_read(
    tenant: Tenant, wanted: ExecutionFilter, *, order: str = "-created_at", after: Position | None = None, size: int
) -> Page[ExecutionRow]:
    """Executions in an order of ORDERS, without payloads."""
    found = page_read(door.raw(), tenant.schema_name, _listing(tenant, wanted, order), size=size, after=after)
    return Page([ExecutionRow(*row) for row in found.rows], found.after)


def executions_ids(tenant: Tenant, wanted: ExecutionFilter, *, after: Position | None = None, size: int) -> Page[UUID]:
    """Only their ids, oldest first."""
    listing = replace(_listing(tenant, wanted, "created_at"), columns="e.id", joins="")
    found = page_read(door.raw(), tenant.schema_name, listing, size=size, after=after)
    return Page([row[0] for row in found.rows], found.after)


def executions_count(tenant: Tenant, wanted: ExecutionFilter, *, order: str = "-created_at") -> Count:
    """How many there are; see `kernel.keyset.count_read`."""
    return count_read(door.raw(), tenant.schema_name, _listing(tenant, wanted, order))


def _listing(tenant: Tenant, wanted: ExecutionFilter, order: str) -> Listing:
    paths, rest = paths_of(tenant.pk, wanted, order)
    return Listing(
        table="{schema}.executions_execution", columns=_COLUMNS.format(payload="NULL"), joins=_JOIN, paths=paths,
        rest=rest, order=ORDERS[order],
    )  # fmt: skip
