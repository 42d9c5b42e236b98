"""Reading executions: history and live state in one statement, so that an answer is of one instant.

The state of an execution that is alive is its ticket's. Filters by such a state start at the tickets, the others at
the history; both go down an index in descending order of ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from psycopg import sql

from kernel.eventtypes import DELIVERY
from kernel.ids import ID_SLACK, attempt_id, first_id_at
from kernel.transitions import TICKET_STATES
from tenants import door
from tenants.models import Tenant

RUNNING_READ = 2_000  # running attempts that a page of attempts looks at; more than any page shows


@dataclass(frozen=True, slots=True)
class ExecutionFilter:
    """What a list of executions is asked for; None and empty ask for nothing."""

    states: Sequence[str] = ()
    job_ids: Sequence[UUID] | None = None  # empty: none fits
    schedule_id: UUID | None = None  # history has an index by job: name the schedule's jobs, too
    triggers: Sequence[str] = ()
    run_key: str | None = None
    replay_of: UUID | None = None
    labels: dict[str, str] = field(default_factory=dict)
    created_after: datetime | None = None
    created_before: datetime | None = None


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
    fired_by: str
    labels: str | None
    available_at: datetime | None
    start_by: datetime | None
    wait_reason: str | None
    cancel_requested: bool
    progress: str | None
    payload: str | None


class AttemptRow(NamedTuple):
    """One attempt; the running one is its ticket."""

    id: UUID
    execution_id: UUID
    number: int
    state: str
    worker_id: UUID | None
    started_at: datetime
    finished_at: datetime | None
    error: str | None
    retry_at: datetime | None


_COLUMNS = """
    e.id, e.run_key, e.job_id, e.job_version, e.schedule_id, e.schedule_version, e.trigger, coalesce(t.state, e.state),
    e.priority, e.nominal_at, e.until_at, e.count, e.actual_at, e.created_at,
    coalesce(t.first_queued_at, e.queued_at), coalesce(t.first_started_at, e.started_at), e.finished_at,
    coalesce(t.attempt, e.attempt_count), e.result::text, e.error::text, e.reason, e.replay_of, e.fired_by,
    e.labels::text, CASE WHEN e.state = 'scheduled' THEN e.actual_at ELSE t.available_at END,
    t.start_by, CASE WHEN t.state = 'ready' AND t.rank IS NULL THEN t.wait_reason END,
    coalesce(t.cancel_requested, false), t.progress::text
"""
_FROM = "FROM {schema}.executions_execution e LEFT JOIN tickets_ticket t ON t.execution_id = e.id"
_FROM_LIVE = "FROM tickets_ticket t JOIN {schema}.executions_execution e ON e.id = t.execution_id"

_ATTEMPTS = """
SELECT id, execution_id, number, state, worker_id, started_at, finished_at, error::text, retry_at
FROM {schema}.executions_attempt
"""
_RUNNING = """
SELECT execution_id, attempt, worker_id, started_at FROM tickets_ticket WHERE tenant_id = %s AND state = 'running'
"""


def execution_read(tenant: Tenant, execution_id: UUID) -> ExecutionRow | None:
    """One execution with its payload."""
    query = sql.SQL(f"SELECT {_COLUMNS}, e.payload::text {_FROM} WHERE e.id = %s")
    row = door.raw().execute(_in(query, tenant), [execution_id]).fetchone()
    return None if row is None else ExecutionRow(*row)


def executions_read(tenant: Tenant, wanted: ExecutionFilter, *, before: UUID | None, limit: int) -> list[ExecutionRow]:
    """Executions by descending id, without payloads."""
    conditions, parameters = _conditions(tenant, wanted)
    live_only = bool(wanted.states) and set(wanted.states) <= set(TICKET_STATES)
    order = "t.execution_id" if live_only else "e.id"
    if before is not None:
        conditions.append(f"{order} < %s")
        parameters.append(before)
    where = " WHERE " + " AND ".join(conditions) if conditions else ""
    query = sql.SQL(
        f"SELECT {_COLUMNS}, NULL {_FROM_LIVE if live_only else _FROM}{where} ORDER BY {order} DESC LIMIT %s"
    )
    return [ExecutionRow(*row) for row in door.raw().execute(_in(query, tenant), [*parameters, limit])]


def attempts_of(tenant: Tenant, execution: ExecutionRow, *, before: int | None, limit: int) -> list[AttemptRow]:
    """The attempts of an execution by descending number. They are found by their ids, which follow from the number."""
    newest = execution.attempt_count if before is None else min(before - 1, execution.attempt_count)
    ids = [attempt_id(execution.id, number) for number in range(newest, max(0, newest - limit), -1)]
    query = sql.SQL(f"{_ATTEMPTS} WHERE id = ANY(%s)")
    found = [AttemptRow(*row) for row in door.raw().execute(_in(query, tenant), [ids])]
    running = door.raw().execute(f"{_RUNNING} AND execution_id = %s", [tenant.pk, execution.id]).fetchone()
    if running is not None and attempt_id(execution.id, running[1]) in ids:
        found.append(_running(*running))
    return sorted(_one_each(found), key=lambda one: -one.number)


def attempts_read(tenant: Tenant, *, states: Sequence[str], before: UUID | None, limit: int) -> list[AttemptRow]:
    """All attempts by descending id, the running ones among them."""
    conditions: list[str] = ["true"]
    parameters: list[Any] = []
    if states:
        conditions.append("state = ANY(%s)")
        parameters.append(list(states))
    if before is not None:
        conditions.append("id < %s")
        parameters.append(before)
    query = sql.SQL(f"{_ATTEMPTS} WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT %s")
    found = [AttemptRow(*row) for row in door.raw().execute(_in(query, tenant), [*parameters, limit])]
    if not states or "running" in states:
        found += [one for one in _all_running(tenant, before) if before is None or one.id < before]
    return sorted(_one_each(found), key=lambda one: one.id, reverse=True)[:limit]


def _conditions(tenant: Tenant, wanted: ExecutionFilter) -> tuple[list[str], list[Any]]:
    found: list[tuple[str, list[Any]]] = []
    live = [state for state in wanted.states if state in TICKET_STATES]
    kept = [state for state in wanted.states if state not in TICKET_STATES]
    if live and kept:
        found.append(("(t.state = ANY(%s) OR e.state = ANY(%s))", [live, kept]))
    elif live:
        found.append(("t.tenant_id = %s AND t.state = ANY(%s)", [tenant.pk, live]))
    elif kept:
        found.append(("e.state = ANY(%s)", [kept]))
    if wanted.job_ids is not None and len(wanted.job_ids) == 1:
        found.append(("e.job_id = %s", list(wanted.job_ids)))
    elif wanted.job_ids is not None:
        found.append(("e.job_id = ANY(%s)", [list(wanted.job_ids)]))
    if wanted.schedule_id is not None:
        found.append(("e.schedule_id = %s", [wanted.schedule_id]))
    if wanted.triggers:
        found.append(("e.trigger = ANY(%s)", [list(wanted.triggers)]))
    elif wanted.run_key is None and wanted.job_ids is None:  # deliveries are listed with their webhook
        found.append(("e.trigger <> %s", [DELIVERY]))
    if wanted.run_key is not None:
        found.append(("e.run_key = %s", [wanted.run_key]))
    if wanted.replay_of is not None:
        found.append(("e.replay_of = %s", [wanted.replay_of]))
    if wanted.labels:
        found.append(("e.labels @> %s::jsonb", [orjson.dumps(wanted.labels).decode()]))
    if wanted.created_after is not None:
        first = first_id_at(wanted.created_after - ID_SLACK)
        found.append(("e.created_at > %s AND e.id > %s", [wanted.created_after, first]))
    if wanted.created_before is not None:
        last = first_id_at(wanted.created_before + ID_SLACK)
        found.append(("e.created_at < %s AND e.id < %s", [wanted.created_before, last]))
    return [one[0] for one in found], [value for one in found for value in one[1]]


def _all_running(tenant: Tenant, before: UUID | None) -> list[AttemptRow]:
    parameters: list[Any] = [tenant.pk]
    condition = ""
    if before is not None:  # an attempt's id shares the milliseconds of its execution's
        condition = " AND execution_id < %s"
        parameters.append(UUID(int=((before.int >> 80) + 1) << 80))
    query = f"{_RUNNING}{condition} ORDER BY execution_id DESC LIMIT {RUNNING_READ}"
    return [_running(*row) for row in door.raw().execute(query, parameters)]


def _running(execution: UUID, number: int, worker_id: UUID | None, started_at: datetime) -> AttemptRow:
    attempt = attempt_id(execution, number)
    return AttemptRow(attempt, execution, number, "running", worker_id, started_at, None, None, None)


def _one_each(found: list[AttemptRow]) -> list[AttemptRow]:
    """Each attempt once: it may have ended between the two reads. The first one given, which is history, counts."""
    seen: dict[UUID, AttemptRow] = {}
    for one in found:
        seen.setdefault(one.id, one)
    return list(seen.values())


def _in(query: sql.SQL, tenant: Tenant) -> sql.Composed:
    return query.format(schema=sql.Identifier(tenant.schema_name))
