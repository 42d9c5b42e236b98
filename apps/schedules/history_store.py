"""The history of schedules in SQL: what stops the version in force, and the versions as `history` reads them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.schedules.history import DELETED, JOB_PAUSED, PAUSED, History, Stopped, Version, history_of
from tenants.statements import run_in

Conn = psycopg.Connection[Any]

# Only the newest version: the earlier ones end where it begins, or were stopped.
_STOP = """
UPDATE {schema}.schedules_scheduleversion v SET until_at = $2, ended_by = $3
FROM unnest($1::uuid[]) AS m(id)
WHERE v.schedule_id = m.id AND v.until_at IS NULL
  AND v.version = (SELECT max(n.version) FROM {schema}.schedules_scheduleversion n WHERE n.schedule_id = m.id)
"""

# One statement, so that the versions and the due entry are as they were together.
_HISTORY = """
SELECT d.nominal_at, s.deleted_at, CASE WHEN s.status = 'paused' AND s.resume_at IS NULL THEN s.paused_at END,
       j.paused_at, v.version, v.spec, v.created_at, v.from_at, v.until_at, v.ended_by
FROM {schema}.schedules_schedule s
JOIN {schema}.schedules_job j ON j.id = s.job_id
JOIN {schema}.schedules_scheduleversion v ON v.schedule_id = s.id
LEFT JOIN public.due_dueentry d ON d.key = s.id
WHERE s.id = $1 ORDER BY v.version
"""


def versions_stop(conn: Conn, schema: str, schedule_ids: Sequence[UUID], *, at: datetime, why: str) -> None:
    """Nothing later than `at` is due of these schedules, which the caller has locked, until they get a new version.

    What has stopped already stays as it is.
    """
    if schedule_ids:
        run_in(conn, _STOP, schema, [list(schedule_ids), at, why])


def history_read(conn: Conn, schema: str, schedule_id: UUID) -> History | None:
    """The history of a schedule, deleted or not; None when there is no such schedule."""
    found = history_with_due(conn, schema, schedule_id)
    return None if found is None else found[0]


def history_with_due(conn: Conn, schema: str, schedule_id: UUID) -> tuple[History, datetime | None] | None:
    """The same, and the occurrence that its due entry stands at, if it has one."""
    rows = run_in(conn, _HISTORY, schema, [schedule_id]).fetchall()
    if not rows:
        return None
    due, *stopped = rows[0][:4]
    stops = [Stopped(at, why) for at, why in zip(stopped, (DELETED, PAUSED, JOB_PAUSED), strict=True) if at is not None]
    versions = [Version(*row[4:]) for row in rows]
    return history_of(versions, stopped=min(stops, key=lambda one: one.at, default=None)), due
