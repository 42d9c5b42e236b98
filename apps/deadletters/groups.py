"""Open dead letters by what they have in common: their fingerprint. One step down an index for each group."""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from kernel.keyset import Order, Page, Position
from tenants import door
from tenants.models import Tenant
from tenants.statements import run_in

ORDER = Order("e.fingerprint", "text", descending=False)
COUNT_MOST = 1_000  # letters of a group that are counted


class Group(NamedTuple):
    """At least `letters` are open; exactly so many when `is_exact`. Error, job and times are of the newest one."""

    fingerprint: str
    letters: int
    is_exact: bool
    newest: UUID
    job_id: UUID
    error: Any
    oldest_at: datetime
    newest_at: datetime


_DESCRIBED = f"""
SELECT c.fingerprint, least(counted.n, {COUNT_MOST}), counted.n <= {COUNT_MOST}, newest.id, newest.job_id,
       newest.error::text, oldest.created_at, newest.created_at
FROM chosen c
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT 1 FROM {{schema}}.deadletters_deadletter d
        WHERE d.resolved_at IS NULL AND d.fingerprint = c.fingerprint LIMIT {COUNT_MOST + 1}) one) counted
CROSS JOIN LATERAL (
    SELECT d.id, d.job_id, d.error, d.created_at FROM {{schema}}.deadletters_deadletter d
    WHERE d.resolved_at IS NULL AND d.fingerprint = c.fingerprint ORDER BY d.id DESC LIMIT 1) newest
CROSS JOIN LATERAL (
    SELECT d.created_at FROM {{schema}}.deadletters_deadletter d
    WHERE d.resolved_at IS NULL AND d.fingerprint = c.fingerprint ORDER BY d.id LIMIT 1) oldest
"""

_GROUPS = f"""
WITH RECURSIVE prints AS (
    (SELECT fingerprint FROM {{schema}}.deadletters_deadletter
     WHERE resolved_at IS NULL AND fingerprint > $1 ORDER BY fingerprint LIMIT 1)
    UNION ALL
    SELECT (SELECT d.fingerprint FROM {{schema}}.deadletters_deadletter d
            WHERE d.resolved_at IS NULL AND d.fingerprint > p.fingerprint ORDER BY d.fingerprint LIMIT 1)
    FROM prints p WHERE p.fingerprint IS NOT NULL),
chosen AS (SELECT fingerprint FROM prints WHERE fingerprint IS NOT NULL LIMIT $2)
{_DESCRIBED}
ORDER BY c.fingerprint
"""

_GROUP = f"WITH chosen AS (SELECT $1::text AS fingerprint) {_DESCRIBED}"


def group_read(tenant: Tenant, fingerprint: str) -> Group | None:
    """One group; None when nothing of it is open."""
    found = run_in(door.raw(), _GROUP, tenant.schema_name, [fingerprint]).fetchone()
    return None if found is None else Group(*found)._replace(error=orjson.loads(found[5]))


def groups_read(tenant: Tenant, *, after: Position | None = None, size: int) -> Page[Group]:
    """Groups in the order of their fingerprints."""
    start = "" if after is None else after.value or ""
    found = [Group(*row) for row in run_in(door.raw(), _GROUPS, tenant.schema_name, [start, size + 1])]
    rows = [one._replace(error=orjson.loads(one.error)) for one in found]
    shown = rows[:size]
    return Page(shown, Position(shown[-1].newest, shown[-1].fingerprint) if len(rows) > size else None)
