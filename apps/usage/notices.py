"""Noticing that a limit comes near (80 %) or is reached (100 %), in the transaction that brings it there.

Each is noted at most once a day for a tenant, a limit and a level. Whoever tells tenants takes them with `take`.
"""

from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg

from apps.usage.models import LEVELS

Conn = psycopg.Connection[Any]

_NOTE = """
INSERT INTO usage_notice (tenant_id, quota, level, day, most, use, noted_at)
VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""

_TAKE = """
WITH found AS MATERIALIZED (
    SELECT tenant_id, quota, level, day FROM usage_notice WHERE told_at IS NULL
    ORDER BY noted_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE usage_notice n SET told_at = %(now)s FROM found f
WHERE (n.tenant_id, n.quota, n.level, n.day) = (f.tenant_id, f.quota, f.level, f.day)
RETURNING n.tenant_id, n.quota, n.level, n.most, n.use, n.noted_at
"""


class Near(NamedTuple):
    """A limit of a tenant that came near (level 80) or was reached (level 100)."""

    tenant_id: int
    quota: str
    level: int
    limit: int
    use: int
    noted_at: datetime


def crossed(
    conn: Conn, tenant_id: int, *, quota: str, limit: int | None, before: int, after: int, now: datetime
) -> None:
    """Notes the levels that lie between a use before and after. The caller holds what makes the two certain."""
    for level in levels_crossed(limit, before=before, after=after):
        conn.execute(_NOTE, [tenant_id, quota, level, now.astimezone(UTC).date(), limit, after, now])


def any_untold(conn: Conn) -> bool:
    """Whether there is one that nobody was told of yet."""
    row = conn.execute("SELECT EXISTS (SELECT 1 FROM usage_notice WHERE told_at IS NULL)").fetchone()
    return bool(row and row[0])


def take(conn: Conn, *, now: datetime, limit: int) -> list[Near]:
    """Takes what nobody was told of yet, the oldest first; it is told when the current transaction commits."""
    found = [Near._make(row) for row in conn.execute(_TAKE, {"now": now, "limit": limit})]
    return sorted(found, key=lambda one: (one.noted_at, one.level))


def levels_crossed(limit: int | None, *, before: int, after: int) -> list[int]:
    """Those of LEVELS that `after` reaches and `before` did not."""
    if not limit:
        return []
    return [level for level in LEVELS if before * 100 < limit * level <= after * 100]
