"""What the tables and the archive say of a schedule's occurrences."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.archive.forgotten import kept_from
from apps.archive.reading import archived_dispositions
from apps.operations.backfill.recognising import Known, Record, latest
from apps.schedules.models import Schedule
from tenants import door
from tenants.models import Tenant
from tenants.statements import run_in

Conn = psycopg.Connection[Any]

# What was fired, by the index that keeps occurrences unique. A row for several occurrences may begin before the first
# one; such rows never overlap, so one of the last before is the one.
_RECORDS = """
SELECT id, nominal_at, until_at, state, attempt_count FROM {schema}.executions_execution
WHERE schedule_id = $1 AND trigger IN ('schedule', 'catch_up') AND nominal_at BETWEEN $2 AND $3
UNION ALL
SELECT * FROM (
    SELECT id, nominal_at, until_at, state, attempt_count FROM {schema}.executions_execution
    WHERE schedule_id = $1 AND trigger IN ('schedule', 'catch_up') AND nominal_at < $2
    ORDER BY nominal_at DESC LIMIT 3) before
WHERE until_at >= $2
UNION ALL
SELECT id, nominal_at, until_at, state, attempt_count FROM {schema}.executions_execution
WHERE schedule_id = $1 AND trigger IN ('backfill', 'replay') AND nominal_at BETWEEN $2 AND $3
"""


def records(
    conn: Conn, tenant: Tenant, schedule_id: UUID, instants: Sequence[datetime], *, archived: bool = True
) -> dict[datetime, Record]:
    """The newest record of each of these occurrences that has one. ArchiveUnreachable, ArchiveDamaged.

    Without `archived` only what is in the tables: files are read whole, whatever is asked of them.
    """
    if not instants:
        return {}
    ordered = sorted(instants)
    first, last = ordered[0], ordered[-1]
    rows = run_in(conn, _RECORDS, tenant.schema_name, [schedule_id, first, last]).fetchall()
    found = [Record._make(row) for row in rows]
    old = archived_dispositions(tenant, schedule_id, since=first, until=last, conn=conn) if archived else []
    found += [Record(one.id, one.nominal_at, one.until_at, one.state, one.attempts) for one in old]
    return latest(ordered, found)


def known_of(tenant: Tenant, schedule: Schedule, due_from: datetime | None) -> Known:
    """What is known of a schedule's past. `due_from` is the occurrence that its due entry stands for."""
    return Known(schedule.created_at, kept_from(door.raw(), tenant.schema_name), due_from)
