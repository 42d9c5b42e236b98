"""Rows of files as rows of tables."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson
import psycopg
import pyarrow as pa
from django.apps import apps
from django.db.models import Field
from psycopg import sql

from apps.archive.chunks import Chunk
from apps.archive.tables import EXECUTIONS, TIME_TYPE, UUID_TYPE, Column, Table, kind_of
from apps.archive.writing import Columns, columns_now

Conn = psycopg.Connection[Any]


def chunk_insert(conn: Conn, schema: str, chunk: Chunk, columns: Columns) -> None:
    """Inserts all rows of a chunk. A column that its files do not have gets what the model says a new row has."""
    now = columns_now(conn, schema)
    for table in (EXECUTIONS, *chunk.attached):
        rows = chunk.rows(table)
        if rows.num_rows:
            filed = columns[table]
            lacking = [one for one in now[table] if one not in filed]
            _insert(conn, schema, table, rows, filed, lacking)


def _insert(
    conn: Conn, schema: str, table: Table, rows: pa.Table, filed: Sequence[Column], lacking: Sequence[Column]
) -> None:  # fmt: skip
    defaults = {one.name: _default(table.table, one.name) for one in lacking}
    filled = {name: value for name, value in defaults.items() if value is not None}
    values = [
        sql.SQL(kind_of(one).write).format(
            value=sql.SQL("v.{}").format(sql.Identifier(one.name)), type=sql.SQL(one.type)
        )
        for one in filed
    ]
    query = sql.SQL(
        "INSERT INTO {schema}.{table} ({names}) SELECT {values} FROM json_to_recordset(%s::json) AS v ({sent})"
    ).format(
        schema=sql.Identifier(schema), table=sql.Identifier(table.table),
        names=sql.SQL(", ").join(map(sql.Identifier, [*(one.name for one in filed), *filled])),
        values=sql.SQL(", ").join([*values, *map(sql.Literal, filled.values())]),
        sent=sql.SQL(", ").join(sql.SQL("{} " + kind_of(one).sent).format(sql.Identifier(one.name)) for one in filed),
    )  # fmt: skip
    names = [one.name for one in filed]
    told = zip(*(_values(rows.column(name)) for name in names), strict=True)
    conn.execute(query, [orjson.dumps([dict(zip(names, row, strict=True)) for row in told]).decode()])


def _values(column: pa.ChunkedArray) -> list[Any]:
    """As JSON has them."""
    if column.type == UUID_TYPE:
        return [None if one is None else one.hex() for one in column.to_pylist()]
    found: list[Any] = (column.cast(pa.int64()) if column.type == TIME_TYPE else column).to_pylist()
    return found


@cache
def _models() -> dict[str, dict[str, "Field[Any, Any]"]]:
    return {
        model._meta.db_table: {str(one.column): one for one in model._meta.concrete_fields}
        for model in apps.get_models()
    }


def _default(table: str, column: str) -> Any:
    """What the model gives a new row; None: the database's own default."""
    known = _models().get(table, {}).get(column)
    if known is None or known.null:
        return None
    value = known.get_default()
    return orjson.dumps(value).decode() if isinstance(value, dict | list) else value
