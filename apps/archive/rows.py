"""Rows of files in the forms in which the tables are read."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from apps.archive.catalogue import Batch
from apps.archive.files import store
from apps.archive.opening import table_reading
from apps.archive.tables import (
    ATTEMPTS,
    DEPENDENCIES,
    EXECUTIONS,
    LETTERS,
    UUID_TYPE,
    Table,
)
from apps.deadletters.models import DeadLetter
from apps.executions.reading import ExecutionRow
from apps.executions.reading_attempts import AttemptRow
from apps.workflows.dependencies.depending_reading import Parent

Row = Mapping[str, Any]


# Of an execution: itself, its attempts by descending number, its dead letters, and what it waited for.
Whole = tuple[ExecutionRow, list[AttemptRow], list[DeadLetter], list[Parent]]
DISPOSED = (
    "id", "nominal_at", "until_at", "count", "trigger", "state", "reason", "schedule_version", "created_at",
    "attempt_count",
)  # fmt: skip


def execution_of(batch: Batch, execution_id: UUID) -> Whole | None:
    """One execution with all that goes with it; None when it is not in the batch."""
    key = [execution_id.bytes]
    rows = rows_of(batch, EXECUTIONS, "id", key)
    if not rows:
        return None
    attempts = [attempt_row(one) for one in rows_of(batch, ATTEMPTS, "execution_id", key)]
    return (
        execution_row(rows[0]),
        sorted(attempts, key=lambda one: -one.number),
        [letter(one) for one in rows_of(batch, LETTERS, "execution_id", key)],
        [_parent(one) for one in rows_of(batch, DEPENDENCIES, "child_id", key)],
    )


def occurrences_of(
    batch: Batch, schedule_id: UUID, *, since: datetime, until: datetime
) -> Iterator[tuple[Any, ...]]:  # fmt: skip
    """DISPOSED, which are the fields of a `reading.Disposition`, of a schedule's occurrences of that time."""
    wanted = pa.array([schedule_id.bytes], UUID_TYPE)
    with table_reading(store(), batch, EXECUTIONS) as reader:
        for number in range(reader.group_count):
            table = reader.group(number, ("schedule_id", *DISPOSED))
            for row in rows_told(table.filter(pc.is_in(table.column("schedule_id"), wanted))):
                first = row["nominal_at"]
                if first is not None and first <= until and (row["until_at"] or first) >= since:
                    yield tuple(row[name] for name in DISPOSED)


def rows_of(batch: Batch, table: Table, column: str, ids: Sequence[bytes]) -> list[Row]:
    """Rows of one table of a batch whose column is one of the ids, as dicts of their columns, in the file's order."""
    if not batch.counts.get(table.name):
        return []
    with table_reading(store(), batch, table) as reader:
        return rows_told(reader.with_ids(column, ids))


def rows_told(table: pa.Table) -> list[Row]:
    """Rows as dicts: ids as UUID, instants in UTC, JSON as its text."""
    ids = [field.name for field in table.schema if pa.types.is_fixed_size_binary(field.type)]
    told: list[dict[str, Any]] = table.to_pylist()
    for row in told:
        for name in ids:
            if row[name] is not None:
                row[name] = UUID(bytes=row[name])
    return list(told)


def execution_row(row: Row) -> ExecutionRow:
    """As `apps.executions.reading` reads it; nothing of it is alive."""
    get = row.get
    return ExecutionRow(
        id=row["id"], run_key=row["run_key"], job_id=row["job_id"], job_version=row["job_version"],
        schedule_id=get("schedule_id"), schedule_version=get("schedule_version"), trigger=row["trigger"],
        state=row["state"], priority=row["priority"], nominal_at=get("nominal_at"), until_at=get("until_at"),
        occurrences=row["count"], actual_at=row["actual_at"], created_at=row["created_at"],
        queued_at=get("queued_at"), started_at=get("started_at"), finished_at=get("finished_at"),
        attempt_count=row["attempt_count"], result=get("result"), error=get("error"), reason=row["reason"],
        replay_of=get("replay_of"), workflow_run_id=get("workflow_run_id"), step=get("step"),
        fired_by=row["fired_by"], labels=get("labels"), available_at=None, start_by=None, wait_reason=None,
        cancel_requested=False, progress=None, payload=get("payload"),
    )  # fmt: skip


def attempt_row(row: Row) -> AttemptRow:
    """As `apps.executions.reading_attempts` reads it."""
    return AttemptRow(
        id=row["id"], execution_id=row["execution_id"], number=row["number"], state=row["state"],
        worker_id=row["worker_id"], started_at=row["started_at"], finished_at=row["finished_at"], error=row["error"],
        retry_at=row["retry_at"],
    )  # fmt: skip


def letter(row: Row) -> DeadLetter:
    """As the ORM reads it."""
    known = {field.attname for field in DeadLetter._meta.concrete_fields}
    values = {name: value for name, value in row.items() if name in known}
    return DeadLetter(**{**values, "error": orjson.loads(row["error"])})


def _parent(row: Row) -> Parent:
    return Parent(execution_id=row["parent_id"], on=row["on"], met=row["met"], state=None, since=None)
