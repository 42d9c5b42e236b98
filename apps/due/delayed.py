"""Due entries of delayed executions, when their job changes."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg

Conn = psycopg.Connection[Any]

_SET_LIMIT = """
WITH found AS (SELECT key FROM due_dueentry WHERE key = ANY(%s) AND kind = 'execution' ORDER BY key FOR UPDATE)
UPDATE due_dueentry d SET max_concurrency = %s FROM found WHERE d.key = found.key
"""


def set_limit(conn: Conn, keys: Sequence[UUID], limit: int | None) -> None:
    """The tickets of these executions will have this limit; 0 while their job is paused."""
    if keys:
        conn.execute(_SET_LIMIT, [list(keys), limit])


def count_of_tenant(conn: Conn, tenant_id: int) -> int:
    """How many executions of a tenant wait for their time."""
    row = conn.execute(
        "SELECT count(*) FROM due_dueentry WHERE tenant_id = %s AND kind = 'execution'", [tenant_id]
    ).fetchone()
    assert row is not None
    return int(row[0])


def count_of_tenants(conn: Conn, tenant_ids: Sequence[int]) -> dict[int, int]:
    """The same of many tenants; those without any are left out."""
    rows = conn.execute(
        "SELECT tenant_id, count(*) FROM due_dueentry WHERE tenant_id = ANY(%s) AND kind = 'execution' GROUP BY 1",
        [list(tenant_ids)],
    )
    return dict(rows.fetchall())
