"""New definitions in SQL: many rows as one JSON parameter, one statement a kind of row, in the tenant's schema.

A name or an external id that is taken leaves its row out; who lost is told which of the two it was.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from apps.schedules.keyed import value_sql
from kernel.rows import json_rows

Conn = psycopg.Connection[Any]


class NewJob(NamedTuple):
    """A job's row."""

    id: UUID
    name: str
    kind: str
    labels: dict[str, str]
    external_id: str | None


class NewJobVersion(NamedTuple):
    """The first version of a job."""

    job_id: UUID
    target: dict[str, Any]
    payload: Any
    timeout_s: int
    max_queue_age_s: int | None
    total_timeout_s: int | None
    retry: dict[str, Any]
    priority: int
    max_concurrency: int | None
    concurrency_key: dict[str, Any] | None
    rate_limit: dict[str, int] | None
    queue: str


class NewSchedule(NamedTuple):
    """A schedule's row."""

    id: UUID
    name: str
    job_id: UUID
    status: str
    labels: dict[str, str]
    external_id: str | None


class NewScheduleVersion(NamedTuple):
    """The first version of a schedule, with the time in which it decides (see `history`)."""

    schedule_id: UUID
    definition: dict[str, Any]
    spec: str
    payload: Any
    own_payload: bool
    from_at: datetime
    until_at: datetime | None
    ended_by: str

    @property
    def version(self) -> int:
        return 1


class SharedJob(NamedTuple):
    """A job that does not change until this transaction ends, with what of its version runs take."""

    id: UUID
    version: int
    kind: str
    paused: bool
    queue: str
    priority: int
    timeout_s: int
    max_concurrency: int | None
    max_queue_age_s: int | None
    total_timeout_s: int | None
    key: str | None  # its concurrency key and what it has itself of that, as JSON
    key_value: str | None


# In the order of the ids, which is that of the request: of two that want one name the first one gets it.
_JOBS = """
INSERT INTO {schema}.schedules_job
    (id, name, kind, version, revision, paused_reason, labels, external_id, created_at, updated_at)
SELECT m.id, m.name, m.kind, 1, 1, '', m.labels, m.external_id, $2, $2
FROM json_to_recordset($1::json) AS m(id uuid, name text, kind text, labels jsonb, external_id text)
ORDER BY m.id
ON CONFLICT DO NOTHING RETURNING id
"""

_JOB_VERSIONS = """
INSERT INTO {schema}.schedules_jobversion
    (job_id, version, target, payload, timeout_s, max_queue_age_s, total_timeout_s, retry, priority, max_concurrency,
     concurrency_key, rate_limit, queue, created_at)
SELECT m.job_id, 1, m.target, m.payload, m.timeout_s, m.max_queue_age_s, m.total_timeout_s, m.retry, m.priority,
       m.max_concurrency, m.concurrency_key, m.rate_limit, m.queue, $2
FROM json_to_recordset($1::json)
     AS m(job_id uuid, target jsonb, payload jsonb, timeout_s int, max_queue_age_s int, total_timeout_s int,
          retry jsonb, priority smallint, max_concurrency int, concurrency_key jsonb, rate_limit jsonb, queue text)
"""

# With the first version of each.
_SCHEDULES = """
WITH made AS (
    INSERT INTO {schema}.schedules_schedule
        (id, name, job_id, version, revision, status, paused_reason, failures_from, labels, external_id, created_at,
         updated_at)
    SELECT m.id, m.name, m.job_id, 1, 1, m.status, '', 1, m.labels, m.external_id, $3, $3
    FROM json_to_recordset($1::json)
         AS m(id uuid, name text, job_id uuid, status text, labels jsonb, external_id text)
    ORDER BY m.id
    ON CONFLICT DO NOTHING RETURNING id)
INSERT INTO {schema}.schedules_scheduleversion
    (schedule_id, version, definition, spec, payload, own_payload, created_at, from_at, until_at, ended_by)
SELECT m.schedule_id, 1, m.definition, m.spec, m.payload, m.own_payload, $3, m.from_at, m.until_at, m.ended_by
FROM json_to_recordset($2::json)
     AS m(schedule_id uuid, definition jsonb, spec text, payload jsonb, own_payload bool, from_at timestamptz,
          until_at timestamptz, ended_by text)
JOIN made ON made.id = m.schedule_id
RETURNING schedule_id
"""

_TAKEN = """
SELECT m.id, EXISTS (SELECT 1 FROM {schema}.{table} t WHERE t.external_id = m.external_id AND t.deleted_at IS NULL)
FROM unnest($1::uuid[], $2::text[]) AS m(id, external_id)
"""

# After a wait for the lock the number is the new version's, which this statement does not see: then it has no queue.
_SHARE = f"""
WITH j AS (
    SELECT id, version, kind, paused_at IS NOT NULL AS paused, labels FROM {{schema}}.schedules_job
    WHERE id = ANY($1) AND {{alive}} ORDER BY id FOR SHARE)
SELECT j.id, j.version, j.kind, j.paused, v.queue, v.priority, v.timeout_s, v.max_concurrency, v.max_queue_age_s,
       v.total_timeout_s, v.concurrency_key::text,
       {value_sql(rule="v.concurrency_key", labels="j.labels", payload="v.payload")}
FROM j LEFT JOIN {{schema}}.schedules_jobversion v ON v.job_id = j.id AND v.version = j.version
"""
_SHARE_SHOWN = _SHARE.replace("{alive}", "deleted_at IS NULL")
_SHARE_INSIDE = _SHARE.replace("{alive}", "(deleted_at IS NULL OR workflow_id IS NOT NULL)")

# For whoever holds later locks than those of jobs: it waits for none.
_SHARE_FREE = _SHARE_INSIDE.replace("FOR SHARE", "FOR SHARE SKIP LOCKED")
_THERE = """
SELECT id FROM {schema}.schedules_job WHERE id = ANY($1) AND (deleted_at IS NULL OR workflow_id IS NOT NULL)
"""


def jobs_insert(conn: Conn, schema: str, rows: Sequence[NewJob], *, now: datetime) -> set[UUID]:
    """The ids of those whose name and external id were free."""
    _take_turns(conn, f"{schema} jobs", rows)
    return {row[0] for row in _run(conn, _in(_JOBS, schema), [json_rows(rows), now])}


def job_versions_insert(conn: Conn, schema: str, rows: Sequence[NewJobVersion], *, now: datetime) -> None:
    """First versions."""
    _run(conn, _in(_JOB_VERSIONS, schema), [json_rows(rows), now])


def schedules_insert(
    conn: Conn, schema: str, rows: Sequence[NewSchedule], versions: Sequence[NewScheduleVersion], *, now: datetime
) -> set[UUID]:
    """The ids of those whose name and external id were free; they and their versions are made."""
    _take_turns(conn, f"{schema} schedules", rows)
    return {row[0] for row in _run(conn, _in(_SCHEDULES, schema), [json_rows(rows), json_rows(versions), now])}


def taken(conn: Conn, schema: str, table: str, lost: Sequence[NewJob | NewSchedule]) -> dict[UUID, bool]:
    """Of rows that were left out: whether it was their external id that is taken; else it was the name."""
    query = _in(_TAKEN, schema, table)
    return dict(_run(conn, query, [[one.id for one in lost], [one.external_id for one in lost]]).fetchall())


def jobs_share(conn: Conn, schema: str, ids: Collection[UUID], *, inside: bool = False) -> dict[UUID, SharedJob]:
    """Jobs that are there, as they are until this transaction ends; locked in id order.

    With `inside` also those that are written inside of a workflow, which its runs have whatever became of it.
    """
    query, wanted = _in(_SHARE_INSIDE if inside else _SHARE_SHOWN, schema), [sorted(ids)]
    rows = _run(conn, query, wanted).fetchall()
    if any(row[4] is None for row in rows):
        rows = _run(conn, query, wanted).fetchall()  # locked by now, so that nobody has to be waited for
    return {row[0]: SharedJob(*row) for row in rows}


def jobs_share_free(conn: Conn, schema: str, ids: Collection[UUID]) -> tuple[dict[UUID, SharedJob], set[UUID]]:
    """The same of those that nobody changes just now, and the ids of those that are being changed."""
    rows = _run(conn, _in(_SHARE_FREE, schema), [sorted(ids)]).fetchall()
    found = {row[0]: SharedJob(*row) for row in rows if row[4] is not None}
    if len(found) == len(set(ids)):
        return found, set()
    there = {row[0] for row in _run(conn, _in(_THERE, schema), [sorted(ids)])}
    return found, there - found.keys()


def _take_turns(conn: Conn, what: str, rows: Sequence[Any]) -> None:
    """Batches of one tenant that hold the same names in other orders would lock each other's crosswise."""
    if len(rows) > 1:
        _run(conn, b"SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", [what])


def _run(conn: Conn, query: bytes, parameters: list[Any]) -> psycopg.Cursor[Any]:
    cursor: psycopg.Cursor[Any] = psycopg.RawCursor(conn)
    return cursor.execute(query, parameters)


@lru_cache(maxsize=20_000)
def _in(query: str, schema: str, table: str = "") -> bytes:
    return sql.SQL(query).format(schema=sql.Identifier(schema), table=sql.Identifier(table)).as_bytes(None)
