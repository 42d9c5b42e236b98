"""Why several runs wait that are due: in one statement what the tenant, job, key and queue rules of admission need.

Whatever the pool has to say (workers, room, shares) is not asked here: `explaining` tells all of it for one run.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.dispatch.admission import Facts, refusal
from apps.executions.reading import ExecutionRow
from kernel.pools import WORKFLOW
from tenants import door
from tenants.models import Tenant
from tenants.registry import PAUSED

Conn = psycopg.Connection[Any]
BLOCKED = "workflow_blocked"  # by executions that it depends on
_IN_USE = "state IN ('queued', 'running')"

# Materialized, so that what a page shows is looked up once; each count reads what limits keep small.
_FACTS = f"""
WITH asked AS MATERIALIZED (
    SELECT execution_id, job_id, flow, job_limit, flow_limit, pool, queue, start_by FROM tickets_ticket
    WHERE execution_id = ANY(%(ids)s) AND tenant_id = %(tenant)s AND state = 'ready' AND rank IS NOT NULL),
jobs AS MATERIALIZED (
    SELECT job_id, count(*) AS used FROM tickets_ticket
    WHERE job_limit IS NOT NULL AND {_IN_USE} AND job_id IN (SELECT job_id FROM asked WHERE job_limit > 0)
    GROUP BY job_id),
flows AS MATERIALIZED (
    SELECT flow, count(*) AS used FROM tickets_ticket
    WHERE flow_limit IS NOT NULL AND {_IN_USE} AND flow IN (SELECT flow FROM asked WHERE flow_limit IS NOT NULL)
    GROUP BY flow),
whole AS MATERIALIZED (
    SELECT t.status = 'active' AS active, t.dispatch_paused,
           {PAUSED} AS paused,
           p.max_running, CASE WHEN p.max_running IS NOT NULL THEN
        (SELECT count(*) FROM tickets_ticket u WHERE u.tenant_id = t.id AND u.state = 'queued')
      + (SELECT count(*) FROM tickets_ticket u WHERE u.tenant_id = t.id AND u.state = 'running'
           AND u.pool <> '{WORKFLOW}') END AS used
    FROM tenants_tenant t JOIN tenants_plan p ON p.id = t.plan_id
    WHERE t.id = %(tenant)s AND EXISTS (SELECT 1 FROM asked))
SELECT a.execution_id, w.active, w.dispatch_paused, a.job_limit, q.paused_at IS NOT NULL, a.start_by,
       coalesce(j.used, 0), w.max_running, coalesce(w.used, 0), a.flow_limit, coalesce(f.used, 0),
       '' = ANY(w.paused), a.pool = ANY(w.paused)
FROM asked a CROSS JOIN whole w
LEFT JOIN jobs j ON j.job_id = a.job_id
LEFT JOIN flows f ON f.flow = a.flow
LEFT JOIN tickets_pullqueue q ON a.pool = 'pull' AND q.tenant_id = %(tenant)s AND q.name = a.queue
"""


def with_reasons(tenant: Tenant, rows: Sequence[ExecutionRow], *, now: datetime) -> list[ExecutionRow]:
    """The same rows; those that are due and wait for a rule have its code as their wait_reason."""
    asked = [row.id for row in rows if row.state == "ready" and row.wait_reason is None]
    found = reasons_of(door.raw(), tenant.pk, asked, now=now) if asked else {}
    found |= {row.id: BLOCKED for row in rows if row.state == "blocked"}
    return [row._replace(wait_reason=found[row.id]) if row.id in found else row for row in rows]


def reasons_of(conn: Conn, tenant_id: int, ids: Sequence[UUID], *, now: datetime) -> dict[UUID, str]:
    """The codes of the rules that these runs of a tenant wait for; nothing of those that wait for none."""
    found = {}
    for row in conn.execute(_FACTS, {"ids": list(ids), "tenant": tenant_id}):
        facts = Facts(
            now=now, tenant_active=row[1], dispatch_paused=row[2], job_limit=row[3], queue_paused=row[4],
            start_by=row[5], job_use=row[6], max_running=row[7], tenant_use=row[8], flow_limit=row[9], key_use=row[10],
            platform_paused=row[11], pool_paused=row[12],
        )  # fmt: skip
        refused = refusal(facts)
        if refused is not None:
            found[row[0]] = refused.code
    return found
