"""The newest results of schedules, and who paused them: one statement each, however many there are."""

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
BY_HAND = 10
OF_ITS_OWN = ("schedule", "catch_up")

# Only what has not ended has a ticket, whose state is the newer one. A subquery, as a join would hash all tickets.
_COLUMNS = """
    e.id, CASE WHEN e.finished_at IS NULL
        THEN coalesce((SELECT t.state FROM tickets_ticket t WHERE t.execution_id = e.id), e.state) ELSE e.state END,
    e.trigger, e.reason, e.actual_at, e.started_at, e.finished_at, e.count
"""
# Down the index that keeps occurrences unique.
_OCCURRENCES = """
    SELECT * FROM {schema}.executions_execution e
    WHERE e.schedule_id = s.id AND e.trigger IN ('schedule', 'catch_up') AND e.nominal_at IS NOT NULL
    ORDER BY e.nominal_at DESC LIMIT %(most)s
"""
_NEWEST = f"""
SELECT s.id, {_COLUMNS} FROM unnest(%(ids)s::uuid[]) AS s(id) CROSS JOIN LATERAL ({_OCCURRENCES}) e
ORDER BY s.id, e.nominal_at
"""
# And down the one of what was asked for: manual runs, backfills, replays.
_OF_ONE = f"""
SELECT {_COLUMNS} FROM (VALUES (%(id)s::uuid)) AS s(id) CROSS JOIN LATERAL (
    ({_OCCURRENCES})
    UNION ALL
    (SELECT * FROM {{schema}}.executions_execution e
     WHERE e.schedule_id = s.id AND e.trigger NOT IN ('schedule', 'catch_up') ORDER BY e.id DESC LIMIT %(by_hand)s)) e
ORDER BY e.actual_at, e.id
"""

# Their newest pause each, down the index of an object's rows.
_PAUSES = """
SELECT a.id, a.object_id, a.actor, a.personal, a.about_personal FROM unnest(%(ids)s::text[]) AS s(id)
CROSS JOIN LATERAL (
    SELECT * FROM audit_auditevent a
    WHERE a.object_id = s.id AND a.tenant_id = %(tenant)s AND a.action = 'schedule.pause' AND a.allowed
    ORDER BY a.id DESC LIMIT 1) a
"""


class Result(NamedTuple):
    """One execution, or a row that says why `occurrences` of them did not run."""

    execution_id: UUID
    state: str
    trigger: str
    reason: str
    at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    occurrences: int


def newest_results(tenant: Tenant, schedule_ids: Sequence[UUID]) -> dict[UUID, list[Result]]:
    """The newest occurrences of each, at most RESULTS, oldest first. Manual runs and backfills are none of them."""
    found: dict[UUID, list[Result]] = defaultdict(list)
    if schedule_ids:
        query = sql.SQL(_NEWEST).format(schema=sql.Identifier(tenant.schema_name))
        for schedule_id, *row in door.raw().execute(query, {"ids": list(schedule_ids), "most": RESULTS}):
            found[schedule_id].append(Result(*row))
    return found


def results_of(tenant: Tenant, schedule_id: UUID) -> list[Result]:
    """The newest occurrences of one, at most RESULTS, and the newest BY_HAND runs besides; oldest first."""
    query = sql.SQL(_OF_ONE).format(schema=sql.Identifier(tenant.schema_name))
    given = {"id": schedule_id, "most": RESULTS, "by_hand": BY_HAND}
    return [Result(*row) for row in door.raw().execute(query, given)]


def newest_pauses(tenant: Tenant, schedule_ids: Sequence[UUID]) -> dict[str, Shown]:
    """The row of the trail that says who paused it last, by the schedule's id as a text; none where it is gone."""
    if not schedule_ids:
        return {}
    given = {"ids": [str(one) for one in schedule_ids], "tenant": tenant.pk}
    rows = AuditEvent.objects.raw(_PAUSES, given)
    return {one.event.object_id: one for one in shown(rows, seals=False)}
