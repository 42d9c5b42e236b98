"""Archived rows without their contents: what `erasing_rows` does to tables, done to a piece of a batch."""

from collections.abc import Collection
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from apps.archive.chunks import Chunk
from apps.archive.tables import ATTEMPTS, EXECUTIONS, LETTERS, RUNS, STEPS, UUID_TYPE

CONTENTS = {
    EXECUTIONS: ("payload", "result", "error", "labels", "overrides"),
    RUNS: ("input", "output", "error", "paused_reason"),
    STEPS: ("value", "output", "error", "note"),
}
TEXTS = ("paused_reason", "note")  # are never null
GONE = (ATTEMPTS, LETTERS)


def emptied(chunk: Chunk, ids: Collection[UUID]) -> Chunk:
    """The same rows; those of these executions say only that they were, and their attempts and letters are gone."""
    keys = pa.array([one.bytes for one in ids], UUID_TYPE)
    attached = dict(chunk.attached)
    for table in GONE:
        if table in attached:
            rows = attached[table]
            attached[table] = rows.filter(pc.invert(pc.is_in(rows.column(table.owner), keys)))
    for table, columns in ((RUNS, ("execution_id",)), (STEPS, ("run_id", "execution_id"))):
        if table in attached and attached[table].num_rows:
            rows = attached[table]
            ours = pc.is_in(rows.column(columns[0]), keys)
            for other in columns[1:]:
                ours = pc.or_(ours, pc.is_in(rows.column(other), keys))
            if table is RUNS:  # a run tells the error of the step that failed it
                names = "|".join(str(one) for one in ids)
                tells = pc.fill_null(pc.match_substring_regex(rows.column("error"), names), False)
                rows = _without(rows, ("error",), tells)
            attached[table] = _without(rows, CONTENTS[table], ours)
    executions = chunk.executions
    ours = pc.is_in(executions.column("id"), keys)
    return Chunk(_without(executions, CONTENTS[EXECUTIONS], ours), attached)


def _without(rows: pa.Table, columns: Collection[str], ours: pa.ChunkedArray) -> pa.Table:
    for name in columns:
        if name not in rows.column_names:  # files of an earlier version
            continue
        at = rows.column_names.index(name)
        field = rows.schema.field(at)
        empty = pa.scalar("" if name in TEXTS else None, field.type)
        rows = rows.set_column(at, field, pc.if_else(ours, empty, rows.column(at)))
    return rows
