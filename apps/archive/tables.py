"""What a batch is made of: the tables, their columns as the database has them, and both as Arrow.

Columns are asked of the database, not of the models: a row is archived whole also while the code is one version behind.
Ids are 16 bytes, instants whole microseconds of UTC, JSON its text.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pyarrow as pa
from psycopg import sql

from kernel.ids import attempt_id

Conn = psycopg.Connection[Any]
UUID_TYPE = pa.binary(16)
TIME_TYPE = pa.timestamp("us", tz="UTC")
# Beside the columns of the table: the root of the workflow's run that an execution belongs to, or its own id.
UNIT = "unit_id"


class Table(NamedTuple):
    """A table of which a batch holds rows. `owner` names the execution that a row goes with; `key` is its id."""

    name: str
    table: str
    owner: str
    key: str = "id"

    @property
    def file(self) -> str:
        return f"{self.name}.parquet"


EXECUTIONS = Table("executions", "executions_execution", "id")
ATTEMPTS = Table("attempts", "executions_attempt", "execution_id")
LETTERS = Table("dead_letters", "deadletters_deadletter", "execution_id")
RUNS = Table("workflow_runs", "workflows_run", "execution_id", "execution_id")
STEPS = Table("workflow_steps", "workflows_steprun", "run_id")
DEPENDENCIES = Table("dependencies", "workflows_dependency", "child_id")
ATTACHED = (ATTEMPTS, LETTERS, RUNS, STEPS, DEPENDENCIES)
TABLES = (EXECUTIONS, *ATTACHED)


class Column(NamedTuple):
    """A column and its type in the database."""

    name: str
    type: str


class Kind(NamedTuple):
    """How values of a type travel: as Arrow, out of the database, and back into it, as `sent` in a JSON object."""

    arrow: pa.DataType
    read: str = "{column}"
    write: str = "{value}"
    sent: str = "text"


_TEXT = Kind(pa.string(), "{column}::text", "{value}::{type}")
_KINDS = {
    "uuid": Kind(UUID_TYPE, "uuid_send({column})", "{value}::uuid"),
    "timestamp with time zone": Kind(
        TIME_TYPE, "(extract(epoch FROM {column}) * 1000000)::bigint",
        "'epoch'::timestamptz + {value} * interval '1 microsecond'", "bigint",
    ),
    "smallint": Kind(pa.int64(), "{column}::bigint", "{value}", "bigint"),
    "integer": Kind(pa.int64(), "{column}::bigint", "{value}", "bigint"),
    "bigint": Kind(pa.int64(), "{column}", "{value}", "bigint"),
    "boolean": Kind(pa.bool_(), "{column}", "{value}", "boolean"),
}  # fmt: skip

_COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, NULL) FROM pg_attribute a
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


def kind_of(column: Column) -> Kind:
    """How values of the column travel; types that are not known here travel as their text."""
    return _KINDS.get(column.type, _TEXT)


def columns_of(conn: Conn, schema: str, table: Table) -> list[Column]:
    """The columns that the table has now."""
    return [Column._make(row) for row in conn.execute(_COLUMNS, [f'"{schema}".{table.table}'])]


def arrow_schema(table: Table, columns: Sequence[Column]) -> pa.Schema:
    """The form of the table in memory; an execution's first column is UNIT."""
    fields = [pa.field(one.name, kind_of(one).arrow) for one in columns]
    return pa.schema([pa.field(UNIT, UUID_TYPE), *fields] if table is EXECUTIONS else fields)


def hot_rows(
    conn: Conn, schema: str, table: Table, columns: Sequence[Column], *, ids: Sequence[bytes], by: str
) -> list[tuple[Any, ...]]:
    """Rows whose column `by` is one of the ids, in no order; values as `kind_of` says."""
    query = sql.SQL("SELECT {columns} FROM {schema}.{table} e WHERE {by} = ANY(%s::uuid[])").format(
        columns=selected(columns), schema=sql.Identifier(schema), table=sql.Identifier(table.table),
        by=sql.Identifier(by),
    )  # fmt: skip
    # One text for all ids: psycopg takes as long for a list of them as the database for the rows.
    return conn.cursor(binary=True).execute(query, [f"{{{','.join(one.hex() for one in ids)}}}"]).fetchall()


def selected(columns: Sequence[Column]) -> sql.Composed:
    """What to select of `e`, so that rows are in the form of the files."""
    return sql.SQL(", ").join(
        sql.SQL(kind_of(one).read).format(column=sql.SQL("e.{}").format(sql.Identifier(one.name))) for one in columns
    )


def executions_of(
    rows: Sequence[tuple[Any, ...]], columns: Sequence[Column], units: Mapping[bytes, bytes]
) -> pa.Table:  # fmt: skip
    """Rows of executions in the order of `units`, which says of each id with which root it goes."""
    at = [one.name for one in columns].index("id")
    by_id = {row[at]: row for row in rows}
    ordered = [(unit, *by_id[key]) for key, unit in units.items() if key in by_id]
    return _arrow(ordered, arrow_schema(EXECUTIONS, columns))


def attached_of(
    conn: Conn, schema: str, table: Table, columns: Sequence[Column], executions: pa.Table
) -> pa.Table:  # fmt: skip
    """The hot rows that go with these executions, in their order. Attempts are found by the ids that follow."""
    ids = executions.column("id").to_pylist()
    rows: list[tuple[Any, ...]] = []
    if table in (RUNS, STEPS) and executions.column("workflow_run_id").null_count == len(ids):
        pass  # most executions are of no workflow
    elif table is ATTEMPTS:
        counts = executions.column("attempt_count").to_pylist()
        numbers = ((UUID(bytes=key), number) for key, count in zip(ids, counts, strict=True) for number in range(count))
        keys = [attempt_id(key, number + 1).bytes for key, number in numbers]
        rows = hot_rows(conn, schema, table, columns, ids=keys, by="id") if keys else []
    else:
        rows = hot_rows(conn, schema, table, columns, ids=ids, by=table.owner)
    names = [one.name for one in columns]
    owner, key, rank = names.index(table.owner), names.index(table.key), {one: n for n, one in enumerate(ids)}
    return _arrow(sorted(rows, key=lambda row: (rank[row[owner]], row[key])), arrow_schema(table, columns))


def _arrow(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    if not rows:
        return schema.empty_table()
    values = zip(*rows, strict=True)
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)], schema=schema
    )
