"""Items of operations in SQL, many at once. Whoever writes them holds the operation's row."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg

from apps.operations.kinds.base import Done, NewItem, TakenItem
from kernel.rows import json_rows
from tenants.statements import run_in

Conn = psycopg.Connection[Any]

_ADD = """
INSERT INTO {schema}.operations_item (operation_id, n, target_id, nominal_at, state, code, detail)
SELECT $1, $2 + row.n, row.target_id, row.nominal_at, 'pending', '', ''
FROM unnest($3::uuid[], $4::timestamptz[]) WITH ORDINALITY AS row (target_id, nominal_at, n)
"""
_COLUMNS = "n, target_id, nominal_at, state, made_id, before::text"
_NEXT = f"""
SELECT {_COLUMNS} FROM {{schema}}.operations_item
WHERE operation_id = $1 AND n BETWEEN $2 AND $3 AND state = 'pending' ORDER BY n
"""
_TO_UNDO = f"""
SELECT {_COLUMNS} FROM {{schema}}.operations_item
WHERE operation_id = $1 AND n BETWEEN $2 AND $3 AND state IN ('running', 'succeeded') ORDER BY n DESC
"""
_SETTLE = """
UPDATE {schema}.operations_item i
SET state = row.state, code = row.code, detail = row.detail, made_id = coalesce(row.made_id, i.made_id),
    before = coalesce(row.before::jsonb, i.before), done_at = CASE WHEN row.state <> 'running' THEN $3 END
FROM json_to_recordset($2::json)
     AS row (n int, was text, state text, code text, detail text, made_id uuid, before text)
WHERE i.operation_id = $1 AND i.n = row.n AND i.state = row.was
"""
_LOOK = """
SELECT i.n, e.state, e.finished_at IS NOT NULL
FROM {schema}.operations_item i LEFT JOIN {schema}.executions_execution e ON e.id = i.made_id
WHERE i.operation_id = $1 AND i.state = 'running' AND i.n > $2 ORDER BY i.n LIMIT $3
"""
CODE_CHARS, DETAIL_CHARS = 40, 300


class Settled(NamedTuple):
    """What becomes of an item; `was` is the state that it must have."""

    n: int
    was: str
    state: str
    code: str = ""
    detail: str = ""
    made_id: UUID | None = None
    before: str | None = None


class Seen(NamedTuple):
    """A running item and the execution that it started: its state, None when it is not kept any more."""

    n: int
    state: str | None
    ended: bool | None


def add(conn: Conn, schema: str, operation_id: UUID, items: Sequence[NewItem], *, after_n: int) -> None:
    """New items, numbered from `after_n` + 1."""
    values = [operation_id, after_n, [one.target_id for one in items], [one.nominal_at for one in items]]
    run_in(conn, _ADD, schema, values)


def pending(conn: Conn, schema: str, operation_id: UUID, *, first_n: int, limit: int) -> list[TakenItem]:
    """The next items in their order. They are worked off in it, so the first number is known."""
    rows = run_in(conn, _NEXT, schema, [operation_id, first_n, first_n + limit - 1])
    return [_taken(row) for row in rows]


def to_undo(conn: Conn, schema: str, operation_id: UUID, *, last_n: int, limit: int) -> list[TakenItem]:
    """What has an effect among the `limit` numbers that end with `last_n`, the last first."""
    rows = run_in(conn, _TO_UNDO, schema, [operation_id, last_n - limit + 1, last_n])
    return [_taken(row) for row in rows]


def settle(conn: Conn, schema: str, operation_id: UUID, rows: Sequence[Settled], *, now: datetime) -> int:
    """Writes what became of items; how many had the state that they were seen in."""
    if not rows:
        return 0
    short = [one._replace(code=one.code[:CODE_CHARS], detail=one.detail[:DETAIL_CHARS]) for one in rows]
    return run_in(conn, _SETTLE, schema, [operation_id, json_rows(short), now]).rowcount


def look(conn: Conn, schema: str, operation_id: UUID, *, after_n: int, limit: int) -> list[Seen]:
    """Running items after a number, with how their executions are."""
    return [Seen(*row) for row in run_in(conn, _LOOK, schema, [operation_id, after_n, limit])]


def settled(item: TakenItem, done: Done) -> Settled:
    """An item with what became of it."""
    before = None if done.before is None else orjson.dumps(done.before).decode()
    return Settled(item.n, item.state, done.state, done.code, done.detail, done.made_id, before)


def _taken(row: tuple[Any, ...]) -> TakenItem:
    n, target_id, nominal_at, state, made_id, before = row
    return TakenItem(n, target_id, nominal_at, state, made_id, None if before is None else orjson.loads(before))
