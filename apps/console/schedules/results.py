"""The newest results of many schedules at once, and who paused them: one statement each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from psycopg import sql

from apps.audit.models import AuditEvent
from apps.audit.shown import Shown, shown
from tenants import door
from tenants.models import Tenant

RESULTS = 30

# Down the index that keeps occurrences unique. Only what has not ended has a ticket, whose state is the newer one.
_NEWEST = """
SELECT s.id, e.id, CASE WHEN e.finished_at IS NULL
           THEN coalesce((SELECT t.state FROM tickets_ticket t WHERE t.execution_id = e.id), e.state)
           ELSE e.state END, e.actual_at, e.count
FROM unnest(%(ids)s::uuid[]) AS s(id)
CROSS JOIN LATERAL (
    SELECT e.id, e.state, e.finished_at, e.actual_at, e.nominal_at, e.count FROM {schema}.executions_execution e
    WHERE e.schedule_id = s.id AND e.trigger IN ('schedule', 'catch_up') AND e.nominal_at IS NOT NULL
    ORDER BY e.nominal_at DESC LIMIT %(most)s) e
ORDER BY s.id, e.nominal_at
"""

# Their newest pause each, down the index of an object's rows.
_PAUSES = """
SELECT e.id FROM unnest(%(ids)s::text[]) AS s(id)
CROSS JOIN LATERAL (
    SELECT a.id FROM audit_auditevent a
    WHERE a.object_id = s.id AND a.tenant_id = %(tenant)s AND a.action = 'schedule.pause' AND a.allowed
    ORDER BY a.id DESC LIMIT 1) e
"""


class Result(NamedTuple):
    """One occurrence that was decided about: an execution, or a row that says why so many of them did not run."""

    execution_id: UUID
    state: str
    at: datetime
    occurrences: int


def newest_results(tenant: Tenant, schedule_ids: Sequence[UUID], *, most: int = RESULTS) -> dict[UUID, list[Result]]:
    """The newest `most` occurrences of each, oldest first. Manual runs and backfills are none of them."""
    found: dict[UUID, list[Result]] = defaultdict(list)
    if schedule_ids:
        query = sql.SQL(_NEWEST).format(schema=sql.Identifier(tenant.schema_name))
        for schedule_id, *row in door.raw().execute(query, {"ids": list(schedule_ids), "most": most}):
            found[schedule_id].append(Result(*row))
    return found


def newest_pauses(tenant: Tenant, schedule_ids: Sequence[UUID]) -> dict[str, Shown]:
    """The row of the trail that says who paused it last, by the schedule's id as a text; none where it is gone."""
    if not schedule_ids:
        return {}
    given = {"ids": [str(one) for one in schedule_ids], "tenant": tenant.pk}
    ids = [row[0] for row in door.raw().execute(_PAUSES, given)]
    rows = AuditEvent.objects.filter(pk__in=ids).defer("before", "after") if ids else ()
    return {one.event.object_id: one for one in shown(rows, seals=False)}
