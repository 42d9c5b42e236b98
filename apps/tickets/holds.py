"""What release holds back, as rows: for those who ask why a run waits, and for the loop that takes over."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
import psycopg

from apps.tickets.values import HoldRow, Overdue
from kernel.rows import json_rows

Conn = psycopg.Connection[Any]
HOLDS_MAX = 1_000  # of a pool in one writing: those that have lasted longest
FRESH = timedelta(seconds=15)  # what is written every few seconds and was seen since then lasts
KEPT_H = 24
READ_BACK_H = 1
PRUNED_MAX = 5_000
DELAYS_MAX = 8  # of one execution

_WRITE = """
INSERT INTO tickets_hold AS h (pool, tenant_id, flow, code, since, seen_at, "limit", use)
SELECT %(pool)s, m.* FROM json_to_recordset(%(rows)s::json)
    AS m(tenant_id int, flow uuid, code text, since timestamptz, seen_at timestamptz, "limit" int, use int)
ON CONFLICT (pool, tenant_id, flow, code) DO UPDATE
SET since = excluded.since, seen_at = excluded.seen_at, "limit" = excluded."limit", use = excluded.use
WHERE excluded.seen_at >= h.seen_at
"""

_READ = """
SELECT tenant_id, flow, code, since, seen_at, "limit", use FROM tickets_hold
WHERE pool = %(pool)s AND seen_at > %(now)s - %(hours)s * interval '1 hour' ORDER BY seen_at DESC LIMIT %(limit)s
"""

# In the order in which they began, so that of one flow, or of the whole tenant, the newest stays.
_LASTING = """
SELECT pool, flow, code FROM tickets_hold WHERE tenant_id = %(tenant)s AND seen_at > %(fresh)s ORDER BY since
"""

_PRUNE = """
DELETE FROM tickets_hold WHERE id IN (
    SELECT id FROM tickets_hold WHERE seen_at < %(now)s - %(hours)s * interval '1 hour'
    ORDER BY seen_at LIMIT %(limit)s)
"""

# By when a row was last written, a few seconds ago; in order of length.
_OF_GONE = """
SELECT m.execution_id, h.code, sum(extract(epoch FROM least(h.seen_at, %(now)s) - greatest(h.since, m.since)))::float8
FROM json_to_recordset(%(rows)s::json) AS m(execution_id uuid, tenant_id int, pool text, flow uuid, since timestamptz)
JOIN tickets_hold h ON h.pool = m.pool AND h.tenant_id = m.tenant_id AND (h.flow = m.flow OR h.flow IS NULL)
WHERE h.seen_at > m.since AND h.since < %(now)s GROUP BY 1, 2 HAVING
      sum(extract(epoch FROM least(h.seen_at, %(now)s) - greatest(h.since, m.since))) >= 0.05 ORDER BY 1, 3 DESC
"""


def write(conn: Conn, pool: str, rows: Iterable[HoldRow]) -> None:
    """Makes the rows, or says that they last; the longest when there are too many.

    What somebody saw later stays: who has lost the lease may not know it yet.
    """
    worst = sorted(rows, key=lambda row: row.since)[:HOLDS_MAX]
    if worst:
        conn.execute(_WRITE, {"pool": pool, "rows": json_rows(worst)})


def read(conn: Conn, pool: str, *, now: datetime) -> list[HoldRow]:
    """What was seen within the last hour, for a loop that begins."""
    given = {"pool": pool, "now": now, "hours": READ_BACK_H, "limit": 10 * HOLDS_MAX}
    return [HoldRow._make(row) for row in conn.execute(_READ, given)]


def lasting(conn: Conn, tenant_id: int, *, now: datetime) -> dict[tuple[str, UUID | None], str]:
    """What holds a tenant back, as a code by pool and flow; no flow: all of the tenant's in that pool."""
    rows = conn.execute(_LASTING, {"tenant": tenant_id, "fresh": now - FRESH})
    return {(pool, flow): code for pool, flow, code in rows}


def prune(conn: Conn, *, now: datetime) -> int:
    """Removes some of what ended a day ago; how many."""
    return conn.execute(_PRUNE, {"now": now, "hours": KEPT_H, "limit": PRUNED_MAX}).rowcount


def delays_of(conn: Conn, gone: Sequence[Overdue], *, now: datetime) -> dict[UUID, str]:
    """What held back runs that were never released, as an execution's delays."""
    if not gone:
        return {}
    rows = [
        {"execution_id": one.execution_id, "tenant_id": one.tenant_id, "pool": one.pool, "flow": one.flow,
         "since": one.available_at} for one in gone
    ]  # fmt: skip
    found: dict[UUID, list[dict[str, Any]]] = defaultdict(list)
    for execution_id, code, seconds in conn.execute(_OF_GONE, {"rows": orjson.dumps(rows).decode(), "now": now}):
        found[execution_id].append({"code": code, "s": round(seconds, 3)})
    return {one: orjson.dumps(delays[:DELAYS_MAX]).decode() for one, delays in found.items()}
