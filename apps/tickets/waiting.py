"""What waits for release and what is in flight, in SQL. Found by jumps in the index: cost follows what is looked at.

A flow is looked at by its head, the ticket of the best rank; only what is to go is locked.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg.rows import args_row

from apps.tickets.buckets import RATED
from apps.tickets.values import Candidate, Flow, InFlight, Wanted
from kernel.pools import SPANNED, WORKFLOW

Conn = psycopg.Connection[Any]
BEGINNING = UUID(int=0)

# In the index's order, so that no plan reads the table: statistics of a queue are always old, and while they say that
# many rows fit, a look at an empty pool without an order reads all tickets, each time that it is woken.
_ANY_READY = """
SELECT 1 FROM tickets_ticket WHERE pool = %(pool)s AND state = 'ready' AND rank IS NOT NULL
ORDER BY lane, tenant_id, flow LIMIT 1
"""

_LOOK = f"""
SELECT statement_timestamp(), coalesce((
    SELECT available_at FROM tickets_ticket WHERE state = 'ready' AND rank IS NULL ORDER BY available_at LIMIT 1
    ) <= statement_timestamp(), false), ({_ANY_READY}) IS NOT NULL
"""

_TENANTS = """
WITH RECURSIVE waits AS (
    (SELECT lane, tenant_id FROM tickets_ticket
     WHERE pool = %(pool)s AND state = 'ready' AND rank IS NOT NULL ORDER BY lane, tenant_id LIMIT 1)
    UNION ALL
    SELECT n.* FROM waits w CROSS JOIN LATERAL (
        SELECT lane, tenant_id FROM tickets_ticket
        WHERE pool = %(pool)s AND state = 'ready' AND rank IS NOT NULL AND (lane, tenant_id) > (w.lane, w.tenant_id)
        ORDER BY lane, tenant_id LIMIT 1) n
) SELECT lane, tenant_id FROM waits
"""

_HEAD = """
SELECT tenant_id, flow, job_id, flow_limit, job_limit, lane, rank FROM tickets_ticket
WHERE pool = %(pool)s AND lane = %(lane)s AND tenant_id = t.tenant_id AND flow > {after}
  AND state = 'ready' AND rank IS NOT NULL
ORDER BY flow, rank LIMIT 1
"""

_FLOWS = f"""
SELECT f.*, {RATED} FROM unnest(%(tenants)s::int[], %(afters)s::uuid[]) AS t(tenant_id, after) CROSS JOIN LATERAL (
    WITH RECURSIVE flow AS (
        ({_HEAD.format(after="t.after")})
        UNION ALL
        SELECT n.* FROM flow f CROSS JOIN LATERAL ({_HEAD.format(after="f.flow")}) n
    ) SELECT * FROM flow LIMIT %(most)s) f
"""

# Runs of serial schedules that have one queued or running are left out, as are those past their time: at the head of
# a flow they would hide the rest. What holds them back is told by `admission`, as of all others.
_CANDIDATES = """
SELECT c.* FROM unnest(%(tenants)s::int[], %(lanes)s::smallint[], %(flows)s::uuid[], %(limits)s::int[],
                       %(afters)s::timestamptz[], %(untils)s::timestamptz[])
    AS f(tenant_id, lane, flow, most, after, until)
CROSS JOIN LATERAL (
    SELECT execution_id, tenant_id, flow, job_id, queue, rank, actual_at, available_at,
           CASE WHEN guarded THEN schedule_id END, first_queued_at IS NULL
    FROM tickets_ticket t
    WHERE pool = %(pool)s AND lane = f.lane AND tenant_id = f.tenant_id AND flow = f.flow AND state = 'ready'
      AND rank > f.after AND rank <= f.until AND (start_by IS NULL OR start_by >= %(now)s)
      AND NOT (guarded AND EXISTS (
          SELECT 1 FROM tickets_ticket b
          WHERE b.guarded AND b.schedule_id = t.schedule_id AND b.state IN ('queued', 'running')))
    ORDER BY rank LIMIT f.most FOR UPDATE SKIP LOCKED) c
"""

_ENDS = """
SELECT (SELECT rank FROM tickets_ticket WHERE pool = %(pool)s AND lane = f.lane AND tenant_id = f.tenant_id
          AND flow = f.flow AND state = 'ready' AND rank > f.after ORDER BY rank OFFSET %(part)s LIMIT 1)
FROM unnest(%(tenants)s::int[], %(lanes)s::smallint[], %(flows)s::uuid[], %(afters)s::timestamptz[])
    WITH ORDINALITY AS f(tenant_id, lane, flow, after, number) ORDER BY number
"""

_OVERLAPPED = """
SELECT f.lane, f.flow
FROM unnest(%(tenants)s::int[], %(lanes)s::smallint[], %(flows)s::uuid[]) AS f(tenant_id, lane, flow)
CROSS JOIN LATERAL (
    SELECT guarded, schedule_id FROM tickets_ticket t
    WHERE pool = %(pool)s AND lane = f.lane AND tenant_id = f.tenant_id AND flow = f.flow AND state = 'ready'
      AND rank IS NOT NULL ORDER BY rank LIMIT 1) head
WHERE head.guarded AND EXISTS (SELECT 1 FROM tickets_ticket b WHERE b.guarded AND b.schedule_id = head.schedule_id
                               AND b.state IN ('queued', 'running'))
"""

_TAKEN = """
SELECT tenant_id, queue, lane, flow, job_id, count(*), 0
FROM tickets_ticket WHERE pool = %(pool)s AND state = 'queued' GROUP BY 1, 2, 3, 4, 5
UNION ALL
SELECT tenant_id, CASE WHEN remote THEN '' ELSE queue END, lane, flow, job_id, count(*), count(*)
FROM tickets_ticket WHERE pool = %(pool)s AND state = 'running' GROUP BY 1, 2, 3, 4, 5
"""

# By the partial indexes of what has such a limit.
_TAKEN_OF_LIMITS = """
SELECT tenant_id, '', lane, flow, job_id, count(*), 0 FROM tickets_ticket
WHERE state IN ('queued', 'running') AND pool <> %(but)s
  AND (job_id = ANY(%(jobs)s) AND job_limit IS NOT NULL OR flow = ANY(%(flows)s) AND flow_limit IS NOT NULL)
GROUP BY 1, 3, 4, 5
"""

# What waits is locked, so that no other pool lets it go meanwhile; who can't have all of it leaves the schedule alone:
# two that pick at the same moment both do, and neither waits for the other.
_ELSEWHERE = """
WITH others AS MATERIALIZED (
    SELECT execution_id, schedule_id, state FROM tickets_ticket
    WHERE guarded AND schedule_id = ANY(%(schedules)s) AND pool <> %(pool)s),
held AS MATERIALIZED (
    SELECT execution_id FROM tickets_ticket WHERE execution_id = ANY(ARRAY(SELECT execution_id FROM others))
    AND state NOT IN ('queued', 'running') ORDER BY execution_id FOR UPDATE SKIP LOCKED)
SELECT DISTINCT o.schedule_id FROM others o LEFT JOIN held h ON h.execution_id = o.execution_id
WHERE h.execution_id IS NULL
"""

# A state each, so that their partial indexes are seen: for both at once there is none by tenant, and all tickets of
# these tenants would be read. A run of a workflow takes no place of its own; its steps do.
_HELD_BY_TENANTS = f"""
SELECT tenant_id, count(*) FROM (
    SELECT tenant_id FROM tickets_ticket WHERE state = 'queued'
    UNION ALL SELECT tenant_id FROM tickets_ticket WHERE state = 'running' AND pool <> '{WORKFLOW}') held
WHERE tenant_id = ANY(%(tenants)s) GROUP BY 1
"""


class Look(NamedTuple):
    """A first look of a pool's release: the database's time, and whether there is anything to do."""

    now: datetime
    comes: bool  # a ticket's time has come, in any pool
    ready: bool


def look(conn: Conn, pool: str) -> Look:
    """In one statement: it is asked whenever somebody rings."""
    row = conn.execute(_LOOK, {"pool": pool}).fetchone()
    assert row is not None
    return Look(*row)


def any_ready(conn: Conn, pool: str) -> bool:
    """Whether there is anything to release."""
    return conn.execute(_ANY_READY, {"pool": pool}).fetchone() is not None


def any_queued(conn: Conn, pool: str) -> bool:
    """Whether anything of a pool waits at its workers, or for a message that was lost."""
    query = "SELECT 1 FROM tickets_ticket WHERE state = 'queued' AND pool = %s ORDER BY queued_at LIMIT 1"  # as above
    return conn.execute(query, [pool]).fetchone() is not None


def tenants(conn: Conn, pool: str) -> list[tuple[int, int]]:
    """(lane, tenant) of what is ready, in that order."""
    return ask_tenants(conn, pool).fetchall()


def ask_tenants(conn: Conn, pool: str) -> psycopg.Cursor[tuple[int, int]]:
    """The same for a pipeline."""
    return conn.execute(_TENANTS, {"pool": pool})


def taken(conn: Conn, pool: str) -> list[InFlight]:
    """What is queued or running in a pool."""
    return ask_taken(conn, pool).fetchall()


def ask_taken(conn: Conn, pool: str) -> psycopg.Cursor[InFlight]:
    """The same for a pipeline."""
    return conn.cursor(row_factory=args_row(InFlight)).execute(_TAKEN, {"pool": pool})


def taken_of_limits(conn: Conn, some: Sequence[Flow], *, but: str = "") -> list[InFlight]:
    """What is queued or running of these flows and of their jobs, where these have a limit; not in the pool `but`."""
    jobs = list({one.job_id for one in some if one.job_limit is not None})
    keys = [one.flow for one in some if one.flow_limit is not None]
    if not jobs and not keys:
        return []
    return [InFlight._make(row) for row in conn.execute(_TAKEN_OF_LIMITS, {"jobs": jobs, "flows": keys, "but": but})]


def busy_elsewhere(conn: Conn, pool: str, schedules: Collection[UUID]) -> set[UUID]:
    """Of schedules that run one at a time those of which another pool runs one, or may be about to.

    The job of a schedule can be changed for one of another pool while its runs wait.
    """
    if not schedules:
        return set()
    return {row[0] for row in conn.execute(_ELSEWHERE, {"schedules": sorted(schedules), "pool": pool})}


def held_by_tenants(conn: Conn, tenant_ids: Collection[int]) -> dict[int, int]:
    """How much of these tenants is queued or running, over all pools. The caller holds their rows (`lock_tenants`)."""
    ids = sorted(tenant_ids)
    rows = conn.execute(_HELD_BY_TENANTS, {"tenants": ids})
    return {**dict.fromkeys(ids, 0), **{row[0]: row[1] for row in rows}}


def lock_tenants(conn: Conn, tenant_ids: Collection[int]) -> None:
    """Until the transaction ends nobody else admits work of these tenants; for those with a limit of runs, at once."""
    conn.execute("SELECT 1 FROM tenants_tenant WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", [sorted(tenant_ids)])


class PoolTickets:
    """What is ready in a pool, for whoever picks from it."""

    def __init__(self, conn: Conn, pool: str) -> None:
        self._conn, self._pool = conn, pool

    def flows(self, lane: int, after: Mapping[int, UUID], *, most: int) -> list[Flow]:
        """Up to `most` flows of each of these tenants that have something ready in a lane, later than its `after`."""
        parameters = {
            "pool": self._pool, "lane": lane, "tenants": list(after), "afters": list(after.values()), "most": most,
        }  # fmt: skip
        return [Flow._make(row) for row in self._conn.execute(_FLOWS, parameters)]

    def candidates(self, wanted: Sequence[Wanted], *, now: datetime) -> list[Candidate]:
        """Locks up to so many of the best ready tickets of each flow that may go."""
        parameters = {
            **self._of([one.flow for one in wanted]), "now": now, "limits": [one.most for one in wanted],
            "afters": [one.after for one in wanted], "untils": [one.until for one in wanted],
        }  # fmt: skip
        return [Candidate._make(row) for row in self._conn.execute(_CANDIDATES, parameters)]

    def ends(self, some: Sequence[tuple[Flow, datetime]], *, part: int) -> list[datetime | None]:
        """The rank of each flow after which `part` tickets lie behind such a rank; None where there are fewer."""
        given = {**self._of([one for one, _ in some]), "afters": [after for _, after in some], "part": part}
        return [row[0] for row in self._conn.execute(_ENDS, given)]

    def taken(self, some: Sequence[Flow]) -> list[InFlight]:
        """What `taken` of the pool did not count of their limits. The caller holds their tenants' rows."""
        return taken_of_limits(self._conn, some, but=self._pool) if self._pool in SPANNED else []

    def busy_elsewhere(self, schedules: Collection[UUID]) -> set[UUID]:
        """Of these schedules those that may have a run in another pool."""
        return busy_elsewhere(self._conn, self._pool, schedules)

    def overlapped(self, some: Sequence[Flow]) -> list[Flow]:
        """Of these flows those whose head waits for another run of its schedule."""
        found = {(row[0], row[1]) for row in self._conn.execute(_OVERLAPPED, self._of(some))}
        return [one for one in some if (one.lane, one.flow) in found]

    def _of(self, some: Sequence[Flow]) -> dict[str, Any]:
        return {
            "pool": self._pool, "tenants": [one.tenant_id for one in some], "lanes": [one.lane for one in some],
            "flows": [one.flow for one in some],
        }  # fmt: skip
