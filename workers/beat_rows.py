"""PeriodicTasks of django-celery-beat in SQL, as the beat sees them.

The rows are the admin's. Only what a run changes is written here, with one conditional UPDATE, so that an edit in the
admin and a run never undo each other.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from apps.due import slots
from workers.beat_timing import Crontab, When

Conn = psycopg.Connection[Any]


class Periodic(NamedTuple):
    """What is needed to send a PeriodicTask. The texts are as they were typed."""

    id: int
    name: str
    task: str
    args: str
    kwargs: str
    headers: str | None
    queue: str | None
    exchange: str | None
    routing_key: str | None
    priority: int | None
    expires_at: datetime | None
    expire_s: int | None


class Candidate(NamedTuple):
    """An enabled task and what decides when it is due. `changed_at` is the version that was read."""

    id: int
    name: str
    changed_at: datetime
    waiting: int
    when: When


_ENABLED = """
SELECT clock_timestamp(), t.id, t.name, t.date_changed, coalesce(w.waiting, 0), t.last_run_at, t.start_time, t.expires,
       t.expire_seconds, t.solar_id, i.every, i.period, k.clocked_time, c.minute, c.hour, c.day_of_month,
       c.month_of_year, c.day_of_week, c.timezone,
       (SELECT s.slot_at FROM due_beatslot s WHERE s.task_id = t.id ORDER BY s.slot_at DESC LIMIT 1)
FROM django_celery_beat_periodictask t
LEFT JOIN django_celery_beat_intervalschedule i ON i.id = t.interval_id
LEFT JOIN django_celery_beat_clockedschedule k ON k.id = t.clocked_id
LEFT JOIN django_celery_beat_crontabschedule c ON c.id = t.crontab_id
LEFT JOIN (
    SELECT task_id, count(*) AS waiting FROM due_beatslot WHERE started_at IS NULL AND sends <= %s GROUP BY 1
) w ON w.task_id = t.id
WHERE t.enabled
"""

_BY_ID = """
SELECT id, name, task, args, kwargs, headers, queue, exchange, routing_key, priority, expires, expire_seconds
FROM django_celery_beat_periodictask WHERE id = ANY(%s)
"""

# Rows that somebody changes right now are passed over; they come up again in the next pass.
_LOCK = """
SELECT t.id FROM django_celery_beat_periodictask t
JOIN unnest(%s::int[], %s::timestamptz[]) AS m(id, changed_at) ON m.id = t.id AND m.changed_at = t.date_changed
WHERE t.enabled ORDER BY t.id FOR UPDATE OF t SKIP LOCKED
"""

_RAN = """
UPDATE django_celery_beat_periodictask
SET last_run_at = greatest(last_run_at, %(now)s), total_run_count = total_run_count + 1,
    enabled = enabled AND NOT one_off
WHERE id = ANY(%(ids)s) AND enabled
"""

_EXPIRE = """
UPDATE django_celery_beat_periodictask SET enabled = false
WHERE id IN (
    SELECT id FROM django_celery_beat_periodictask WHERE enabled AND expires <= clock_timestamp()
    FOR UPDATE SKIP LOCKED)
RETURNING name
"""


def enabled(conn: Conn) -> tuple[datetime | None, list[Candidate]]:
    """The database's time and all tasks that are switched on; (None, []) when there are none."""
    rows = conn.execute(_ENABLED, [slots.SENDS_MAX]).fetchall()
    return (rows[0][0], [_candidate(row) for row in rows]) if rows else (None, [])


def by_id(conn: Conn, ids: Sequence[int]) -> dict[int, Periodic]:
    """Tasks by id, switched on or not; those that are gone are left out."""
    return {row[0]: Periodic._make(row) for row in conn.execute(_BY_ID, [list(ids)])}


def make_slots(conn: Conn, due: Sequence[tuple[Candidate, datetime]], *, now: datetime) -> int:
    """One transaction: makes the slots of tasks that are still what was read, and notes the run on them.

    A one-off task is switched off by it. Returns how many slots are new.
    """
    with conn.transaction():
        read = [[task.id for task, _ in due], [task.changed_at for task, _ in due]]
        still = {row[0] for row in conn.execute(_LOCK, read)}
        made = slots.make(conn, [(task.id, slot_at, task.name) for task, slot_at in due if task.id in still])
        if made:
            conn.execute(_RAN, {"now": now, "ids": [task_id for task_id, _ in made]})
    return len(made)


def expire(conn: Conn) -> list[str]:
    """Switches off tasks whose `expires` has passed; their names."""
    return [row[0] for row in conn.execute(_EXPIRE)]


def _candidate(row: tuple[Any, ...]) -> Candidate:
    (_, task_id, name, changed_at, waiting, last_run_at, start_at, expires_at, expire_s, solar, every, period,
     clocked_at, minute, hour, day, month, weekday, zone, last) = row  # fmt: skip
    when = When(
        since=max(changed_at, last_run_at or changed_at),
        last=last,
        crontab=Crontab((minute, hour, day, month, weekday), zone) if zone is not None else None,
        every=(every, period) if every is not None else None,
        clocked_at=clocked_at,
        solar=solar is not None,
        start_at=start_at,
        expires_at=expires_at,
        expire_s=expire_s,
    )
    return Candidate(task_id, name, changed_at, waiting, when)
