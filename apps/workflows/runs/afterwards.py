"""Workflows that run after others: `after` in their definition. A run of theirs for each run that has ended so.

The run key names the ended run and the follower, so however often somebody begins this, there is one. A run that the
day's quota has no room for is there as skipped, with the reason.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg

from apps.schedules import store as jobs
from apps.schedules.occurring import DAILY_QUOTA
from apps.schedules.running import JobNow, Run, job_shared, new_ticket
from apps.tickets import store as tickets
from apps.usage import counting, deltas
from apps.usage.figures import COUNTED, SKIPPED, SUBMITTED, Tally
from apps.workflows.runs.deciding import End, meets
from kernel.ids import uuid7s
from kernel.limitrules import Flow
from kernel.stepkeys import TRIGGER
from tenants.registry import Tenancy
from tenants.statements import run_in

Conn = psycopg.Connection[Any]

_FOLLOWERS = """
SELECT w.id, one ->> 'workflow', one ->> 'on' FROM {schema}.schedules_job w
JOIN {schema}.schedules_jobversion v ON v.job_id = w.id AND v.version = w.version
CROSS JOIN LATERAL jsonb_array_elements(v.target -> 'after') one
WHERE w.kind = 'workflow' AND w.deleted_at IS NULL AND one ->> 'workflow' = ANY($1)
"""

_MAKE = """
INSERT INTO {schema}.executions_execution
    (id, run_key, job_id, job_version, trigger, priority, actual_at, state, fired_by, created_at, finished_at,
     attempt_count, reason, count)
SELECT m.id, m.run_key, m.job_id, m.job_version, 'workflow', m.priority, $2, m.state, m.fired_by, $2,
       CASE WHEN m.state = 'skipped' THEN $2 END, 0, m.reason, 1
FROM json_to_recordset($1::json)
     AS m(id uuid, run_key text, job_id uuid, job_version int, priority smallint, state text, fired_by text,
          reason text)
ON CONFLICT (run_key) DO NOTHING RETURNING id
"""


class RunEnded(NamedTuple):
    """A run that has ended and is about to be settled."""

    workflow_id: UUID
    run_id: UUID
    state: str


class _New(NamedTuple):
    id: UUID
    run_key: str
    job: JobNow
    fired_by: str
    fits: bool = True  # into the day's quota


def start_followers(conn: Conn, tenancy: Tenancy, ended: Sequence[RunEnded], *, now: datetime) -> int:
    """Makes the runs that follow these; returns how many. In the current transaction, which holds no locks yet."""
    new = _wanted(conn, tenancy, ended)
    if not new:
        return 0
    limited = tenancy.max_runs_per_day is not None
    if limited:
        room = counting.reserve(conn, {tenancy.id: len(new)}, now=now).get(tenancy.id, len(new))
        new = [one._replace(fits=at < room) for at, one in enumerate(new)]
    made = _make(conn, tenancy.schema, new, now)
    begun = [one for one in new if one.id in made and one.fits]
    if limited:  # what was there already is not counted twice
        over = sum(1 for one in new if one.fits) - len(begun)
        counting.take(conn, {tenancy.id: -over}, {}, now=now)
    why = Run(trigger=TRIGGER, fired_by="")
    tickets.add(
        conn,
        [
            new_ticket(tenancy.id, one.job, why, Flow(one.job.id), execution_id=one.id, run_key=one.run_key, now=now)
            for one in begun
        ],
    )
    tally = Tally()
    tally.add(tenancy.id, SUBMITTED, len(begun))
    tally.add(tenancy.id, SKIPPED, len(made) - len(begun))
    tally.add(tenancy.id, COUNTED, len(begun) if limited else 0)
    deltas.add(conn, tally, now=now)
    return len(begun)


def _wanted(conn: Conn, tenancy: Tenancy, ended: Sequence[RunEnded]) -> list[_New]:
    names = sorted({str(one.workflow_id) for one in ended})
    followers = run_in(conn, _FOLLOWERS, tenancy.schema, [names]).fetchall()
    pairs = sorted(
        (one.run_id, follower)
        for follower, followed, on in followers
        for one in ended
        if str(one.workflow_id) == followed and meets(on or "succeeded", End(one.state))
    )
    if not pairs:
        return []
    shared = jobs.jobs_share(conn, tenancy.schema, {follower for _, follower in pairs})
    known = {key: job_shared(job, tenancy.queue) for key, job in shared.items()}
    return [
        _New(key, f"{run_id.hex}>{follower.hex}", known[follower], f"workflow run {run_id}")
        for key, (run_id, follower) in zip(uuid7s(len(pairs)), pairs, strict=True)
        if follower in known
    ]


def _make(conn: Conn, schema: str, new: Sequence[_New], now: datetime) -> set[UUID]:
    rows = [
        {
            "id": one.id, "run_key": one.run_key, "job_id": one.job.id, "job_version": one.job.version,
            "priority": one.job.priority, "state": "ready" if one.fits else "skipped", "fired_by": one.fired_by,
            "reason": "" if one.fits else DAILY_QUOTA,
        }
        for one in new
    ]  # fmt: skip
    return {row[0] for row in run_in(conn, _MAKE, schema, [orjson.dumps(rows).decode(), now])}
