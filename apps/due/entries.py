"""The due-time index in SQL. All functions take a psycopg connection and work in its current transaction."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg
from django.conf import settings

from apps.due import forecast
from kernel.ids import shard_of
from kernel.limitrules import Flow
from kernel.rows import json_rows
from tenants.transactions import Riding

Conn = psycopg.Connection[Any]
CHANNEL = "shardbeat_due"
NOTIFY_WITHIN = timedelta(seconds=2)  # nearer than this the dispatchers are told; else their look at the index finds it
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
FRESH = timedelta(seconds=60)  # what is due for longer is debt: it is served after what is on time


class Entry(NamedTuple):
    """A due entry, in the order of the columns."""

    key: UUID
    shard: int
    kind: str
    tenant_id: int
    due_at: datetime
    nominal_at: datetime
    version: int
    spec: str
    job_id: UUID
    job_version: int
    pool: str
    queue: str
    priority: int
    timeout_s: int
    max_concurrency: int | None
    own_payload: bool
    max_queue_age_s: int | None
    own_max_queue_age_s: int | None
    total_timeout_s: int | None
    runs_done: int | None = None  # occurrences before nominal_at that count for max_runs; None: not counted yet
    flow: UUID | None = None  # of its runs' concurrency key; None: their job
    flow_limit: int | None = None
    flow_key: str | None = None
    followed: bool = False  # something waits for the end of this delayed execution

    @property
    def queue_age_s(self) -> int | None:
        """How long its runs may wait for their first start."""
        return self.max_queue_age_s if self.own_max_queue_age_s is None else self.own_max_queue_age_s


class DueOf(NamedTuple):
    """How many entries of a tenant are due, and since when the oldest is, in seconds."""

    entries: int
    oldest_s: float


class Move(NamedTuple):
    """An entry goes from the instant that was read to the next one."""

    key: UUID
    due_at: datetime
    version: int
    next_due: datetime
    next_nominal: datetime
    runs_done: int | None = None


COLUMNS = ", ".join(Entry._fields)

# What the forecast is told: the entry as it was before, in the statement that changes it (see `forecast`). It is read
# in the statement's snapshot, without a lock: what a statement has changed itself it could not lock.
_WAS = forecast.PLANNED

PUT = f"""
WITH was AS (SELECT {_WAS} FROM due_dueentry WHERE key = %(key)s AND parked = ''),
told AS (INSERT INTO due_forecastchange ({_WAS})
         SELECT m.key, m.shard, {", ".join(f"was.{name}" for name in forecast.Planned._fields[2:])}
         FROM (VALUES (%(key)s::uuid, %(shard)s::smallint)) AS m(key, shard) LEFT JOIN was ON was.key = m.key)
INSERT INTO due_dueentry ({COLUMNS}, parked)
VALUES ({", ".join(f"%({name})s" for name in Entry._fields)}, '')
ON CONFLICT (key) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in Entry._fields[2:])}, parked = ''
"""

ADD = f"""
WITH new AS (SELECT * FROM json_to_recordset(%s::json)
    AS m(key uuid, shard smallint, kind text, tenant_id int, due_at timestamptz, nominal_at timestamptz, version int,
         spec text, job_id uuid, job_version int, pool text, queue text, priority smallint, timeout_s int,
         max_concurrency int, own_payload bool, max_queue_age_s int, own_max_queue_age_s int, total_timeout_s int,
         runs_done int, flow uuid, flow_limit int, flow_key text, followed bool)),
told AS (INSERT INTO due_forecastchange (key, shard) SELECT key, shard FROM new)
INSERT INTO due_dueentry ({COLUMNS}, parked) SELECT {COLUMNS}, '' FROM new
"""

REMOVE = f"""
WITH gone AS (DELETE FROM due_dueentry WHERE key = ANY(%s) RETURNING {_WAS}, parked),
told AS (INSERT INTO due_forecastchange ({_WAS}) SELECT {_WAS} FROM gone WHERE parked = '')
SELECT key FROM gone
"""

PARK = f"""
WITH was AS (SELECT {_WAS} FROM due_dueentry WHERE key = %(key)s AND parked = ''),
told AS (INSERT INTO due_forecastchange ({_WAS}) SELECT {_WAS} FROM was)
UPDATE due_dueentry SET parked = %(reason)s WHERE key = %(key)s
"""

PEEK = """
SELECT clock_timestamp(), s.shard,
       (SELECT e.due_at FROM due_dueentry e
        WHERE e.shard = s.shard AND e.parked = '' AND e.due_at > %(after)s ORDER BY e.due_at LIMIT 1)
FROM unnest(%(shards)s::smallint[]) AS s(shard)
"""

# By the statement's time: with the clock's, which changes while it runs, the index could not be entered by it.
DUE_BY_TENANT = """
SELECT e.tenant_id, count(*), extract(epoch FROM clock_timestamp() - min(e.due_at))::float8,
       bool_or(e.place > %(most)s)
FROM unnest(%(shards)s::smallint[]) AS s(shard) CROSS JOIN LATERAL (
    SELECT tenant_id, due_at, row_number() OVER () AS place FROM (
        SELECT tenant_id, due_at FROM due_dueentry
        WHERE shard = s.shard AND parked = '' AND due_at <= statement_timestamp()
        ORDER BY due_at LIMIT %(most)s + 1) f) e
GROUP BY 1
"""

_DUE_OF_SHARD = f"""
SELECT e.* FROM unnest(%(shards)s::smallint[]) AS s(shard) CROSS JOIN LATERAL (
    SELECT {COLUMNS} FROM due_dueentry
    WHERE shard = s.shard AND parked = '' AND due_at > %(after)s AND due_at <= %(until)s
      AND tenant_id <> ALL(%(not_tenants)s::int[]) AND key <> ALL(%(not_keys)s::uuid[])
      AND (%(only_tenants)s::int[] IS NULL OR tenant_id = ANY(%(only_tenants)s::int[]))
    ORDER BY due_at LIMIT %(per_shard)s {{lock}}
) e
"""
READ_DUE = _DUE_OF_SHARD.format(lock="")
LOCK_DUE = _DUE_OF_SHARD.format(lock="FOR UPDATE SKIP LOCKED")

# The keys once more: how many rows are in JSON nobody knows, and for the hundred that PostgreSQL takes it to be, it
# reads all of a table that is not large.
MOVE = """
UPDATE due_dueentry d SET due_at = m.next_due, nominal_at = m.next_nominal, runs_done = m.runs_done
FROM json_to_recordset(%s::json)
     AS m(key uuid, due_at timestamptz, version int, next_due timestamptz, next_nominal timestamptz, runs_done int)
WHERE d.key = ANY(%s) AND d.key = m.key AND d.due_at = m.due_at AND d.version = m.version AND d.parked = ''
RETURNING d.key
"""

FINISH = """
DELETE FROM due_dueentry d USING json_to_recordset(%s::json) AS m(key uuid, due_at timestamptz, version int)
WHERE d.key = ANY(%s) AND d.key = m.key AND d.due_at = m.due_at AND d.version = m.version
RETURNING d.key
"""

RETARGET = """
UPDATE due_dueentry SET job_version = %(job_version)s, pool = %(pool)s, queue = %(queue)s, priority = %(priority)s,
       timeout_s = %(timeout_s)s, max_concurrency = %(max_concurrency)s, max_queue_age_s = %(max_queue_age_s)s,
       total_timeout_s = %(total_timeout_s)s
WHERE key = ANY(%(keys)s) AND kind = 'schedule'
"""


# Whoever calls it holds the locks of these entries.
SET_FLOWS = """
UPDATE due_dueentry d SET flow = m.flow, flow_limit = m.flow_limit, flow_key = m.flow_key
FROM json_to_recordset(%s::json) AS m(key uuid, flow uuid, flow_limit int, flow_key text)
WHERE d.key = ANY(%s) AND d.key = m.key
"""


def put(conn: Conn, entry: Entry, *, now: datetime) -> None:
    """Makes or replaces the entry of a key; dispatchers are woken when it is due soon."""
    conn.execute(PUT, entry._asdict())
    if entry.due_at <= now + NOTIFY_WITHIN:
        conn.execute("SELECT pg_notify(%s, '')", [CHANNEL])


def add(conn: Conn, new: Sequence[Entry], *, now: datetime) -> None:
    """Adds entries of keys that have none; dispatchers are woken when one is due soon."""
    if not new:
        return
    conn.execute(ADD, [json_rows(new)])
    if min(entry.due_at for entry in new) <= now + NOTIFY_WITHIN:
        conn.execute("SELECT pg_notify(%s, '')", [CHANNEL])


def shard_for(key: UUID) -> int:
    """The shard of a key in this installation."""
    return shard_of(key, settings.SHARDS)


def remove(conn: Conn, keys: Sequence[UUID]) -> list[UUID]:
    """Deletes entries whatever their time; returns the keys that there were."""
    return [row[0] for row in conn.execute(REMOVE, [list(keys)])]


def lock(conn: Conn, keys: Sequence[UUID]) -> list[Entry]:
    """Locks entries in key order, so that firing waits for the caller; those that do not exist are left out."""
    rows = conn.execute(
        f"SELECT {COLUMNS} FROM due_dueentry WHERE key = ANY(%s) ORDER BY key FOR UPDATE",
        [list(keys)],
    )
    return [Entry._make(row) for row in rows]


def peek(conn: Conn, shards: Sequence[int], *, after: datetime = BEGINNING) -> tuple[datetime, dict[int, datetime]]:
    """The database's time, and the earliest due instant later than `after` of each of these shards that has one."""
    rows = conn.execute(PEEK, {"shards": list(shards), "after": after}).fetchall()
    return rows[0][0], {row[1]: row[2] for row in rows if row[2] is not None}


def due_by_tenant(conn: Conn, shards: Sequence[int], *, per_shard: int) -> tuple[dict[int, DueOf], bool]:
    """What is due by tenant, and whether that is all: of each shard no more than `per_shard` and one are counted."""
    rows = conn.execute(DUE_BY_TENANT, {"shards": list(shards), "most": per_shard}).fetchall()
    return {row[0]: DueOf(row[1], row[2]) for row in rows}, not any(row[3] for row in rows)


def lock_due(
    conn: Conn, shards: Sequence[int], *, now: datetime, limit: int, not_tenants: Iterable[int] = (),
    only_tenants: Sequence[int] | None = None, debt: bool = True, not_debt: Sequence[UUID] = (),
    within: Riding | None = None,
) -> list[Entry]:  # fmt: skip
    """Locks up to `limit` due entries: what is on time first, older debt with at most half of the batch.

    Rows that somebody else holds are passed over; they come up again. Without `debt` none of that, and of it never
    these keys. `within` is a transaction that this begins.
    """
    wanted: dict[str, Any] = {"not_tenants": list(not_tenants), "only_tenants": only_tenants}
    with conn.pipeline() if within is not None else nullcontext():
        if within is not None:
            within.begin()
        rows = _ask(conn, LOCK_DUE, shards, after=now - FRESH, until=now, limit=limit, **wanted)
    fresh = [Entry._make(row) for row in rows]
    room = min(limit - len(fresh), max(1, limit // 2))
    if room <= 0 or not debt:
        return fresh
    wanted["not_keys"] = list(not_debt)
    return fresh + _select(conn, LOCK_DUE, shards, after=BEGINNING, until=now - FRESH, limit=room, **wanted)


def delayed(conn: Conn) -> int:
    """How many executions wait for their time, of all tenants."""
    row = conn.execute("SELECT count(*) FROM due_dueentry WHERE kind = 'execution'").fetchone()
    return int(row[0]) if row is not None else 0


def read_due(conn: Conn, shards: Sequence[int], *, after: datetime, until: datetime, limit: int) -> list[Entry]:
    """Entries due in (after, until], without a lock: the look-ahead."""
    return _select(conn, READ_DUE, shards, after=after, until=until, limit=limit, not_tenants=[], only_tenants=None)


def read_after(
    conn: Conn, shard: int, *, due_at: datetime, key: UUID, until: datetime, limit: int
) -> list[Entry]:  # fmt: skip
    """Entries of a shard later than (due_at, key) and up to `until`, in that order, without a lock."""
    rows = conn.execute(
        f"SELECT {COLUMNS} FROM due_dueentry WHERE shard = %s AND parked = '' AND (due_at, key) > (%s, %s)"
        " AND due_at <= %s ORDER BY due_at, key LIMIT %s",
        [shard, due_at, key, until, limit],
    )
    return [Entry._make(row) for row in rows]


def move(conn: Conn, moves: Sequence[Move]) -> psycopg.Cursor[Any]:
    """Moves entries on where they still are what was read. The cursor yields the keys that moved."""
    return conn.execute(MOVE, [json_rows(moves), [one.key for one in moves]])


def finish(conn: Conn, entries: Sequence[Entry]) -> psycopg.Cursor[Any]:
    """Deletes entries that have no further instant, where they still are what was read; yields their keys."""
    return conn.execute(FINISH, [json_rows(entries), [one.key for one in entries]])


def park(conn: Conn, key: UUID, reason: str) -> None:
    """Puts an entry aside that can't be served, with the reason; nobody else waits for it."""
    conn.execute(PARK, {"key": key, "reason": reason[:2000] or "unknown"})


def retarget(
    conn: Conn, keys: Sequence[UUID], *, job_version: int, pool: str, queue: str, priority: int, timeout_s: int,
    max_concurrency: int | None, max_queue_age_s: int | None, total_timeout_s: int | None,
) -> None:  # fmt: skip
    """A job has changed: its schedules' entries fire the new version from now on."""
    conn.execute(
        RETARGET,
        {
            "keys": sorted(keys), "job_version": job_version, "pool": pool, "queue": queue, "priority": priority,
            "timeout_s": timeout_s, "max_concurrency": max_concurrency, "max_queue_age_s": max_queue_age_s,
            "total_timeout_s": total_timeout_s,
        },
    )  # fmt: skip


def keyed(flow: Flow) -> dict[str, Any]:
    """What an entry says of its runs' flow."""
    return {"flow": None if flow.key is None else flow.flow, "flow_limit": flow.limit, "flow_key": flow.key}


def set_flows(conn: Conn, flows: Mapping[UUID, Flow]) -> None:
    """What these entries, which the caller has locked, fire from now on queues behind these flows."""
    if flows:
        rows = [{"key": key, **keyed(flow)} for key, flow in flows.items()]
        conn.execute(SET_FLOWS, [orjson.dumps(rows).decode(), list(flows)])


def next_of(conn: Conn, keys: Sequence[UUID]) -> dict[UUID, tuple[datetime, datetime]]:
    """(nominal, due) of those keys that have an entry."""
    rows = conn.execute("SELECT key, nominal_at, due_at FROM due_dueentry WHERE key = ANY(%s)", [list(keys)])
    return {row[0]: (row[1], row[2]) for row in rows}


def _select(conn: Conn, query: str, shards: Sequence[int], **wanted: Any) -> list[Entry]:
    return [Entry._make(row) for row in _ask(conn, query, shards, **wanted)]


def _ask(
    conn: Conn, query: str, shards: Sequence[int], *, after: datetime, until: datetime, limit: int,
    not_tenants: Sequence[int] | None, only_tenants: Sequence[int] | None, not_keys: Sequence[UUID] = (),
) -> psycopg.Cursor[Any]:  # fmt: skip
    per_shard = -(-limit // max(1, len(shards)))
    return conn.execute(
        query,
        {
            "shards": list(shards), "after": after, "until": until, "per_shard": per_shard,
            "not_tenants": not_tenants, "only_tenants": only_tenants, "not_keys": list(not_keys),
        },
    )  # fmt: skip
