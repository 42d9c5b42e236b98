"""Reading what is archived, in the same form as what is not.

Whoever looks for one execution asks the tables first: while a batch's rows are being deleted or restored they are in
both places. Lists leave such rows out themselves. ArchiveOff, ArchiveUnreachable and ArchiveDamaged when files can't
be read.

The catalogue is asked first, and what reads files is loaded only where there is a batch: pyarrow takes 50 MB of a
process, and most processes, a dispatcher among them, never need it.
"""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.archive import catalogue
from apps.deadletters.models import DeadLetter
from apps.executions.filtering import ExecutionFilter
from apps.executions.reading import ExecutionRow
from apps.executions.reading_attempts import AttemptRow
from apps.workflows.dependencies.depending_reading import Parent
from kernel.ids import ID_SLACK, first_id_at
from kernel.keyset import Page, Position
from kernel.transitions import TICKET_STATES
from tenants import door
from tenants.models import Tenant

Conn = psycopg.Connection[Any]
LAST_ID = UUID(int=(1 << 128) - 1)


class Archived(NamedTuple):
    """An execution with all that goes with it, in the forms in which the tables are read."""

    execution: ExecutionRow
    attempts: list[AttemptRow]  # by descending number
    letters: list[DeadLetter]  # not of the database: never save them
    parents: list[Parent]
    archived_at: datetime


class Disposition(NamedTuple):
    """How occurrences of a schedule ended; those of `until_at` are several."""

    id: UUID
    nominal_at: datetime
    until_at: datetime | None
    occurrences: int
    trigger: str
    state: str
    reason: str
    schedule_version: int | None
    created_at: datetime
    attempts: int


def archived_execution(tenant: Tenant, execution_id: UUID, *, conn: Conn | None = None) -> Archived | None:
    """One execution with its attempts, dead letters and what it waited for; None when it is not archived."""
    batches = catalogue.holding(conn or door.raw(), tenant.schema_name, execution_id)
    if not batches:
        return None
    from apps.archive.rows import execution_of

    for batch in batches:
        found = execution_of(batch, execution_id)
        if found is not None:
            return Archived(*found, archived_at=batch.done_at or batch.created_at)
    return None


def archived_range(
    tenant: Tenant, wanted: ExecutionFilter, *, after: Position | None = None, size: int
) -> Page[ExecutionRow]:
    """Archived executions that fit, newest first, without payloads; as `executions_read` in order -created_at.

    A page looks at about LOOK_ROWS rows: where few fit it is shorter, and says where the next one goes on. The filter
    `depends_on` fits nothing here.
    """
    conn = door.raw()
    low, high = _bounds(wanted, after)
    nothing = wanted.depends_on is not None or (wanted.states and set(wanted.states) <= set(TICKET_STATES))
    batches = [] if nothing else catalogue.readable(conn, tenant.schema_name, after=low, before=high)
    if not batches:
        return Page([], None)
    from apps.archive.listing import page_of

    return page_of(conn, tenant.schema_name, batches, wanted, low=low, high=high, size=size)


def archived_dispositions(
    tenant: Tenant, schedule_id: UUID, *, since: datetime, until: datetime, conn: Conn | None = None
) -> list[Disposition]:
    """What is archived of a schedule's occurrences from `since` to `until`, in the order of their instants."""
    batches = catalogue.of_occurrences(conn or door.raw(), tenant.schema_name, since=since, until=until)
    if not batches:
        return []
    from apps.archive.rows import occurrences_of

    found = [
        Disposition(*row) for batch in batches for row in occurrences_of(batch, schedule_id, since=since, until=until)
    ]
    return sorted(found, key=lambda one: (one.nominal_at, one.id))


def _bounds(wanted: ExecutionFilter, after: Position | None) -> tuple[UUID, UUID]:
    """Ids hold when they were made: the lowest one, exclusive, and the highest one, exclusive."""
    low = [one for one in (wanted.created_after, wanted.nominal_after) if one is not None]
    high = [one for one in (wanted.created_before, wanted.started_before, wanted.finished_before) if one is not None]
    highest = first_id_at(min(high) + ID_SLACK) if high else LAST_ID
    return (
        first_id_at(max(low) - ID_SLACK) if low else UUID(int=0),
        highest if after is None else min(highest, after.id),
    )
