"""Rows of a tenant as texts, for a file: in pieces of their own, or from one snapshot.

A suspended tenant changes little: what its schedules pass over grows by a row each, delayed runs become due, events
tell of it. So what had ended when the reading began is read in short transactions, whatever its size, and the rest in
one snapshot together with what is alive.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from apps.life import tables
from kernel.parcel import Row

Conn = psycopg.Connection[Any]
Read = tuple[list[str], Iterable[Row]]  # the columns of a table, and its rows
CHUNK = 2_000  # rows of one statement
# Numbers of transactions, which mean something in one database only. Far below 0 they keep their order, and all that is
# new where they come to is behind them.
NUMBERED = {"events_event": ("tx",), "webhooks_webhook": ("cursor_tx", "replay_tx")}
BELOW = 2**40
# What still changes of a tenant that stands still, in a form that indexes know.
LATE = {
    "executions_execution": (
        "(t.finished_at IS NULL OR t.finished_at >= {since} OR (t.state = 'skipped' AND t.reason = 'tenant_suspended'))"
    ),
    "events_event": "t.at >= {since}",
}


def settled(conn: Conn, schema: str, table: str, *, since: datetime) -> Read:
    """What had ended before `since`, in the order of its key, so many rows in a statement; all of other tables."""
    if table not in LATE:
        return whole(conn, schema, table)
    where = sql.SQL("NOT ({})").format(sql.SQL(LATE[table]).format(since=sql.Literal(since)))
    if table == "executions_execution":
        where = sql.SQL("t.finished_at < {} AND {}").format(sql.Literal(since), where)
    return _pieces(conn, schema, table, where)


def late(conn: Conn, schema: str, table: str, *, since: datetime) -> Read:
    """The rest of such a table, in the current transaction."""
    names = _names(conn, schema, table)
    where = sql.SQL(LATE[table]).format(since=sql.Literal(since))
    query = sql.SQL("SELECT {} FROM {} t WHERE {}").format(_shown(table, names), sql.Identifier(schema, table), where)
    return names, _streamed(conn, query)


def whole(conn: Conn, schema: str, table: str) -> Read:
    """All of a table, in the order of its key."""
    return _pieces(conn, schema, table, sql.SQL("true"))


def live(conn: Conn, tenant_id: int, table: str, *, history: bool) -> Read:
    """The tenant's rows of a shared table; without history no delayed runs."""
    names = _names(conn, "public", table)
    if table in tables.OWN_IDS:
        names.remove("id")
    only = sql.SQL(" AND kind = 'schedule'") if table == "due_dueentry" and not history else sql.SQL("")
    query = sql.SQL("SELECT {} FROM {} WHERE tenant_id = %s{} ORDER BY {}").format(
        sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(one)) for one in names),
        sql.Identifier("public", table), only, sql.Identifier(tables.LIVE[table]),
    )  # fmt: skip
    return names, conn.execute(query, [tenant_id]).fetchall()


def _names(conn: Conn, schema: str, table: str) -> list[str]:
    return [one.name for one in tables.columns(conn, schema, table)]


def _shown(table: str, names: Sequence[str]) -> sql.Composed:
    """The columns as texts."""
    numbers = NUMBERED.get(table, ())
    return sql.SQL(", ").join(_text(name, numbers) for name in names)


def _text(name: str, numbers: Sequence[str]) -> sql.Composed:
    if name in numbers:
        return sql.SQL("({} - {})::text").format(sql.Identifier("t", name), sql.Literal(BELOW))
    return sql.SQL("{}::text").format(sql.Identifier("t", name))


def _streamed(conn: Conn, query: sql.Composed) -> Iterator[Row]:
    with conn.cursor(name="late") as cursor:
        cursor.itersize = CHUNK
        cursor.execute(query)
        yield from cursor


def _pieces(conn: Conn, schema: str, table: str, where: sql.Composable) -> Read:
    names = _names(conn, schema, table)
    key = tables.key_of(table)
    keys = sql.SQL(", ").join(sql.Identifier("t", name) for name in key)  # else the texts that are shown are in order
    query = sql.SQL("SELECT {shown} FROM {table} t WHERE {where} {after} ORDER BY {keys} LIMIT {limit}")
    parts = {
        "shown": _shown(table, names), "table": sql.Identifier(schema, table), "keys": keys, "where": where,
        "limit": sql.Literal(CHUNK),
    }  # fmt: skip
    places = [names.index(name) for name in key]

    def rows() -> Iterator[Row]:
        after: sql.Composable = sql.SQL("")
        while True:
            found = conn.execute(query.format(**parts, after=after)).fetchall()
            yield from found
            if len(found) < CHUNK:
                return
            last = sql.SQL(", ").join(sql.Literal(found[-1][place]) for place in places)
            after = sql.SQL("AND ({}) > ({})").format(keys, last)

    return names, rows()
