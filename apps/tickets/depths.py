"""How much waits and for how long, over all tenants: for the dispatcher that measures, and for nobody in a request."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

Conn = psycopg.Connection[Any]
HEADS_MAX = 2_000  # flows of a pool and lane that are looked at; the others count as waiting for a slot
COUNTED_MAX = 10_000  # of one flow

# The index of what is ready, alone.
READY = """
SELECT pool, lane, tenant_id, count(*) FROM tickets_ticket WHERE state = 'ready' AND rank IS NOT NULL GROUP BY 1, 2, 3
"""

LATER = """
SELECT pool, lane, tenant_id, count(*) FROM tickets_ticket WHERE state = 'ready' AND rank IS NULL GROUP BY 1, 2, 3
"""

# A state each: there is no index of both.
IN_FLIGHT = """
SELECT pool, tenant_id, job_id, flow, count(*) FILTER (WHERE state = 'queued'),
       count(*) FILTER (WHERE state = 'running' AND NOT remote), count(*) FILTER (WHERE remote),
       array_agg(DISTINCT schedule_id) FILTER (WHERE guarded)
FROM (SELECT * FROM tickets_ticket WHERE state = 'queued'
      UNION ALL SELECT * FROM tickets_ticket WHERE state = 'running') held GROUP BY 1, 2, 3, 4
"""

# From the head of one flow to that of the next, by jumps in the index.
HEADS = """
WITH RECURSIVE head AS (
    (SELECT tenant_id, flow, job_id, flow_limit, job_limit, available_at, start_by,
            CASE WHEN guarded THEN schedule_id END AS serial
     FROM tickets_ticket WHERE pool = %(pool)s AND lane = %(lane)s AND state = 'ready' AND rank IS NOT NULL
     ORDER BY tenant_id, flow, rank LIMIT 1)
    UNION ALL
    SELECT n.* FROM head h CROSS JOIN LATERAL (
        SELECT tenant_id, flow, job_id, flow_limit, job_limit, available_at, start_by,
               CASE WHEN guarded THEN schedule_id END
        FROM tickets_ticket WHERE pool = %(pool)s AND lane = %(lane)s AND state = 'ready' AND rank IS NOT NULL
          AND (tenant_id, flow) > (h.tenant_id, h.flow)
        ORDER BY tenant_id, flow, rank LIMIT 1) n
) SELECT * FROM head LIMIT %(most)s
"""

OF_FLOWS = """
SELECT f.tenant_id, f.flow, (SELECT count(*) FROM (
           SELECT 1 FROM tickets_ticket WHERE pool = %(pool)s AND lane = %(lane)s AND tenant_id = f.tenant_id
            AND flow = f.flow AND state = 'ready' AND rank IS NOT NULL LIMIT %(most)s) one)
FROM unnest(%(tenants)s::int[], %(flows)s::uuid[]) AS f(tenant_id, flow)
"""

LIVE_WORKERS = """
SELECT id, "group", slots, stats->'ended', stats->'slot_s', stats->'queue_per_s' FROM tickets_worker
WHERE expires_at > clock_timestamp() AND NOT draining
"""


class Count(NamedTuple):
    """So many tickets of a tenant in a lane of a pool."""

    pool: str
    lane: int
    tenant_id: int
    tickets: int


class Taken(NamedTuple):
    """Tickets of a flow that are queued, hold a slot or are held outside; schedules whose next runs wait for them."""

    pool: str
    tenant_id: int
    job_id: UUID
    flow: UUID
    queued: int
    running: int
    outside: int
    serial: list[UUID] | None


class Head(NamedTuple):
    """The first of what is ready in a flow."""

    tenant_id: int
    flow: UUID
    job_id: UUID
    flow_limit: int | None
    job_limit: int | None
    available_at: datetime
    start_by: datetime | None
    serial: UUID | None


class LiveWorker(NamedTuple):
    """A worker's group, its slots, and by pool the attempts that it has ended since its start and their seconds.

    `queue_per_s` is how many of each queue end in a second.
    """

    id: UUID
    group: str
    slots: dict[str, int]
    ended: dict[str, int] | None
    slot_s: dict[str, float] | None
    queue_per_s: dict[str, float] | None


def ready(conn: Conn) -> list[Count]:
    """All that is ready. Reads an index entry for each."""
    return [Count._make(row) for row in conn.execute(READY)]


def later(conn: Conn) -> list[Count]:
    """All that waits for its time, such as retries. Reads a row for each."""
    return [Count._make(row) for row in conn.execute(LATER)]


def in_flight(conn: Conn) -> list[Taken]:
    """All that is queued or running: about as much as workers have slots."""
    return [Taken._make(row) for row in conn.execute(IN_FLIGHT)]


def heads(conn: Conn, *, pool: str, lane: int) -> list[Head]:
    """The heads of up to HEADS_MAX flows, in the order of tenants."""
    return [Head._make(row) for row in conn.execute(HEADS, {"pool": pool, "lane": lane, "most": HEADS_MAX})]


def of_flows(conn: Conn, flows: Sequence[tuple[int, UUID]], *, pool: str, lane: int) -> dict[tuple[int, UUID], int]:
    """How many are ready in each of these flows (tenant, flow), up to COUNTED_MAX."""
    parameters = {
        "pool": pool, "lane": lane, "most": COUNTED_MAX,
        "tenants": [tenant for tenant, _ in flows], "flows": [flow for _, flow in flows],
    }  # fmt: skip
    return {(row[0], row[1]): row[2] for row in conn.execute(OF_FLOWS, parameters)}


def live_workers(conn: Conn) -> list[LiveWorker]:
    """The workers of all pools."""
    return [LiveWorker._make(row) for row in conn.execute(LIVE_WORKERS)]
