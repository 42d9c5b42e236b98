"""Lists of any length by keyset, each page within a bound.

A list is read down an index, in the list's order. Filters that no index serves are applied to the rows that come by;
where they fit few rows, a page ends after it has looked at LOOK_ROWS rows, is shorter than asked for or even empty, and
says where the next one goes on. So no page costs more than LOOK_ROWS rows, however long the history is, and whoever
follows the pages to the end sees every row that fits once.

Where several indexes could serve a list, each is asked how far LOOK_ROWS of its rows go, and the one that goes furthest
is read. One whose rows come in another order serves where all of them are no more than LOOK_ROWS.

Statements are composed of texts that the callers wrote; what users gave is always a parameter. The rows' alias is `e`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

import psycopg
from psycopg import sql

LOOK_ROWS = 20_000  # that a page looks at
COUNT_MOST = 10_000  # a count is exact up to here
COUNT_LOOK_ROWS = 50_000  # that a count looks at
SPARSE = 4  # a row of a narrow index costs a page of the table; so many fewer of them are looked at

FENCE_ROWS = 1_000_000_000  # more than any table has
FENCE_SLACK_ROWS = 10_000  # that may come into a part between the statement that bounds it and the one that reads it

Row = TypeVar("Row")
Conn = psycopg.Connection[Any]


class Condition(NamedTuple):
    """A part of WHERE and its parameters."""

    text: str
    values: tuple[Any, ...] = ()


class Part(NamedTuple):
    """Rows that one index gives: all conditions hold, and `column`, if there is one, has a value.

    The column leads the index. It is asked for as a range in the order of (column, id), which no other index gives: an
    equality would let the planner filter the whole table in the order of ids instead.
    """

    conditions: tuple[Condition, ...] = ()
    column: str = ""
    value: Any = None


class Path(NamedTuple):
    """Parts without a row in common; together they have every row that may fit.

    `ordered`: their indexes give the list's order. `sparse`: their rows lie far apart in the table.
    `short`: there are never many.
    """

    parts: tuple[Part, ...]
    ordered: bool = True
    sparse: bool = True
    short: bool = False

    def within(self, *bounds: Condition) -> "Path":
        """The same, with more conditions that the indexes serve."""
        parts = (part._replace(conditions=(*part.conditions, *bounds)) for part in self.parts)
        return self._replace(parts=tuple(parts))


WHOLE = Path((Part(),), sparse=False)


class Position(NamedTuple):
    """A row's place in a list: its id, and before it the text of what the list is ordered by, if that is another."""

    id: UUID
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """By id, or by `key` and then id. `cast` is the type of the key, which is never null in the list's paths."""

    key: str = ""
    cast: str = ""
    descending: bool = True


@dataclass(frozen=True, slots=True)
class Listing:
    """What to read: `columns` of `table e`, with `joins`, by one of the `paths`, where the `rest` holds, too."""

    table: str
    columns: str
    joins: str = ""
    paths: tuple[Path, ...] = (WHOLE,)
    rest: tuple[Condition, ...] = ()
    order: Order = Order()


class Chosen(NamedTuple):
    """The path to read, the last row to look at (None: to the end), and a number of rows that no part of it exceeds."""

    path: Path
    last: Position | None
    fence: int


class Page(NamedTuple, Generic[Row]):
    """Rows in the list's order; the next page begins after `after`, None on the last. It may be short before that."""

    rows: list[Row]
    after: Position | None


class Count(NamedTuple):
    """At least `number` rows fit; exactly so many when `exact`."""

    number: int
    exact: bool


def page_read(conn: Conn, schema: str, listing: Listing, *, size: int, after: Position | None) -> Page[tuple[Any, ...]]:
    """Up to `size` rows after a position. Two statements, and one more for each further path."""
    chosen = _choose(conn, schema, listing, after, LOOK_ROWS)
    text, values = _matching(listing, chosen, after, size + 1)
    query = (
        f"SELECT e.id, {_key(listing)}::text, {listing.columns} FROM ({text}) e {listing.joins}"
        f" {_ordered(listing.order)} LIMIT {size + 1}"
    )
    found = [(Position(row[0], row[1]), row[2:]) for row in conn.execute(_in(query, schema), values)]
    rows = [row for _, row in found[:size]]
    if len(found) > size:
        return Page(rows, found[size - 1][0])
    return Page(rows, chosen.last)


def count_read(conn: Conn, schema: str, listing: Listing) -> Count:
    """How many rows fit, exactly up to COUNT_MOST where COUNT_LOOK_ROWS rows are all there is to look at."""
    chosen = _choose(conn, schema, listing, None, COUNT_LOOK_ROWS)
    text, values = _matching(listing, chosen, None, COUNT_MOST + 1)
    query = f"SELECT count(*) FROM (SELECT 1 FROM ({text}) e LIMIT {COUNT_MOST + 1}) c"
    (number,) = conn.execute(_in(query, schema), values).fetchone() or (0,)
    return Count(min(number, COUNT_MOST), chosen.last is None and number <= COUNT_MOST)


def _matching(listing: Listing, chosen: Chosen, after: Position | None, limit: int) -> tuple[str, list[Any]]:
    """The first rows of each part that fit, up to `limit` of each.

    The rest is applied outside of a LIMIT, so that the planner reads the part's index and no other for it. That LIMIT
    cuts nothing off, but says how few rows there are: else the planner fetches and sorts them, with workers. The outer
    LIMIT stands alone over that, without an order of its own or a join: only then does it plan for the first rows
    instead of all, and goes down the index. The rows keep the index's order on their way through a filter.
    """
    texts: list[str] = []
    values: list[Any] = []
    rest, more = _where(listing.rest)
    for part in chosen.path.parts:
        where, given = _where((*part.conditions, *_between(listing.order, part, after, chosen.last)))
        inside, outside = (_ordered(listing.order, part), "") if chosen.path.ordered else ("", _ordered(listing.order))
        rows = f"SELECT e.* FROM {listing.table} e {where} {inside} LIMIT {chosen.fence}"
        texts.append(f"(SELECT * FROM ({rows}) e {rest} {outside} LIMIT {limit})")
        values += [*given, *more]
    return " UNION ALL ".join(texts), values


def _choose(conn: Conn, schema: str, listing: Listing, after: Position | None, look: int) -> Chosen:
    """The path that reaches furthest."""
    if not listing.rest and len(listing.paths) == 1 and listing.paths[0].ordered:
        return Chosen(listing.paths[0], None, FENCE_ROWS)
    best: tuple[Path, Position, int] | None = None
    for path in listing.paths:
        if path.short:
            return Chosen(path, None, FENCE_ROWS)
        rows = look // SPARSE if path.sparse else look
        fence = rows + FENCE_SLACK_ROWS
        if not path.ordered:
            if _is_short(conn, schema, listing, path, rows):
                return Chosen(path, None, fence)
            continue
        last = _last(conn, schema, listing, path, after, rows)
        if last is None:
            return Chosen(path, None, fence)
        if best is None or (last.id < best[1].id) == listing.order.descending:
            best = (path, last, fence)
    assert best is not None, "a listing has at least one ordered path"
    return Chosen(*best)


def _is_short(conn: Conn, schema: str, listing: Listing, path: Path, look: int) -> bool:
    """Whether all rows of a path can be looked at."""
    parts: list[str] = []
    values: list[Any] = []
    for part in path.parts:
        where, parameters = _where((*part.conditions, *_between(listing.order, part, None, None)))
        parts.append(f"(SELECT 1 FROM {listing.table} e {where} LIMIT {look + 1})")
        values += parameters
    query = f"SELECT 1 FROM ({' UNION ALL '.join(parts)}) p LIMIT 1 OFFSET {look}"
    return conn.execute(_in(query, schema), values).fetchone() is None


def _last(conn: Conn, schema: str, listing: Listing, path: Path, after: Position | None, look: int) -> Position | None:
    """The row at which `look` rows of the path have been seen; of several parts, as many of each."""
    texts: list[str] = []
    values: list[Any] = []
    for part in path.parts:
        where, parameters = _where((*part.conditions, *_between(listing.order, part, after, None)))
        texts.append(
            f"(SELECT e.* FROM {listing.table} e {where} {_ordered(listing.order, part)}"
            f" LIMIT 1 OFFSET {max(1, look // len(path.parts)) - 1})"
        )
        values += parameters
    union = " UNION ALL ".join(texts)
    query = f"SELECT e.id, {_key(listing)}::text FROM ({union}) e {_ordered(listing.order)} LIMIT 1"
    row = conn.execute(_in(query, schema), values).fetchone()
    return None if row is None else Position(row[0], row[1])


def _between(order: Order, part: Part, after: Position | None, last: Position | None) -> tuple[Condition, ...]:
    """After a position, up to another one; what leads the part's index has its value."""
    beyond, until = ("<", ">=") if order.descending else (">", "<=")
    if not part.column:
        ends = ((beyond, after), (until, last))
        return tuple(_compared(order, sign, position) for sign, position in ends if position is not None)
    found = [Condition(f"{part.column} >= %s AND {part.column} <= %s", (part.value, part.value))]
    for sign, position in ((beyond, after), (until, last)):
        if position is not None:
            found.append(Condition(f"({part.column}, e.id) {sign} (%s, %s)", (part.value, position.id)))
    return tuple(found)


def _compared(order: Order, sign: str, position: Position) -> Condition:
    if not order.key:
        return Condition(f"e.id {sign} %s", (position.id,))
    return Condition(f"({order.key}, e.id) {sign} (%s::{order.cast}, %s)", (position.value, position.id))


def _where(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    if not conditions:
        return "", []
    text = " AND ".join(f"({one.text})" for one in conditions)
    return f"WHERE {text}", [value for one in conditions for value in one.values]


def _key(listing: Listing) -> str:
    return listing.order.key or "NULL::text"


def _ordered(order: Order, part: Part | None = None) -> str:
    keys = [key for key in (part.column if part else "", order.key, "e.id") if key]
    direction = "DESC" if order.descending else "ASC"
    return f"ORDER BY {', '.join(f'{key} {direction}' for key in keys)}"


def _in(query: str, schema: str) -> sql.Composed:
    return sql.SQL(query).format(schema=sql.Identifier(schema))
