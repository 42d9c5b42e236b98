"""Reading attempts: ended ones are history, the running one is its ticket."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import sql

from apps.executions.reading import ExecutionRow
from kernel.ids import ID_SLACK, attempt_id, first_id_at, ids_beside
from kernel.keyset import (
    COUNT_MOST,
    WHOLE,
    Condition,
    Count,
    Listing,
    Page,
    Part,
    Path,
    Position,
    count_read,
    page_read,
)
from kernel.transitions import ATTEMPT_STATES
from tenants import door
from tenants.models import Tenant

RUNNING_READ = 2_000  # running attempts that a page of attempts looks at; more than any page shows
BAD_STATES = tuple(state for state in ATTEMPT_STATES if state not in ("running", "succeeded"))


@dataclass(frozen=True, slots=True)
class AttemptFilter:
    """What a list of attempts is asked for; None and empty ask for nothing. Times are exclusive."""

    states: Sequence[str] = ()
    execution_id: UUID | None = None
    job_id: UUID | None = None
    schedule_id: UUID | None = None
    worker_id: UUID | None = None
    error_class: str | None = None
    started_after: datetime | None = None
    started_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None


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


_COLUMNS = (
    "e.id, e.execution_id, e.number, e.state, e.worker_id, e.started_at, e.finished_at, e.error::text, e.retry_at"
)
_RUNNING = """
SELECT execution_id, attempt, worker_id, started_at FROM tickets_ticket WHERE tenant_id = %s AND state = 'running'
"""
# In a list of attempts: what their executions have.
_OF_EXECUTION = "(SELECT x.{column} FROM {schema}.executions_execution x WHERE x.id = e.execution_id) = %s"


def attempts_of(tenant: Tenant, execution: ExecutionRow, *, before: int | None, size: int) -> Page[AttemptRow]:
    """The attempts of an execution by descending number. They are found by their ids, which follow from the number.

    Positions of this list hold numbers.
    """
    newest = execution.attempt_count if before is None else min(before - 1, execution.attempt_count)
    ids = [attempt_id(execution.id, number) for number in range(newest, max(0, newest - size), -1)]
    query = sql.SQL(f"SELECT {_COLUMNS} FROM {{schema}}.executions_attempt e WHERE id = ANY(%s)")
    composed = query.format(schema=sql.Identifier(tenant.schema_name))
    found = [AttemptRow(*row) for row in door.raw().execute(composed, [ids])]
    running = door.raw().execute(f"{_RUNNING} AND execution_id = %s", [tenant.pk, execution.id]).fetchone()
    if running is not None and attempt_id(execution.id, running[1]) in ids:
        found.append(_running(*running))
    oldest = newest - size + 1
    return Page(
        sorted(_one_each(found), key=lambda one: -one.number), Position(UUID(int=oldest)) if oldest > 1 else None
    )


def attempts_read(tenant: Tenant, wanted: AttemptFilter, *, after: Position | None, size: int) -> Page[AttemptRow]:
    """All attempts by descending id, the running ones among them."""
    ended = page_read(door.raw(), tenant.schema_name, _listing(wanted), size=size, after=after)
    found = [AttemptRow(*row) for row in ended.rows]
    found += [
        one
        for one in _all_running(tenant, wanted, None if after is None else after.id)
        if (after is None or one.id < after.id) and (ended.after is None or one.id >= ended.after.id)
    ]
    rows = sorted(_one_each(found), key=lambda one: one.id, reverse=True)
    if len(rows) > size:
        return Page(rows[:size], Position(rows[size - 1].id))
    return Page(rows, ended.after)


def attempts_count(tenant: Tenant, wanted: AttemptFilter) -> Count:
    """How many attempts there are; see `kernel.keyset.count_read`."""
    ended = count_read(door.raw(), tenant.schema_name, _listing(wanted))
    running = _all_running(tenant, wanted, None)
    number = ended.number + len(running)
    exact = ended.exact and number <= COUNT_MOST and len(running) < RUNNING_READ
    return Count(min(number, COUNT_MOST), exact)


def _listing(wanted: AttemptFilter) -> Listing:
    """By state where attempts of such states have an index, else by id; nothing starts before its execution is made.

    Those of one execution are near its own id. What an attempt has of a job or schedule is its execution's: that is
    looked up row by row, so of fewer rows.
    """
    rest: list[Condition] = []
    states = [state for state in wanted.states if state != "running"]
    if wanted.error_class is not None and not wanted.states:
        states = list(BAD_STATES)
    path = WHOLE
    if wanted.states and not states:
        path = Path((Part((Condition("false"),)),))
    elif wanted.execution_id is not None:
        beside = Condition("e.id >= %s AND e.id <= %s", ids_beside(wanted.execution_id))
        path = Path((Part((beside,)),), sparse=False)
        rest.append(Condition("e.execution_id = %s", (wanted.execution_id,)))
    elif states and "succeeded" not in states:
        path = Path(
            tuple(Part((Condition("e.state <> 'succeeded'"),), "e.state", state) for state in dict.fromkeys(states))
        )
        states = []
    if states:
        rest.append(Condition("e.state = ANY(%s)", (states,)))
    for column, value in (("job_id", wanted.job_id), ("schedule_id", wanted.schedule_id)):
        if value is not None:
            rest.append(Condition(_OF_EXECUTION.format(column=column, schema="{schema}"), (value,)))
            path = path._replace(sparse=True)
    if wanted.worker_id is not None:
        rest.append(Condition("e.worker_id = %s", (wanted.worker_id,)))
    if wanted.error_class is not None:
        rest.append(Condition("e.error ->> 'class' = %s", (wanted.error_class,)))
    for name in ("started", "finished"):
        for sign, end in ((">", "after"), ("<", "before")):
            instant = getattr(wanted, f"{name}_{end}")
            if instant is not None:
                rest.append(Condition(f"e.{name}_at {sign} %s", (instant,)))
    before = [one for one in (wanted.started_before, wanted.finished_before) if one is not None]
    if before:
        path = path.within(Condition("e.id < %s", (first_id_at(min(before) + ID_SLACK),)))
    return Listing(table="{schema}.executions_attempt", columns=_COLUMNS, rest=tuple(rest), paths=(path,))


def _all_running(tenant: Tenant, wanted: AttemptFilter, before: UUID | None) -> list[AttemptRow]:
    if wanted.states and "running" not in wanted.states:
        return []
    if wanted.error_class is not None or wanted.finished_after is not None or wanted.finished_before is not None:
        return []
    parameters: list[Any] = [tenant.pk]
    text = _RUNNING
    for column, sign, value in (
        ("execution_id", "=", wanted.execution_id),
        ("job_id", "=", wanted.job_id),
        ("schedule_id", "=", wanted.schedule_id),
        ("worker_id", "=", wanted.worker_id),
        ("started_at", ">", wanted.started_after),
        ("started_at", "<", wanted.started_before),
        # an attempt's id shares the milliseconds of its execution's
        ("execution_id", "<=", None if before is None else ids_beside(before)[1]),
    ):
        if value is not None:
            text += f" AND {column} {sign} %s"
            parameters.append(value)
    query = f"{text} ORDER BY execution_id DESC LIMIT {RUNNING_READ}"
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
