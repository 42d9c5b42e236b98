"""How an archive stands: what waits for it, and what it holds."""

from collections import Counter
from datetime import UTC, date, datetime, time
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.archive.choosing import NOTHING, choose, day_start
from apps.archive.models import READABLE_STATES
from tenants.statements import in_schema

Conn = psycopg.Connection[Any]

_HELD = """
SELECT count(*), coalesce(sum((counts->>'executions')::bigint), 0)::bigint, coalesce(sum(bytes), 0)::bigint
FROM {schema}.archive_archivebatch WHERE state = ANY(%s)
"""
_ARCHIVING = """
SELECT p.name FROM tenants_plan p
WHERE p.archive_days > 0 AND EXISTS (SELECT 1 FROM tenants_tenant t WHERE t.plan_id = p.id AND t.status <> 'deleting')
ORDER BY p.name
"""


class Standing(NamedTuple):
    """What an archive holds, and for how long the oldest that may be archived is overdue."""

    batches: int
    executions: int
    bytes: int
    overdue_s: float


def waiting(conn: Conn, schema: str, *, before: datetime) -> dict[date, int]:
    """Executions that the next runs archive, by day."""
    found: Counter[date] = Counter()
    after = NOTHING
    while (choice := choose(conn, schema, before=before, after=after)) is not None:
        found[choice.day] += len(choice.units)
        after = UUID(bytes=max(choice.units.values()))
    return dict(found)


def standing(conn: Conn, schema: str, *, before: datetime) -> Standing:
    """How the archive of a tenant stands, whose history may go when it ended before the day of `before`."""
    row = conn.execute(in_schema(_HELD, schema), [list(READABLE_STATES)]).fetchone()
    assert row is not None
    oldest = choose(conn, schema, before=before, most=1)
    overdue_s = 0.0
    if oldest is not None:
        overdue_s = (day_start(before) - datetime.combine(oldest.day, time(), UTC)).total_seconds()
    return Standing(batches=row[0], executions=row[1], bytes=row[2], overdue_s=overdue_s)


def unkept_plans(conn: Conn) -> list[str]:
    """Plans with archive_days that tenants have. Without ARCHIVE_URL nothing of theirs is deleted, and tables grow."""
    return [row[0] for row in conn.execute(_ARCHIVING)]
