"""Statements in a tenant's schema, for the hot paths: made once a schema, then remembered as bytes."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import sql

REMEMBERED = 100_000


def run_in(conn: psycopg.Connection[Any], query: str, schema: str, parameters: Sequence[Any]) -> psycopg.Cursor[Any]:
    """Runs a statement with $1 placeholders: psycopg remembers too few conversions of %s for one a tenant schema."""
    cursor: psycopg.Cursor[Any] = psycopg.RawCursor(conn)
    return cursor.execute(in_schema(query, schema), parameters)


@lru_cache(maxsize=REMEMBERED)
def in_schema(query: str, schema: str) -> bytes:
    """The statement with the schema's name where it says `{schema}`."""
    return sql.SQL(query).format(schema=sql.Identifier(schema)).as_bytes(None)
