"""Making history of any size and shape, and looking at all of it."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from apps.archive import catalogue
from apps.archive.archiving import Run, archive_run
from apps.archive.files import Store
from apps.archive.tables import TABLES
from kernel.ids import attempt_id

Conn = psycopg.Connection[Any]
NOW = datetime(2026, 6, 10, 15, tzinfo=UTC)
BEFORE = datetime(2026, 6, 1, tzinfo=UTC)
OLD_DAY = datetime(2026, 5, 20, 3, tzinfo=UTC)

# All columns have a value in some row: JSON with odd numbers and texts, nulls, and rows that stand for several.
_MANY = """
WITH made AS (
    SELECT n, %(at)s::timestamptz + n * %(step)s AS at,
           encode(substring(int8send((extract(epoch FROM %(at)s::timestamptz + n * %(step)s) * 1000)::bigint) FROM 3)
                  || substring(uuid_send(gen_random_uuid()) FROM 7), 'hex')::uuid AS id
    FROM generate_series(1, %(count)s) n)
INSERT INTO {schema}.executions_execution
    (id, run_key, job_id, job_version, schedule_id, schedule_version, trigger, state, priority, nominal_at, actual_at,
     created_at, queued_at, started_at, finished_at, attempt_count, payload, result, error, reason, until_at, count,
     replay_of, fired_by, labels, delays)
SELECT id, 'key ' || id, %(job)s, 1, CASE WHEN n %% 2 = 0 THEN %(schedule)s::uuid END, CASE WHEN n %% 2 = 0 THEN 3 END,
       CASE WHEN n %% 2 = 0 THEN 'schedule' ELSE 'api' END, CASE WHEN n %% 5 = 0 THEN 'dead' ELSE 'succeeded' END,
       n %% 10, CASE WHEN n %% 2 = 0 THEN at END, at, at, at + interval '1 ms', at + interval '2 ms 7 us',
       at + interval '1 s', 1 + n %% 2, CASE WHEN n %% 3 = 0 THEN
           '{{"n": 123456789012345678901234567890, "f": 1.10, "text": "ä \\" \\u2028 \\\\"}}'::jsonb END,
       CASE WHEN n %% 5 <> 0 THEN '[1, null, "x"]'::jsonb END,
       CASE WHEN n %% 5 = 0 THEN '{{"class": "TimedOut", "message": "<b>late</b>"}}'::jsonb END, '',
       CASE WHEN n %% 6 = 0 THEN at + interval '90 s' END, 1, CASE WHEN n %% 7 = 0 THEN gen_random_uuid() END, 'one#3',
       CASE WHEN n %% 4 = 0 THEN '{{"team": "red"}}'::jsonb END, '[{{"code": "rate", "s": 1.5}}]'::jsonb
FROM made ORDER BY id RETURNING id, attempt_count
"""
_ATTEMPT = """
INSERT INTO {schema}.executions_attempt
    (id, execution_id, number, fence, state, worker_id, started_at, finished_at, error, retry_at)
SELECT a.id, a.execution_id, a.number, 1000 + a.number, 'failed', gen_random_uuid(), %(at)s, %(at)s,
       '{{"class": "TimedOut"}}'::jsonb, CASE WHEN a.number = 1 THEN %(at)s END
FROM unnest(%(ids)s::uuid[], %(of)s::uuid[], %(numbers)s::int[]) AS a (id, execution_id, number)
"""
_LETTERS = """
INSERT INTO {schema}.deadletters_deadletter
    (id, execution_id, job_id, fingerprint, error, attempts, created_at, resolved_at, resolution, note, resolved_by)
SELECT gen_random_uuid(), id, job_id, 'print', error, attempt_count, created_at, %(closed)s,
       CASE WHEN %(closed)s::timestamptz IS NULL THEN '' ELSE 'resolved' END, 'note', 'user:1'
FROM {schema}.executions_execution WHERE id = ANY(%(of)s)
"""


def history(
    conn: Conn, schema: str, count: int, *, at: datetime = OLD_DAY, step: timedelta = timedelta(seconds=1),
    letters: bool = True, today: datetime = NOW,
) -> list[UUID]:  # fmt: skip
    """Executions that ended, with attempts and closed letters; by id. The newest of the schedule is one of today."""
    schedule = uuid.uuid4()
    values = {"at": at, "step": step, "count": count, "job": uuid.uuid4(), "schedule": schedule}
    made = conn.execute(_MANY.format(schema=schema), values).fetchall()
    conn.execute(_MANY.format(schema=schema), {**values, "at": today, "count": 2})
    pairs = [(key, number) for key, attempts in made for number in range(1, attempts + 1)]
    conn.execute(
        _ATTEMPT.format(schema=schema),
        {
            "ids": [attempt_id(*one) for one in pairs], "of": [key for key, _ in pairs],
            "numbers": [number for _, number in pairs], "at": at,
        },
    )  # fmt: skip
    ids = sorted(key for key, _ in made)
    if letters:
        dead = f"SELECT id FROM {schema}.executions_execution WHERE state = 'dead' AND id = ANY(%s)"
        of = [row[0] for row in conn.execute(dead, [ids])]
        conn.execute(_LETTERS.format(schema=schema), {"of": of, "closed": at + timedelta(hours=1)})
    return ids


def letter(conn: Conn, schema: str, execution_id: UUID, *, closed: datetime | None) -> None:
    """A dead letter of an execution that has an error."""
    conn.execute(_LETTERS.format(schema=schema), {"of": [execution_id], "closed": closed})


def workflow(conn: Conn, schema: str, *, at: datetime = OLD_DAY, days: int = 2) -> tuple[UUID, list[UUID]]:
    """A run whose steps were made over some days, with a run below it; its root and all its executions."""
    root, below = _run(conn, schema, at, None, None), None
    steps = [_execution(conn, schema, at + timedelta(days=n), root) for n in range(days)]
    below = _run(conn, schema, at + timedelta(hours=1), root, root)
    steps.append(_execution(conn, schema, at + timedelta(hours=2), below))
    for run, key in ((root, steps[0]), (root, below), (below, steps[-1])):
        conn.execute(
            f"INSERT INTO {schema}.workflows_steprun (run_id, step, type, state, reason, execution_id, generation,"
            " pending, met, failed, succeeded, items_open, items_failed, finished_at, forced, decided_by, note, output)"
            " VALUES (%s, %s, 'job', 'succeeded', '', %s, 1, 0, 0, 0, 0, 0, 0, %s, false, '', '', '{\"a\": 1}')",
            [run, f"step-{key}"[:60], key, at],
        )
    conn.execute(
        f'INSERT INTO {schema}.workflows_dependency (parent_id, child_id, "on", met) VALUES (%s, %s, %s, true)',
        [steps[0], root, "succeeded"],
    )
    return root, [root, below, *steps]


def _run(conn: Conn, schema: str, at: datetime, root: UUID | None, parent: UUID | None) -> UUID:
    key = _execution(conn, schema, at, None)
    conn.execute(f"UPDATE {schema}.executions_execution SET workflow_run_id = id WHERE id = %s", [key])
    conn.execute(
        f"INSERT INTO {schema}.workflows_run (execution_id, root_id, parent_step_id, depth, workflow_id, version,"
        " state, input, reason, open, failed, started_at, finished_at, paused_by, paused_reason, generation, revision)"
        " VALUES (%s, %s, %s, %s, %s, 1, 'succeeded', '{\"x\": 2}', '', 0, 0, %s, %s, '', '', 1, 1)",
        [key, root or key, 1 if parent else None, 1 if parent else 0, uuid.uuid4(), at, at],
    )
    return key


def _execution(conn: Conn, schema: str, at: datetime, run: UUID | None) -> UUID:
    row = conn.execute(
        _MANY.format(schema=schema),
        {"at": at, "step": timedelta(0), "count": 1, "job": uuid.uuid4(), "schedule": None},
    ).fetchone()
    assert row is not None
    conn.execute(
        f"UPDATE {schema}.executions_execution SET workflow_run_id = %s, attempt_count = 0, step = 'a' WHERE id = %s",
        [run, row[0]],
    )
    return UUID(str(row[0]))


def everything(conn: Conn, schema: str) -> dict[str, list[str]]:
    """All rows of the tables that are archived, as the database tells them."""
    return {
        table.name: [
            row[0] for row in conn.execute(f"SELECT e::text FROM {schema}.{table.table} e ORDER BY e.{table.key}")
        ]
        for table in TABLES
    }


def count(conn: Conn, schema: str) -> int:
    """Hot executions that are old."""
    row = conn.execute(f"SELECT count(*) FROM {schema}.executions_execution WHERE created_at < %s", [BEFORE]).fetchone()
    return int(row[0]) if row else 0


def archive(conn: Conn, tenant: Any, store: Store, *, more: Any = lambda: True, keep: timedelta | None = None) -> Run:
    return archive_run(conn, tenant, store, before=BEFORE + timedelta(hours=3), keep=keep, more=more)


def states(conn: Conn, schema: str) -> list[str]:
    """States of all batches, in the order of their making."""
    return [row[0] for row in conn.execute(f"SELECT state FROM {schema}.archive_archivebatch ORDER BY id")]


def done_batches(conn: Conn, schema: str) -> list[catalogue.Batch]:
    """The batches whose files count."""
    return catalogue.of_days(conn, schema, first=None, last=None, states=["done"])


def abandon(conn: Conn, schema: str) -> None:
    """All batches, as if whoever worked at them had left them for long."""
    conn.execute(f"UPDATE {schema}.archive_archivebatch SET touched_at = touched_at - interval '1 hour'")


def paths(folder: Path) -> list[str]:
    """All files below a folder."""
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())
