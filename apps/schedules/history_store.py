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

_VERSIONS = """
SELECT version, spec, created_at, from_at, until_at, ended_by FROM {schema}.schedules_scheduleversion
WHERE schedule_id = $1 ORDER BY version
"""

_STOPPED = """
SELECT s.deleted_at, CASE WHEN s.status = 'paused' AND s.resume_at IS NULL THEN s.paused_at END, j.paused_at
FROM {schema}.schedules_schedule s JOIN {schema}.schedules_job j ON j.id = s.job_id WHERE s.id = $1
"""


def versions_stop(conn: Conn, schema: str, schedule_ids: Sequence[UUID], *, at: datetime, why: str) -> None:
    """Nothing later than `at` is due of these schedules, which the caller has locked, until they get a new version.

    What has stopped already stays as it is.
    """
    if schedule_ids:
        run_in(conn, _STOP, schema, [list(schedule_ids), at, why])


def history_read(conn: Conn, schema: str, schedule_id: UUID) -> History | None:
    """The history of a schedule, deleted or not; None when there is no such schedule."""
    row = run_in(conn, _STOPPED, schema, [schedule_id]).fetchone()
    if row is None:
        return None
    stops = [Stopped(at, why) for at, why in zip(row, (DELETED, PAUSED, JOB_PAUSED), strict=True) if at is not None]
    versions = [Version(*one) for one in run_in(conn, _VERSIONS, schema, [schedule_id])]
    return history_of(versions, stopped=min(stops, key=lambda one: one.at, default=None))
