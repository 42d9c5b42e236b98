"""Buckets of jobs' rates: each job with a rate has one that is as its definition says, other jobs have none.

The bucket of a job that was deleted goes when nothing of it is alive: what was submitted still runs at its rate.
Those of jobs inside of workflows stay: runs that have not come to their step yet will ask for them.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg

from apps.dispatch.findings import CHUNK, Finding, Found, in_schema
from apps.tickets import filling
from apps.tickets.filling import Rate
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]

# Jobs with a rate, and buckets whatever there is of their job.
_OWNERS = """
SELECT o.id FROM (
    SELECT j.id FROM {schema}.schedules_job j
    JOIN {schema}.schedules_jobversion v ON v.job_id = j.id AND v.version = j.version AND v.rate_limit IS NOT NULL
    WHERE (j.deleted_at IS NULL OR j.workflow_id IS NOT NULL) AND j.id > %(after)s
    UNION
    SELECT b.owner FROM tickets_bucket b WHERE b.tenant_id = %(tenant)s AND b.owner > %(after)s) o
ORDER BY o.id LIMIT %(limit)s
"""

_RATES = """
SELECT j.id, (v.rate_limit->>'runs')::int, (v.rate_limit->>'per_s')::int, (v.rate_limit->>'burst')::int
FROM {schema}.schedules_job j
JOIN {schema}.schedules_jobversion v ON v.job_id = j.id AND v.version = j.version AND v.rate_limit IS NOT NULL
WHERE j.id = ANY(%s) AND (j.deleted_at IS NULL OR j.workflow_id IS NOT NULL OR EXISTS (
    SELECT 1 FROM {schema}.executions_execution e WHERE e.job_id = j.id AND e.finished_at IS NULL))
"""

_LOCK = "SELECT 1 FROM {schema}.schedules_job WHERE id = ANY(%s) ORDER BY id FOR SHARE"


def buckets(conn: Conn, tenancy: Tenancy, after: UUID, dry_run: bool) -> Found:
    """Rates whose bucket is missing or another one, and buckets without a rate."""
    wanted = {"after": after, "tenant": tenancy.id, "limit": CHUNK}
    ids = [row[0] for row in conn.execute(in_schema(_OWNERS, tenancy), wanted)]
    last = ids[-1] if len(ids) == CHUNK else None
    put, drop = _apart(conn, tenancy, ids)
    if (put or drop) and not dry_run:
        conn.execute(in_schema(_LOCK, tenancy), [[*(one.owner for one in put), *drop]])
        put, drop = _apart(conn, tenancy, [*(one.owner for one in put), *drop])
        filling.put(conn, tenancy.id, put)
        filling.drop(conn, tenancy.id, drop)
    findings = [Finding("rate_without_bucket", tenancy.slug, one.owner, "bucket made as the job says") for one in put]
    return findings + [Finding("bucket_without_rate", tenancy.slug, one, "removed") for one in drop], last


def _apart(conn: Conn, tenancy: Tenancy, ids: Sequence[UUID]) -> tuple[list[Rate], list[UUID]]:
    """What to put and what to drop."""
    rows = conn.execute(in_schema(_RATES, tenancy), [list(ids)]).fetchall()
    right = {row[0]: Rate(row[0], row[1] / row[2], row[3]) for row in rows}
    there = filling.known(conn, tenancy.id, ids)
    return [one for key, one in right.items() if there.get(key) != one], sorted(there.keys() - right.keys())
