"""Executions that are blocked though nothing can come any more that would decide on them: they are decided on."""

from typing import Any
from uuid import UUID

import psycopg

from apps.dispatch.findings import CHUNK, Finding, Found, in_schema
from apps.tickets import blocking
from apps.workflows.dependencies.depending import dependents_decide
from tenants.registry import Tenancy
from tenants.work import database_now

Conn = psycopg.Connection[Any]
GONE = "cancelled"  # a parent that is not there any more did not end well

# One row for each parent that has ended and is not noted; and for what waits for none any more, a row without one.
_MISSED = """
SELECT d.child_id, d.parent_id, coalesce(p.state, %(gone)s)
FROM {schema}.workflows_dependency d LEFT JOIN {schema}.executions_execution p ON p.id = d.parent_id
WHERE d.child_id = ANY(%(ids)s) AND d.met IS NULL AND (p.id IS NULL OR p.finished_at IS NOT NULL)
UNION ALL
SELECT c.id, NULL, NULL FROM unnest(%(ids)s::uuid[]) AS c(id)
WHERE NOT EXISTS (SELECT 1 FROM {schema}.workflows_dependency d WHERE d.child_id = c.id AND d.met IS NULL)
   OR EXISTS (SELECT 1 FROM {schema}.workflows_dependency d WHERE d.child_id = c.id AND NOT d.met)
"""


def blocked(conn: Conn, tenancy: Tenancy, after: UUID, dry_run: bool) -> Found:
    """Executions that wait for others all of which have ended, or one of which did not end as they want."""
    ids = blocking.of_tenant(conn, tenancy.id, after=after, limit=CHUNK)
    last = ids[-1] if len(ids) == CHUNK else None
    rows = conn.execute(in_schema(_MISSED, tenancy), {"ids": ids, "gone": GONE}).fetchall() if ids else []
    if rows and not dry_run:
        ended = {parent: state for _, parent, state in rows if parent is not None}
        dependents_decide(conn, tenancy, ended, database_now(conn), also={row[0] for row in rows})
    detail = "a run that it waits for has ended: decided again"
    return [Finding("blocked_not_decided", tenancy.slug, one, detail) for one in sorted({row[0] for row in rows})], last
