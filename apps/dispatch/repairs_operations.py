"""Operations that have not ended and that nobody would take a turn of: they get a row in the due index again."""

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


def operations(conn: Conn, tenancy: Tenancy, after: UUID, dry_run: bool) -> Found:
    """Operations without a row in the due index."""
    found = [row[0] for row in conn.execute(in_schema(_WITHOUT_TURN, tenancy), [after, CHUNK])]
    if found and not dry_run:
        now = database_now(conn)
        for operation_id in found:
            due_operations.put(conn, operation_id, tenant_id=tenancy.id, due_at=now)
    last = found[-1] if len(found) == CHUNK else None
    detail = "nobody would work on it: it has a turn again"
    return [Finding("operation_without_turn", tenancy.slug, one, detail) for one in found], last
