"""Reading what is archived, in the same form as what is not.

Whoever looks for one execution asks the tables first: while a batch's rows are being deleted or restored they are in
both places. Lists leave such rows out themselves. ArchiveOff, ArchiveUnreachable and ArchiveDamaged when files can't
be read.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from apps.archive import catalogue
from apps.archive.files import store
from apps.archive.listing import archived_range
from apps.archive.parquet import reading
from apps.archive.rows import attempt_row, execution_row, letter, rows_of, rows_told
from apps.archive.tables import ATTEMPTS, DEPENDENCIES, EXECUTIONS, LETTERS, RUNS, STEPS
from apps.deadletters.models import DeadLetter
from apps.executions.reading import ExecutionRow
from apps.executions.reading_attempts import AttemptRow
from apps.workflows.dependencies.depending_reading import Parent
from tenants import door
from tenants.models import Tenant

__all__ = ["Archived", "Disposition", "archived_dispositions", "archived_execution", "archived_range", "archived_run"]
Conn = psycopg.Connection[Any]
Row = Mapping[str, Any]
_DISPOSED = (
    "id", "schedule_id", "nominal_at", "until_at", "count", "trigger", "state", "reason", "schedule_version",
    "created_at", "attempt_count",
)  # fmt: skip


class Archived(NamedTuple):
    """An execution with all that goes with it, in the forms in which the tables are read."""

    execution: ExecutionRow
    attempts: list[AttemptRow]  # by descending number
    letters: list[DeadLetter]  # not of the database: never save them
    parents: list[Parent]
    batch_id: UUID
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
    conn = conn or door.raw()
    key = execution_id.bytes
    for batch in catalogue.holding(conn, tenant.schema_name, execution_id):
        rows = rows_of(batch, EXECUTIONS, "id", [key])
        if rows:
            return Archived(
                execution=execution_row(rows[0]),
                attempts=sorted(
                    (attempt_row(one) for one in rows_of(batch, ATTEMPTS, "execution_id", [key])),
                    key=lambda one: -one.number,
                ),
                letters=[letter(one) for one in rows_of(batch, LETTERS, "execution_id", [key])],
                parents=[_parent(one) for one in rows_of(batch, DEPENDENCIES, "child_id", [key])],
                batch_id=batch.id,
                archived_at=batch.done_at or batch.created_at,
            )
    return None


def archived_run(tenant: Tenant, run_id: UUID, *, conn: Conn | None = None) -> tuple[Row, list[Row]] | None:
    """A workflow's run and its steps, as their tables' columns; None when it is not archived."""
    conn = conn or door.raw()
    for batch in catalogue.holding(conn, tenant.schema_name, run_id):
        runs = rows_of(batch, RUNS, "execution_id", [run_id.bytes])
        if runs:
            return runs[0], rows_of(batch, STEPS, "run_id", [run_id.bytes])
    return None


def archived_dispositions(
    tenant: Tenant, schedule_id: UUID, *, since: datetime, until: datetime, conn: Conn | None = None
) -> list[Disposition]:
    """What is archived of a schedule's occurrences from `since` to `until`, in the order of their instants."""
    conn = conn or door.raw()
    found: list[Disposition] = []
    for batch in catalogue.of_occurrences(conn, tenant.schema_name, since=since, until=until):
        with reading(store(), f"{batch.path}/{EXECUTIONS.file}") as reader:
            for number in range(reader.group_count):
                found += _dispositions(reader.group(number, _DISPOSED), schedule_id, since, until)
    return sorted(found, key=lambda one: (one.nominal_at, one.id))


def _parent(row: Row) -> Parent:
    return Parent(execution_id=row["parent_id"], on=row["on"], met=row["met"], state=None, since=None)


def _dispositions(table: pa.Table, schedule_id: UUID, since: datetime, until: datetime) -> list[Disposition]:
    of_schedule = pc.is_in(table.column("schedule_id"), pa.array([schedule_id.bytes], table.column("schedule_id").type))
    found = []
    for row in rows_told(table.filter(of_schedule)):
        nominal_at = row["nominal_at"]
        if nominal_at is not None and nominal_at <= until and (row["until_at"] or nominal_at) >= since:
            found.append(
                Disposition(
                    id=row["id"], nominal_at=nominal_at, until_at=row["until_at"], occurrences=row["count"],
                    trigger=row["trigger"], state=row["state"], reason=row["reason"],
                    schedule_version=row["schedule_version"], created_at=row["created_at"],
                    attempts=row["attempt_count"],
                )
            )  # fmt: skip
    return found
