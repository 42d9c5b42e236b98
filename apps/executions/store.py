"""Execution history in SQL. Statements name the tenant's schema; each is one round trip for many rows."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from kernel.rows import json_rows
from tenants.statements import in_schema, run_in

Conn = psycopg.Connection[Any]


class Fired(NamedTuple):
    """A new live execution of a schedule, in the order of the statement's arrays."""

    id: UUID
    run_key: str
    job_id: UUID
    job_version: int
    schedule_id: UUID
    schedule_version: int
    trigger: str
    priority: int
    nominal_at: datetime
    actual_at: datetime
    fired_by: str


class Skipped(NamedTuple):
    """Occurrences that do not run, as one row: the first instant, the last, how many and why."""

    id: UUID
    run_key: str
    job_id: UUID
    job_version: int
    schedule_id: UUID
    schedule_version: int
    priority: int
    nominal_at: datetime
    until_at: datetime
    occurrences: int
    reason: str
    fired_by: str


class Submitted(NamedTuple):
    """A new execution that somebody asked for. `payload` is a JSON text, when it has one of its own."""

    id: UUID
    run_key: str
    job_id: UUID
    job_version: int
    schedule_id: UUID | None
    schedule_version: int | None
    trigger: str
    priority: int
    nominal_at: datetime | None
    actual_at: datetime
    state: str
    fired_by: str
    payload: str | None
    labels: dict[str, str] | None
    replay_of: UUID | None


class Begun(NamedTuple):
    """A new execution of a step of a workflow's run. `payload` and `overrides` are JSON texts."""

    id: UUID
    run_key: str
    job_id: UUID
    job_version: int
    priority: int
    nominal_at: datetime | None
    fired_by: str
    payload: str | None
    overrides: str | None
    replay_of: UUID | None
    workflow_run_id: UUID
    step: str


class Replaced(NamedTuple):
    """A waiting execution that a newer one replaces."""

    id: UUID
    attempt: int
    queued_at: datetime | None
    started_at: datetime | None


class Ended(NamedTuple):
    """How an execution ended."""

    id: UUID
    state: str
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime
    attempt_count: int
    result: str | None
    error: str | None
    reason: str
    delays: str | None = None  # JSON: what held its first release back


class Attempted(NamedTuple):
    """An ended attempt."""

    id: UUID
    execution_id: UUID
    number: int
    fence: int
    state: str
    worker_id: UUID | None
    started_at: datetime
    finished_at: datetime
    error: str | None
    retry_at: datetime | None


class Reopened(NamedTuple):
    """An execution that goes on: what its new ticket needs."""

    id: UUID
    run_key: str
    attempts: int
    own_payload: bool
    priority: int
    schedule_id: UUID | None
    schedule_version: int | None
    version_before: int  # of its job, when it died
    reason_before: str


# Many rows travel as one JSON parameter: measured, a third of the time that an array for each column takes.
_FIRED = (
    "id uuid, run_key text, job_id uuid, job_version int, schedule_id uuid, schedule_version int, trigger text,"
    " priority smallint, nominal_at timestamptz, actual_at timestamptz, fired_by text"
)
_SKIPPED = (
    "id uuid, run_key text, job_id uuid, job_version int, schedule_id uuid, schedule_version int, priority smallint,"
    " nominal_at timestamptz, until_at timestamptz, occurrences int,"
    " reason text, fired_by text"
)
_ENDED = (
    "id uuid, state text, queued_at timestamptz, started_at timestamptz, finished_at timestamptz, attempt_count int,"
    " result text, error text, reason text, delays text"
)
_ATTEMPTED = (
    "id uuid, execution_id uuid, number int, fence bigint, state text, worker_id uuid, started_at timestamptz,"
    " finished_at timestamptz, error text, retry_at timestamptz"
)

_FIRE = f"""
INSERT INTO {{schema}}.executions_execution
    (id, run_key, job_id, job_version, schedule_id, schedule_version, trigger, priority, nominal_at, actual_at,
     fired_by, state, created_at, attempt_count, reason, count)
SELECT m.*, 'ready', $2, 0, '', 1 FROM json_to_recordset($1::json) AS m({_FIRED})
ON CONFLICT DO NOTHING RETURNING id
"""

_SKIP = f"""
INSERT INTO {{schema}}.executions_execution
    (id, run_key, job_id, job_version, schedule_id, schedule_version, priority, nominal_at, actual_at, until_at, count,
     reason, trigger, state, created_at, finished_at, attempt_count, fired_by)
SELECT m.id, m.run_key, m.job_id, m.job_version, m.schedule_id, m.schedule_version, m.priority, m.nominal_at,
       m.nominal_at, m.until_at, m.occurrences, m.reason, 'schedule', 'skipped', $2, $2, 0, m.fired_by
FROM json_to_recordset($1::json) AS m({_SKIPPED})
ON CONFLICT DO NOTHING
"""

# The newest row of the schedule grows when it says the same; another row is only made when it does not.
_SKIP_ON = f"""
WITH m AS (SELECT * FROM json_to_recordset($1::json) AS m({_SKIPPED})), grown AS (
    UPDATE {{schema}}.executions_execution e
    SET until_at = m.until_at, count = e.count + m.occurrences, finished_at = $2
    FROM m
    WHERE e.id = (SELECT n.id FROM {{schema}}.executions_execution n
                  WHERE n.schedule_id = m.schedule_id AND n.trigger IN ('schedule', 'catch_up')
                  ORDER BY n.nominal_at DESC LIMIT 1)
      AND e.state = 'skipped' AND e.reason = m.reason AND e.schedule_version = m.schedule_version
      AND e.until_at < m.nominal_at
    RETURNING e.schedule_id)
INSERT INTO {{schema}}.executions_execution
    (id, run_key, job_id, job_version, schedule_id, schedule_version, priority, nominal_at, actual_at, until_at, count,
     reason, trigger, state, created_at, finished_at, attempt_count, fired_by)
SELECT m.id, m.run_key, m.job_id, m.job_version, m.schedule_id, m.schedule_version, m.priority, m.nominal_at,
       m.nominal_at, m.until_at, m.occurrences, m.reason, 'schedule', 'skipped', $2, $2, 0, m.fired_by
FROM m WHERE m.schedule_id NOT IN (SELECT schedule_id FROM grown)
ON CONFLICT DO NOTHING
"""

_SUBMIT = """
INSERT INTO {schema}.executions_execution
    (id, run_key, job_id, job_version, schedule_id, schedule_version, trigger, priority, nominal_at, actual_at,
     state, fired_by, payload, labels, replay_of, created_at, attempt_count, reason, count)
SELECT m.id, m.run_key, m.job_id, m.job_version, m.schedule_id, m.schedule_version, m.trigger, m.priority, m.nominal_at,
       m.actual_at, m.state, m.fired_by, m.payload::jsonb, m.labels, m.replay_of, $2, 0, '', 1
FROM json_to_recordset($1::json)
     AS m(id uuid, run_key text, job_id uuid, job_version int, schedule_id uuid, schedule_version int, trigger text,
          priority smallint, nominal_at timestamptz, actual_at timestamptz, state text, fired_by text, payload text,
          labels jsonb, replay_of uuid)
"""

# Only while the run goes on: whoever stopped it has its row.
_BEGIN_STEPS = """
INSERT INTO {schema}.executions_execution
    (id, run_key, job_id, job_version, priority, nominal_at, fired_by, payload, overrides, replay_of, workflow_run_id,
     step, trigger, actual_at, state, created_at, attempt_count, reason, count)
SELECT m.id, m.run_key, m.job_id, m.job_version, m.priority, m.nominal_at, m.fired_by, m.payload::jsonb,
       m.overrides::jsonb, m.replay_of, m.workflow_run_id, m.step, 'workflow', $2, 'ready', $2, 0, '', 1
FROM json_to_recordset($1::json)
     AS m(id uuid, run_key text, job_id uuid, job_version int, priority smallint, nominal_at timestamptz,
          fired_by text, payload text, overrides text, replay_of uuid, workflow_run_id uuid, step text)
JOIN {schema}.workflows_run r ON r.execution_id = m.workflow_run_id AND r.state = 'running'
ON CONFLICT (run_key) DO NOTHING RETURNING id
"""

# Ends executions and records their attempts in one statement; the two row sets need not be of the same executions.
# Its ids travel once more: JSON is taken to be a hundred rows, and for so many all of a small table would be read.
_SETTLE = f"""
WITH ended AS (
    UPDATE {{schema}}.executions_execution e
    SET state = m.state, queued_at = m.queued_at, started_at = m.started_at, finished_at = m.finished_at,
        attempt_count = m.attempt_count, result = m.result::jsonb, error = m.error::jsonb, reason = m.reason,
        delays = coalesce(e.delays, m.delays::jsonb)
    FROM json_to_recordset($1::json) AS m({_ENDED})
    WHERE e.id = ANY($3::uuid[]) AND e.id = m.id AND e.finished_at IS NULL)
INSERT INTO {{schema}}.executions_attempt
    (id, execution_id, number, fence, state, worker_id, started_at, finished_at, error, retry_at)
SELECT m.id, m.execution_id, m.number, m.fence, m.state, m.worker_id, m.started_at, m.finished_at, m.error::jsonb,
       m.retry_at
FROM json_to_recordset($2::json) AS m({_ATTEMPTED})
ON CONFLICT (id) DO NOTHING
"""

_BEGAN = """
UPDATE {schema}.executions_execution SET state = 'ready' WHERE id = ANY(%s) AND state = 'scheduled' RETURNING id
"""

_REOPEN = """
UPDATE {schema}.executions_execution
SET state = 'ready', finished_at = NULL, result = NULL, error = NULL, reason = ''
WHERE id = %s AND state = 'dead'
RETURNING run_key, job_id, job_version, schedule_id, schedule_version, trigger, priority, nominal_at, attempt_count,
          payload IS NOT NULL
"""

# As reopen, many at once; each with the version of its job as that is now.
_REOPEN_MANY = """
WITH m AS MATERIALIZED (
    SELECT e.id, m.version, e.job_version AS version_before, e.reason AS reason_before
    FROM unnest($1::uuid[], $2::int[]) AS m(id, version)
    JOIN {schema}.executions_execution e ON e.id = m.id ORDER BY e.id FOR UPDATE OF e)
UPDATE {schema}.executions_execution e
SET state = 'ready', finished_at = NULL, result = NULL, error = NULL, reason = '', job_version = m.version
FROM m WHERE e.id = m.id AND e.state = 'dead'
RETURNING e.id, e.run_key, e.attempt_count, e.payload IS NOT NULL, e.priority, e.schedule_id, e.schedule_version,
          m.version_before, m.reason_before
"""

# What was reopened and has not begun is as it was before: dead, since then and of that.
_CLOSE_AGAIN = """
UPDATE {schema}.executions_execution
SET state = 'dead', finished_at = $2, error = $3::jsonb, reason = $4, job_version = $5
WHERE id = $1 AND state = 'ready' AND finished_at IS NULL RETURNING id
"""

_REOPEN_RUN = """
UPDATE {schema}.executions_execution
SET state = 'ready', finished_at = NULL, result = NULL, error = NULL, reason = ''
WHERE id = $1 AND state IN ('succeeded', 'dead', 'cancelled')
RETURNING id, run_key, attempt_count, payload IS NOT NULL, priority, schedule_id, schedule_version,
          job_version, ''
"""

_CANCEL = """
UPDATE {schema}.executions_execution
SET state = 'cancelled', finished_at = %s, reason = %s, attempt_count = %s, queued_at = %s, started_at = %s
WHERE id = %s AND finished_at IS NULL RETURNING id
"""


# A run that has been tried was not skipped: it is cancelled.
_REPLACE = """
UPDATE {schema}.executions_execution e
SET state = CASE WHEN m.attempt > 0 THEN 'cancelled' ELSE 'skipped' END, reason = 'replaced', finished_at = $2,
    attempt_count = m.attempt, queued_at = m.queued_at, started_at = m.started_at
FROM json_to_recordset($1::json) AS m(id uuid, attempt int, queued_at timestamptz, started_at timestamptz)
WHERE e.id = ANY($3::uuid[]) AND e.id = m.id AND e.finished_at IS NULL
"""


def fire(conn: Conn, schema: str, rows: Sequence[Fired], *, now: datetime) -> psycopg.Cursor[tuple[UUID]]:
    """Inserts executions; the cursor yields the ids of those that did not exist yet."""
    return run_in(conn, _FIRE, schema, [json_rows(rows), now])


def skip(conn: Conn, schema: str, rows: Sequence[Skipped], *, now: datetime) -> None:
    """Records occurrences that do not run."""
    run_in(conn, _SKIP, schema, [json_rows(rows), now])


def skip_on(conn: Conn, schema: str, rows: Sequence[Skipped], *, now: datetime) -> None:
    """Records occurrences that do not run, one of each schedule; what goes on stays one row, which grows.

    The caller holds the schedules' due entries.
    """
    run_in(conn, _SKIP_ON, schema, [json_rows(rows), now])


def replace(conn: Conn, schema: str, rows: Sequence[Replaced], *, now: datetime) -> None:
    """Ends executions that waited: a newer run of their schedule takes their place."""
    run_in(conn, _REPLACE, schema, [json_rows(rows), now, [one.id for one in rows]])


def replaced_state(attempt: int) -> str:
    """How an execution ends that is replaced: what was tried was not skipped."""
    return "cancelled" if attempt else "skipped"


def submit(conn: Conn, schema: str, rows: Sequence[Submitted], *, now: datetime) -> None:
    """Inserts executions that somebody asked for."""
    run_in(conn, _SUBMIT, schema, [json_rows(rows), now])


def begin_steps(conn: Conn, schema: str, rows: Sequence[Begun], *, now: datetime) -> set[UUID]:
    """Inserts executions of steps; the ids of those that did not exist yet and whose run goes on."""
    return {row[0] for row in run_in(conn, _BEGIN_STEPS, schema, [json_rows(rows), now])}


def settle(conn: Conn, schema: str, ended: Sequence[Ended], attempts: Sequence[Attempted]) -> None:
    """Ends executions and adds attempts, in one statement."""
    run_in(conn, _SETTLE, schema, [json_rows(ended), json_rows(attempts), [one.id for one in ended]])


def began(conn: Conn, schema: str, ids: Sequence[UUID]) -> psycopg.Cursor[tuple[UUID]]:
    """scheduled -> ready: delayed executions whose time has come. The cursor yields those that went."""
    return conn.execute(in_schema(_BEGAN, schema), [list(ids)])


def reopen(conn: Conn, schema: str, execution_id: UUID) -> tuple[Any, ...] | None:
    """dead -> ready under the same run key; what a new ticket needs, None when it is not dead."""
    return conn.execute(in_schema(_REOPEN, schema), [execution_id]).fetchone()


def reopen_many(conn: Conn, schema: str, versions: Sequence[tuple[UUID, int]]) -> list[Reopened]:
    """dead -> ready under the same run keys, for these (execution, version of its job); those that were dead."""
    parameters = [[key for key, _ in versions], [version for _, version in versions]]
    return [Reopened._make(row) for row in run_in(conn, _REOPEN_MANY, schema, parameters)]


def close_again(
    conn: Conn, schema: str, execution_id: UUID, *, died_at: datetime, error: str, reason: str, job_version: int
) -> bool:  # fmt: skip
    """ready -> dead: takes a reopening back. `error` is JSON text. False when it is not alive.

    The caller has taken its ticket, which had not begun.
    """
    parameters = [execution_id, died_at, error, reason, job_version]
    return run_in(conn, _CLOSE_AGAIN, schema, parameters).fetchone() is not None


def reopen_run(conn: Conn, schema: str, run_id: UUID) -> Reopened | None:
    """The execution of a workflow's run that has ended goes on; None when it has not ended."""
    row = run_in(conn, _REOPEN_RUN, schema, [run_id]).fetchone()
    return None if row is None else Reopened._make(row)


def cancel(
    conn: Conn, schema: str, execution_id: UUID, *, now: datetime, reason: str, attempts: int = 0,
    queued_at: datetime | None = None, started_at: datetime | None = None,
) -> bool:  # fmt: skip
    """Ends an execution that has no running attempt; False when it had ended already."""
    parameters = [now, reason, attempts, queued_at, started_at, execution_id]
    return conn.execute(in_schema(_CANCEL, schema), parameters).fetchone() is not None


def payloads(conn: Conn, schema: str, ids: Sequence[UUID]) -> dict[UUID, str]:
    """JSON texts of the payloads that these executions have of their own."""
    query = in_schema("SELECT id, payload::text FROM {schema}.executions_execution WHERE id = ANY(%s)", schema)
    return {row[0]: row[1] for row in conn.execute(query, [list(ids)])}


def errors_of(conn: Conn, schema: str, attempt_ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    """The errors of these attempts, of those that have one."""
    query = in_schema(
        "SELECT id, error FROM {schema}.executions_attempt WHERE id = ANY(%s) AND error IS NOT NULL", schema
    )
    return dict(conn.execute(query, [list(attempt_ids)]).fetchall())
