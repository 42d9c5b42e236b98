"""What an explanation of a run is made of: a few statements, each of which looks at a bounded number of rows.

Nothing here depends on how much waits: what is queued or running is bounded by what workers can take, and what is
ready is looked at up to AHEAD_MAX tickets.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from apps.dispatch.explaining.values import HOLDERS_MAX
from kernel.pools import WORKFLOW
from tenants.models import Tenant

Conn = psycopg.Connection[Any]
AHEAD_MAX = 1_000
LOOKED_BACK = 200  # finished runs of the tenant that the usual length of a run is taken from
LEAST_SEEN = 3  # of the job's among them; else the tenant's figures are taken
RATE_WINDOW = timedelta(minutes=5)


class Run(NamedTuple):
    """An execution with its job, schedule, ticket, worker and due entry, where it has them. JSON members are texts."""

    id: UUID
    job_id: UUID
    schedule_id: UUID | None
    schedule_version: int | None
    trigger: str
    stored_state: str
    reason: str
    priority: int
    nominal_at: datetime | None
    until_at: datetime | None
    occurrences: int
    actual_at: datetime
    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    attempts: int
    error: str | None
    fired_by: str
    delays: str | None
    job_name: str
    job_kind: str
    job_paused_at: datetime | None
    job_paused_reason: str
    max_concurrency: int | None
    concurrency_key: str | None
    max_attempts: int | None
    schedule_name: str
    # Of its ticket.
    state: str | None
    pool: str
    queue: str
    flow: UUID | None
    flow_limit: int | None
    key: str | None
    job_limit: int | None
    lane: int
    guarded: bool
    available_at: datetime | None
    rank: datetime | None
    start_by: datetime | None
    releases: int
    ticket_queued_at: datetime | None
    attempt: int
    ticket_started_at: datetime | None
    deadline: datetime | None
    cancel_requested: bool
    wait_reason: str | None
    remote: bool
    holder: str
    ticket_delays: str | None
    # Of what runs it, its pull queue, and its place in the due-time index.
    worker_id: UUID | None
    worker_host: str | None
    worker_pid: int | None
    worker_expires_at: datetime | None
    queue_paused_at: datetime | None
    queue_paused_reason: str
    due_at: datetime | None
    shard: int | None
    parked: str

    @property
    def word(self) -> str:
        """What its job is for its users."""
        return "workflow" if self.job_kind == WORKFLOW else "job"

    @property
    def is_over(self) -> bool:
        return self.finished_at is not None

    @property
    def now_state(self) -> str:
        """Its ticket's while it has one."""
        return self.state or self.stored_state


_RUN = """
SELECT e.id, e.job_id, e.schedule_id, e.schedule_version, e.trigger, e.state, e.reason, e.priority, e.nominal_at,
       e.until_at, e.count, e.actual_at, e.created_at, coalesce(t.first_queued_at, e.queued_at),
       coalesce(t.first_started_at, e.started_at), e.finished_at, coalesce(t.attempt, e.attempt_count), e.error::text,
       e.fired_by, e.delays::text, coalesce(j.name, ''), coalesce(j.kind, ''), j.paused_at,
       coalesce(j.paused_reason, ''), v.max_concurrency, v.concurrency_key::text, (v.retry ->> 'max_attempts')::int,
       coalesce(s.name, ''), t.state, coalesce(t.pool, d.pool, ''), coalesce(t.queue, d.queue, ''), t.flow,
       t.flow_limit, t.key, t.job_limit, coalesce(t.lane, 0), coalesce(t.guarded, false), t.available_at, t.rank,
       t.start_by, coalesce(t.releases, 0), t.queued_at, coalesce(t.attempt, 0), t.started_at, t.deadline,
       coalesce(t.cancel_requested, false), t.wait_reason, coalesce(t.remote, false), coalesce(t.holder, ''), t.delays,
       t.worker_id, w.host, w.pid, w.expires_at, q.paused_at, coalesce(q.paused_reason, ''), d.due_at, d.shard,
       coalesce(d.parked, '')
FROM {schema}.executions_execution e
LEFT JOIN {schema}.schedules_job j ON j.id = e.job_id
LEFT JOIN {schema}.schedules_jobversion v ON v.job_id = e.job_id AND v.version = e.job_version
LEFT JOIN {schema}.schedules_schedule s ON s.id = e.schedule_id
LEFT JOIN tickets_ticket t ON t.execution_id = e.id
LEFT JOIN tickets_worker w ON w.id = t.worker_id
LEFT JOIN tickets_pullqueue q ON t.pool = 'pull' AND q.tenant_id = t.tenant_id AND q.name = t.queue
LEFT JOIN due_dueentry d ON e.state = 'scheduled' AND d.key = e.id
WHERE e.id = %s
"""

# What comes before it: its flow's in lanes that go first, and in its own lane by rank. What was made in one request has
# one rank: release takes those about in the order in which they were made, which is that of their ids.
_AHEAD = """
SELECT count(*) FROM (
    SELECT 1 FROM tickets_ticket
    WHERE pool = %(pool)s AND tenant_id = %(tenant)s AND flow = %(flow)s AND state = 'ready' AND rank IS NOT NULL
      AND lane = %(lane)s AND rank < %(rank)s
    UNION ALL
    SELECT 1 FROM (
        SELECT execution_id FROM tickets_ticket
        WHERE pool = %(pool)s AND tenant_id = %(tenant)s AND flow = %(flow)s AND state = 'ready' AND rank IS NOT NULL
          AND lane = %(lane)s AND rank = %(rank)s
        LIMIT %(most)s) equal
    WHERE execution_id < %(run)s
    UNION ALL
    SELECT 1 FROM tickets_ticket
    WHERE pool = %(pool)s AND tenant_id = %(tenant)s AND flow = %(flow)s AND state = 'ready' AND rank IS NOT NULL
      AND lane < %(lane)s
    LIMIT %(most)s) ahead
"""

# As two parts, so that each has its partial index.
_HELD_PART = """
SELECT execution_id, state, coalesce(started_at, queued_at) AS since, deadline FROM tickets_ticket
WHERE state = '{state}' AND tenant_id = %(tenant)s AND (%(job)s::uuid IS NULL OR job_id = %(job)s)
  AND (%(flow)s::uuid IS NULL OR flow = %(flow)s) AND (%(pool)s::text IS NULL OR pool = %(pool)s)
  AND (%(schedule)s::uuid IS NULL OR (guarded AND schedule_id = %(schedule)s)) AND execution_id <> %(but)s
"""
_HOLDERS = f"""
SELECT * FROM ({_HELD_PART.format(state="running")} UNION ALL {_HELD_PART.format(state="queued")}) held
ORDER BY since, execution_id LIMIT {HOLDERS_MAX}
"""

# The newest finished runs, whatever they are of: the index is that of lists in this order.
_LENGTHS = """
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY s), percentile_cont(0.95) WITHIN GROUP (ORDER BY s), count(*)
FROM (SELECT extract(epoch FROM finished_at - started_at)::float8 AS s, job_id, state
      FROM (SELECT job_id, state, started_at, finished_at FROM {schema}.executions_execution
            WHERE finished_at IS NOT NULL ORDER BY finished_at DESC, id DESC LIMIT %(looked)s) newest) runs
WHERE job_id = %(job)s AND state = 'succeeded' AND s IS NOT NULL
"""

_RELEASED = """
SELECT coalesce(sum(released), 0) FROM usage_rollup
WHERE tenant_id = %s AND step_s = 60 AND starts_at >= %s
"""

_ATTEMPT = """
SELECT number, state, started_at, finished_at, error::text, retry_at FROM {schema}.executions_attempt WHERE id = %s
"""


class Lengths(NamedTuple):
    """How long runs of a job take: median and 95th percentile in seconds, of how many. None where too few were seen."""

    median_s: float | None
    high_s: float | None
    seen: int


class LastAttempt(NamedTuple):
    """The newest attempt that has ended."""

    number: int
    state: str
    started_at: datetime
    finished_at: datetime
    error: str | None
    retry_at: datetime | None


class HeldRow(NamedTuple):
    """A run that is queued or running, and since when; its deadline when it runs."""

    execution_id: UUID
    state: str
    since: datetime
    deadline: datetime | None


def run_of(conn: Conn, tenant: Tenant, execution_id: UUID) -> Run | None:
    """The execution with all that one row leads to."""
    row = conn.execute(_in(_RUN, tenant), [execution_id]).fetchone()
    return None if row is None else Run._make(row)


def ahead_of(conn: Conn, tenant: Tenant, run: Run) -> int:
    """How many ready tickets of its flow come before it, counted up to AHEAD_MAX + 1."""
    given = {
        "pool": run.pool, "tenant": tenant.pk, "flow": run.flow, "lane": run.lane, "rank": run.rank,
        "run": run.id, "most": AHEAD_MAX + 1,
    }  # fmt: skip
    row = conn.execute(_AHEAD, given).fetchone()
    return int(row[0]) if row else 0


def holders(
    conn: Conn, tenant: Tenant, *, but: UUID, job: UUID | None = None, flow: UUID | None = None,
    pool: str | None = None, schedule: UUID | None = None,
) -> list[HeldRow]:  # fmt: skip
    """Those that have held a place for longest, HOLDERS_MAX at most; of the tenant, narrowed by what is given."""
    given = {"tenant": tenant.pk, "job": job, "flow": flow, "pool": pool, "schedule": schedule, "but": but}
    return [HeldRow._make(row) for row in conn.execute(_HOLDERS, given)]


def lengths_of(conn: Conn, tenant: Tenant, job_id: UUID) -> Lengths:
    """How long runs of a job have taken lately, from first start to end."""
    row = conn.execute(_in(_LENGTHS, tenant), {"job": job_id, "looked": LOOKED_BACK}).fetchone()
    if row is None or row[2] < LEAST_SEEN:
        return Lengths(None, None, int(row[2]) if row else 0)
    return Lengths(float(row[0]), float(row[1]), int(row[2]))


def released_per_s(conn: Conn, tenant: Tenant, *, now: datetime) -> float:
    """Releases of the tenant a second over the last minutes; figures are some seconds old."""
    row = conn.execute(_RELEASED, [tenant.pk, now - RATE_WINDOW]).fetchone()
    return float(row[0]) / RATE_WINDOW.total_seconds() if row else 0.0


def attempt_of(conn: Conn, tenant: Tenant, ids: Sequence[UUID]) -> LastAttempt | None:
    """The first of these attempts that is there."""
    for attempt in ids:
        row = conn.execute(_in(_ATTEMPT, tenant), [attempt]).fetchone()
        if row is not None:
            return LastAttempt._make(row)
    return None


def _in(query: str, tenant: Tenant) -> sql.Composed:
    return sql.SQL(query).format(schema=sql.Identifier(tenant.schema_name))
