"""Operations that have not ended and that nobody would take a turn of: they get a row in the due index again.

Those that pages over all tenants do not know, since a version before made them, are outlined; that is no finding.
"""

from typing import Any
from uuid import UUID

import psycopg

from apps.dispatch.findings import CHUNK, Finding, Found, in_schema
from apps.due import operations as due_operations
from tenants.registry import Tenancy
from tenants.work import database_now

Conn = psycopg.Connection[Any]

# Of what is paused, what runs is looked at until it has ended. Should it have ended meanwhile, its next turn sees that.
_WITHOUT_TURN = """
SELECT o.id FROM {schema}.operations_operation o
WHERE o.finished_at IS NULL AND o.id > %s AND (o.state <> 'paused' OR o.running > 0)
  AND NOT EXISTS (SELECT 1 FROM due_dueoperation d WHERE d.operation_id = o.id)
ORDER BY o.id LIMIT %s
"""

_OUTLINED = (
    "action, target, state, waits_for, planned, pending, running, succeeded, skipped, failed, undone, rate_per_s,"
    " max_in_flight, created_by, reason, created_at, started_at, finished_at"
)
_OUTLINE = f"""
INSERT INTO due_operationoutline (operation_id, tenant_id, schedule_id, seen_at, mark_at, mark_done, {_OUTLINED})
SELECT o.id, %s, CASE WHEN o.action = 'backfill' THEN (o.filter->>'schedule')::uuid END, clock_timestamp(),
       clock_timestamp(), succeeded + skipped + failed + undone, {_OUTLINED}
FROM {{schema}}.operations_operation o
WHERE o.finished_at IS NULL AND NOT EXISTS (SELECT 1 FROM due_operationoutline l WHERE l.operation_id = o.id)
ORDER BY o.id LIMIT %s ON CONFLICT DO NOTHING
"""


def operations(conn: Conn, tenancy: Tenancy, after: UUID, dry_run: bool) -> Found:
    """Operations without a row in the due index."""
    found = [row[0] for row in conn.execute(in_schema(_WITHOUT_TURN, tenancy), [after, CHUNK])]
    if found and not dry_run:
        now = database_now(conn)
        for operation_id in found:
            due_operations.put(conn, operation_id, tenant_id=tenancy.id, due_at=now)
    if not dry_run:
        conn.execute(in_schema(_OUTLINE, tenancy), [tenancy.id, CHUNK])
    last = found[-1] if len(found) == CHUNK else None
    detail = "nobody would work on it: it has a turn again"
    return [Finding("operation_without_turn", tenancy.slug, one, detail) for one in found], last
