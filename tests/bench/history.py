"""A tenant with a long history: jobs, schedules and millions of executions, made in SQL."""

import json
from datetime import datetime
from typing import Any

JOBS = 2_000
SCHEDULES = 50_000
LIVE = 5_000
DAYS = 30
BATCH = 250_000

# A UUIDv7 of a time, with noise that follows from a number.
_ID = (
    "(lpad(to_hex(floor(extract(epoch FROM {at}) * 1000)::bigint), 12, '0') || '7' || left(md5('{salt}' || {n}), 3)"
    " || '8' || substr(md5('{salt}' || {n}), 4, 15))::uuid"
)


def fill(conn: Any, *, schema: str, tenant_id: int, executions: int, now: datetime) -> None:
    """Adds definitions and `executions` rows that end at `now`, with attempts, dead letters and LIVE tickets."""
    conn.execute(f'SET search_path TO "{schema}", public')
    _definitions(conn, tenant_id, now)
    for first in range(1, executions + 1, BATCH):
        _executions(conn, first, min(first + BATCH - 1, executions), executions, now)
    conn.execute(_ATTEMPTS)
    conn.execute(_LETTERS)
    conn.execute(_TICKETS, [tenant_id])
    for table in ("executions_execution", "executions_attempt", "deadletters_deadletter", "schedules_schedule",
                  "schedules_scheduleversion", "schedules_job", "schedules_jobversion", "due_dueentry",
                  "tickets_ticket"):  # fmt: skip
        conn.execute(f"VACUUM ANALYZE {table}")


def _id(at: str, salt: str, n: str) -> str:
    return _ID.format(at=at, salt=salt, n=n)


def _definitions(conn: Any, tenant_id: int, now: datetime) -> None:
    """JOBS jobs and SCHEDULES schedules, 40 days old; nine of ten schedules are active."""
    from apps.schedules.retry import DEFAULTS

    made = "(%(now)s::timestamptz - interval '40 days' + n * interval '1 second')"
    values = {"now": now, "tenant": tenant_id, "spec": _spec(now)}
    conn.execute(
        f"""INSERT INTO schedules_job (id, name, kind, version, revision, paused_reason, labels, created_at, updated_at)
        SELECT {_id(made, "job", "n")}, 'job ' || n, CASE WHEN n %% 7 = 0 THEN 'http' ELSE 'python' END, 1, 1, '',
               jsonb_build_object('team', 'team-' || n %% 20), {made}, {made}
        FROM generate_series(1, {JOBS}) n""",
        values,
    )
    conn.execute(
        """INSERT INTO schedules_jobversion (job_id, version, target, timeout_s, retry, priority, queue, created_at)
        SELECT id, 1, '{"task": "shardbeat.noop"}', 60, %(retry)s, 5, '', created_at
        FROM schedules_job WHERE name ~ '^job '""",
        {"retry": json.dumps(DEFAULTS)},
    )
    conn.execute(
        f"""INSERT INTO schedules_schedule (id, name, job_id, version, revision, status, paused_reason, failures_from,
                                           labels, created_at, updated_at)
        SELECT {_id(made, "schedule", "n")}, 'schedule ' || n,
               (SELECT id FROM schedules_job WHERE lower(name) = 'job ' || (n %% {JOBS}) + 1 AND deleted_at IS NULL),
               1, 1,
               CASE WHEN n %% 10 = 0 THEN 'paused' ELSE 'active' END, '', 1,
               jsonb_build_object('region', 'r' || n %% 50), {made}, {made}
        FROM generate_series(1, {SCHEDULES}) n""",
        values,
    )
    conn.execute(
        """INSERT INTO schedules_scheduleversion (schedule_id, version, definition, spec, own_payload, created_at)
        SELECT id, 1, jsonb_build_object('trigger', '{"cron": "0 3 * * *"}'::jsonb, 'job', job_id), %(spec)s, false,
               created_at FROM schedules_schedule""",
        values,
    )
    conn.execute(
        """INSERT INTO due_dueentry (key, shard, kind, tenant_id, due_at, nominal_at, version, spec, job_id,
                                    job_version, pool, queue, priority, timeout_s, own_payload, parked)
        SELECT id, abs(hashtext(id::text)) %% 64, 'schedule', %(tenant)s, %(now)s::timestamptz + interval '1 day',
               %(now)s::timestamptz + interval '1 day', 1, %(spec)s, job_id, 1, 'python', 'bench', 5, 60, false, ''
        FROM schedules_schedule WHERE status = 'active'""",
        values,
    )


def _executions(conn: Any, first: int, last: int, total: int, now: datetime) -> None:
    """Rows `first` to `last` of `total`: mostly succeeded runs of schedules; nothing is of a backfill or workflow."""
    at = f"(%(now)s::timestamptz - interval '{DAYS} days' * (({total} - n)::float8 / {total}))"
    conn.execute(
        f"""INSERT INTO executions_execution
            (id, run_key, job_id, job_version, schedule_id, schedule_version, trigger, state, priority, nominal_at,
             actual_at, created_at, queued_at, started_at, finished_at, attempt_count, payload, result, error, reason,
             count, replay_of, fired_by, labels)
        SELECT {_id("at", "run", "n")}, 'bench ' || n, s.job_id, 1, CASE WHEN asked THEN NULL ELSE s.id END,
               CASE WHEN asked THEN NULL ELSE 1 END,
               CASE WHEN n %% 100 = 0 THEN 'manual' WHEN replayed THEN 'replay' WHEN asked THEN 'api' ELSE 'schedule'
               END,
               CASE WHEN live THEN 'ready' WHEN fate < 0.015 THEN 'dead' WHEN fate < 0.025 THEN 'skipped'
                    WHEN fate < 0.03 THEN 'cancelled' WHEN fate < 0.035 THEN 'expired' ELSE 'succeeded' END,
               5, CASE WHEN asked THEN NULL ELSE at END, at, at,
               CASE WHEN NOT live AND fate >= 0.03 THEN at + interval '100 ms' END,
               CASE WHEN NOT live AND fate >= 0.035 THEN at + interval '200 ms' END,
               CASE WHEN NOT live THEN at + interval '1 s' * (1 + 30 * fate) END,
               CASE WHEN live THEN 0 ELSE 1 END, CASE WHEN asked THEN '{{"order": 12345}}'::jsonb END,
               CASE WHEN fate >= 0.035 AND NOT live THEN '{{"status": 200, "rows": 17}}'::jsonb END,
               CASE WHEN fate < 0.015 AND NOT live
                    THEN jsonb_build_object('class', 'http', 'status', 500 + n %% 4, 'message', 'no') END,
               CASE WHEN fate >= 0.015 AND fate < 0.025 AND NOT live THEN 'overlap' ELSE '' END, 1,
               CASE WHEN replayed THEN {_id("(at - interval '1 hour')", "run", "n - 1")} END, 'bench',
               CASE WHEN asked THEN jsonb_build_object('customer', 'c' || n %% 500) END
        FROM (SELECT n, {at} AS at, {total} - n < {LIVE} AS live, random() AS fate, n %% 25 = 0 AS asked,
                     n %% 1250 = 0 AS replayed, 1 + floor({SCHEDULES} * power(random(), 3))::int AS pick
              FROM generate_series({first}, {last}) n) g
        JOIN (SELECT id, job_id, substr(name, 10)::int AS number FROM schedules_schedule) s ON s.number = g.pick
        ORDER BY n""",
        {"now": now},
    )


_ATTEMPTS = """
INSERT INTO executions_attempt (id, execution_id, number, fence, state, worker_id, started_at, finished_at, error)
SELECT (left(id::text, 15) || substr(md5(id::text), 1, 3) || '-8' || substr(md5(id::text), 4, 3) || '-'
        || substr(md5(id::text), 7, 12))::uuid,
       id, 1, row_number() OVER (), CASE WHEN state = 'dead' THEN 'failed' ELSE 'succeeded' END, gen_random_uuid(),
       coalesce(started_at, created_at), finished_at, error
FROM executions_execution WHERE state IN ('succeeded', 'dead') ORDER BY id
"""
_LETTERS = """
INSERT INTO deadletters_deadletter
    (id, execution_id, job_id, schedule_id, fingerprint, error, attempts, created_at, resolved_at, resolution, note,
     resolved_by)
SELECT (left(id::text, 15) || substr(md5(id::text), 1, 3) || '-9' || substr(md5(id::text), 4, 3) || '-'
        || substr(md5(id::text), 7, 12))::uuid,
       id, job_id, schedule_id, md5(job_id::text) || md5(error::text), error, 1, finished_at,
       CASE WHEN solved THEN finished_at + interval '1 hour' END, CASE WHEN solved THEN 'resolved' ELSE '' END, '', ''
FROM (SELECT *, random() < 0.9 AS solved FROM executions_execution WHERE state = 'dead') d ORDER BY id
"""
_TICKETS = """
INSERT INTO public.tickets_ticket
    (execution_id, tenant_id, job_id, job_version, schedule_id, schedule_version, run_key, trigger, nominal_at,
     actual_at, pool, queue, priority, timeout_s, flow, payload_from, state, available_at, rank, releases, attempt,
     failures, cancel_requested, guarded)
SELECT id, %s, job_id, job_version, schedule_id, schedule_version, run_key, trigger, nominal_at, actual_at, 'python',
       'bench', 5, 60, job_id, 'job', 'ready', actual_at, actual_at, 0, 0, 0, false,
       false
FROM executions_execution WHERE state = 'ready' AND finished_at IS NULL
"""


def _spec(now: datetime) -> str:
    from apps.schedules import timing

    return timing.spec_to_json(timing.spec_from_api({"trigger": {"cron": "0 3 * * *"}, "timezone": "UTC"}, now=now))
