"""Tickets that somebody outside holds, in SQL: leased from a pull queue, or left to a receiver that answers later.

A remote holder has no worker row. Its lease is the ticket's deadline: the earlier of the lease and of the time-out of
the attempt. Heartbeats move it; the fence decides who may. As in `store`, nothing here commits.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.tickets import waiting
from apps.tickets.buckets import RATED
from apps.tickets.store import AGING
from apps.tickets.values import Candidate, Flow, InFlight, Started, Wanted
from kernel.pools import PULL

Conn = psycopg.Connection[Any]
Pair = tuple[UUID, int]  # execution and fence
LEASE_MAX_S = 900  # without a heartbeat
CLAIM_MAX = 100

# When its attempt must be over whatever its holder says: by its time-out, or by the total time-out of the run.
_LIMIT = """least({started} + timeout_s * interval '1 second',
             coalesce(first_started_at, {started}) + total_timeout_s * interval '1 second')"""
_OVER_AT = _LIMIT.format(started="started_at")

_PROMOTE = """
WITH found AS MATERIALIZED (
    SELECT execution_id FROM tickets_ticket
    WHERE state = 'ready' AND rank IS NULL AND available_at <= clock_timestamp()
      AND pool = 'pull' AND tenant_id = %(tenant)s AND queue = %(queue)s
    ORDER BY available_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE tickets_ticket t SET rank = available_at - priority * %(aging)s
WHERE t.execution_id = ANY(ARRAY(SELECT execution_id FROM found))
"""

_HEAD = """
SELECT %(tenant)s::int AS tenant_id, flow, job_id, flow_limit, job_limit, lane, rank FROM tickets_ticket
WHERE pool = 'pull' AND tenant_id = %(tenant)s AND queue = %(queue)s AND lane = %(lane)s AND flow > {after}
  AND state = 'ready' AND rank IS NOT NULL
ORDER BY flow, rank LIMIT 1
"""

_FLOWS = f"""
WITH RECURSIVE flow AS (
    ({_HEAD.format(after="%(after)s")})
    UNION ALL
    SELECT n.* FROM flow f CROSS JOIN LATERAL ({_HEAD.format(after="f.flow")}) n
) SELECT f.*, {RATED} FROM flow f LIMIT %(most)s
"""

_CANDIDATES = """
SELECT c.* FROM unnest(%(lanes)s::smallint[], %(flows)s::uuid[], %(limits)s::int[], %(afters)s::timestamptz[],
                       %(untils)s::timestamptz[]) AS f(lane, flow, most, after, until)
CROSS JOIN LATERAL (
    SELECT execution_id, tenant_id, flow, job_id, queue, rank, actual_at, available_at,
           CASE WHEN guarded THEN schedule_id END, first_queued_at IS NULL
    FROM tickets_ticket t
    WHERE pool = 'pull' AND state = 'ready' AND tenant_id = %(tenant)s AND queue = %(queue)s AND lane = f.lane
      AND flow = f.flow AND rank > f.after AND rank <= f.until AND (start_by IS NULL OR start_by >= clock_timestamp())
      AND NOT (guarded AND EXISTS (
          SELECT 1 FROM tickets_ticket b
          WHERE b.guarded AND b.schedule_id = t.schedule_id AND b.state IN ('queued', 'running')))
    ORDER BY rank LIMIT f.most FOR UPDATE SKIP LOCKED) c
"""

_ENDS = """
SELECT (SELECT rank FROM tickets_ticket WHERE pool = 'pull' AND tenant_id = %(tenant)s AND queue = %(queue)s
          AND lane = f.lane AND flow = f.flow AND state = 'ready' AND rank > f.after
        ORDER BY rank OFFSET %(part)s LIMIT 1)
FROM unnest(%(lanes)s::smallint[], %(flows)s::uuid[], %(afters)s::timestamptz[])
    WITH ORDINALITY AS f(lane, flow, after, number) ORDER BY number
"""

_LEASE = f"""
UPDATE tickets_ticket t SET state = 'running', attempt = attempt + 1, fence = nextval('ticket_fence'), releases = 0,
       remote = true, worker_id = NULL, holder = %(holder)s, lease_s = %(lease_s)s, progress = NULL, start_by = NULL,
       first_queued_at = coalesce(first_queued_at, statement_timestamp()), started_at = statement_timestamp(),
       first_started_at = coalesce(first_started_at, statement_timestamp()),
       deadline = least(statement_timestamp() + %(lease_s)s * interval '1 second',
                        {_LIMIT.format(started="statement_timestamp()")})
WHERE execution_id = ANY(%(ids)s) AND state = 'ready' AND (start_by IS NULL OR start_by >= statement_timestamp())
RETURNING {", ".join("t." + name for name in Started._fields)}, {_OVER_AT}
"""

# A cancel that was asked for gives a moment to stop, as it does for what is held outside already.
_HAND_OVER = f"""
UPDATE tickets_ticket t SET remote = true, worker_id = NULL, holder = m.holder, lease_s = %(lease_s)s,
       deadline = least(clock_timestamp() + CASE WHEN cancel_requested THEN %(grace)s ELSE %(lease_s)s END
                                          * interval '1 second',
                        {_OVER_AT})
FROM unnest(%(ids)s::uuid[], %(fences)s::bigint[], %(holders)s::text[]) AS m(execution_id, fence, holder)
WHERE t.execution_id = m.execution_id AND t.fence = m.fence AND t.state = 'running'
"""

# Not past the time-out, and not further once a cancel was asked for. What a worker of ours still holds stays its own.
_HEARTBEAT = f"""
UPDATE tickets_ticket t
SET lease_s = CASE WHEN remote THEN coalesce(%(lease_s)s, lease_s) ELSE lease_s END,
    deadline = CASE WHEN remote AND NOT cancel_requested
                    THEN least(clock_timestamp() + coalesce(%(lease_s)s, lease_s) * interval '1 second',
                               {_OVER_AT})
                    ELSE deadline END,
    progress = coalesce(%(progress)s::jsonb, progress)
WHERE execution_id = %(id)s AND fence = %(fence)s AND tenant_id = %(tenant)s AND state = 'running'
  AND (NOT remote OR {_OVER_AT} > clock_timestamp())
RETURNING cancel_requested, least(deadline, {_OVER_AT}), {_OVER_AT}
"""

_HELD = f"""
SELECT {", ".join("t." + name for name in Started._fields)}, t.queue,
       t.job_limit IS NOT NULL OR t.flow_limit IS NOT NULL OR t.guarded, t.worker_id,
       t.remote AND {_OVER_AT} <= clock_timestamp()
FROM unnest(%s::uuid[], %s::bigint[]) AS m(execution_id, fence)
JOIN tickets_ticket t ON t.execution_id = m.execution_id AND t.fence = m.fence
WHERE t.state = 'running' AND t.tenant_id = %s
"""


class Leased(NamedTuple):
    """A ticket that has just been leased, and when its attempt times out."""

    started: Started
    over_at: datetime


class Alive(NamedTuple):
    """What a heartbeat is told: `lease_until` moves with heartbeats, `deadline` does not."""

    cancel_requested: bool
    lease_until: datetime
    deadline: datetime


class HeldOutside(NamedTuple):
    """A ticket whose result came over the API. `waited_for`: its end may let another one start."""

    started: Started
    queue: str
    waited_for: bool
    worker_id: UUID | None  # while one of our workers has not yet handed it over
    timed_out: bool  # nobody has noticed it yet


def promote(conn: Conn, *, tenant_id: int, queue: str, limit: int) -> None:
    """Ranks the queue's tickets whose time has come; release does it for all, a little later."""
    conn.execute(
        _PROMOTE,
        {"tenant": tenant_id, "queue": queue, "limit": limit, "aging": AGING},
    )


class QueueTickets:
    """What is ready in a pull queue, for whoever picks from it. Counts what is taken of what has a limit."""

    def __init__(self, conn: Conn, *, tenant_id: int, queue: str) -> None:
        self._conn = conn
        self._of: dict[str, Any] = {"tenant": tenant_id, "queue": queue}

    def flows(self, lane: int, after: Mapping[int, UUID], *, most: int) -> list[Flow]:
        """Up to `most` flows of the queue in which something is ready in a lane, later than its `after`."""
        [start] = after.values()
        rows = self._conn.execute(_FLOWS, self._of | {"lane": lane, "after": start, "most": most})
        return [Flow._make(row) for row in rows]

    def taken(self, some: Sequence[Flow]) -> list[InFlight]:
        """What is queued or running of those that have a limit, in any pool."""
        return waiting.taken_of_limits(self._conn, some)

    def busy_elsewhere(self, schedules: Collection[UUID]) -> set[UUID]:
        """Of these schedules those that may have a run in another pool."""
        return waiting.busy_elsewhere(self._conn, PULL, schedules)

    def candidates(self, wanted: Sequence[Wanted], *, now: datetime) -> list[Candidate]:
        """Locks up to so many of the best ready tickets of each flow that may go."""
        parts = {
            "lanes": [one.flow.lane for one in wanted], "flows": [one.flow.flow for one in wanted],
            "limits": [one.most for one in wanted], "afters": [one.after for one in wanted],
            "untils": [one.until for one in wanted],
        }  # fmt: skip
        return [Candidate._make(row) for row in self._conn.execute(_CANDIDATES, self._of | parts)]

    def ends(self, some: Sequence[tuple[Flow, datetime]], *, part: int) -> list[datetime | None]:
        """The rank of each flow after which `part` tickets lie behind such a rank; None where there are fewer."""
        given = {
            "lanes": [one.lane for one, _ in some], "flows": [one.flow for one, _ in some],
            "afters": [after for _, after in some], "part": part,
        }  # fmt: skip
        return [row[0] for row in self._conn.execute(_ENDS, self._of | given)]


def lease(conn: Conn, ids: Sequence[UUID], *, holder: str, lease_s: int) -> list[Leased]:
    """ready -> running outside, each under a new fence, in one statement."""
    rows = conn.execute(_LEASE, {"ids": list(ids), "holder": holder, "lease_s": lease_s})
    return [Leased(Started._make(row[:-1]), row[-1]) for row in rows]


def hand_over(conn: Conn, rows: Sequence[tuple[UUID, int, str]], *, lease_s: int, grace_s: int) -> None:
    """From our worker to the holder outside, for (execution, fence, holder) that were locked as current."""
    ids, fences, holders = ([row[at] for row in rows] for at in range(3))
    conn.execute(
        _HAND_OVER, {"ids": ids, "fences": fences, "holders": holders, "lease_s": lease_s, "grace": grace_s}
    )  # fmt: skip


def heartbeat(
    conn: Conn, *, execution_id: UUID, fence: int, tenant_id: int, lease_s: int | None, progress: str | None
) -> Alive | None:
    """Extends the lease by `lease_s`, or by what it was asked for last. None when it is over."""
    row = conn.execute(
        _HEARTBEAT,
        {"id": execution_id, "fence": fence, "tenant": tenant_id, "lease_s": lease_s, "progress": progress},
    ).fetchone()
    return None if row is None else Alive._make(row)


def held(conn: Conn, pairs: Sequence[Pair], *, tenant_id: int) -> dict[Pair, HeldOutside]:
    """Of these attempts of a tenant those that still run."""
    rows = conn.execute(_HELD, [[one[0] for one in pairs], [one[1] for one in pairs], tenant_id])
    found = [HeldOutside(Started._make(row[:-4]), *row[-4:]) for row in rows]
    return {(one.started.execution_id, one.started.fence): one for one in found}
