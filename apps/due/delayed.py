"""Due entries of delayed executions, when their job changes."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson
import psycopg

from apps.due.entries import keyed
from kernel.limitrules import Flow

Conn = psycopg.Connection[Any]

_SET_LIMIT = """
WITH found AS (SELECT key FROM due_dueentry WHERE key = ANY(%s) AND kind = 'execution' ORDER BY key FOR UPDATE)
UPDATE due_dueentry d SET max_concurrency = %s FROM found WHERE d.key = found.key
"""


_SET_FLOWS = """
WITH m AS (SELECT * FROM json_to_recordset(%s::json) AS m(key uuid, flow uuid, flow_limit int, flow_key text)),
found AS (SELECT d.key FROM due_dueentry d JOIN m ON m.key = d.key
    WHERE d.kind = 'execution' ORDER BY d.key FOR UPDATE OF d)
UPDATE due_dueentry d SET flow = m.flow, flow_limit = m.flow_limit, flow_key = m.flow_key
FROM found JOIN m ON m.key = found.key WHERE d.key = found.key
"""


_FOLLOW = """
WITH found AS (
    SELECT key FROM due_dueentry WHERE key = ANY(%s) AND tenant_id = %s AND kind = 'execution' ORDER BY key FOR UPDATE)
UPDATE due_dueentry d SET followed = true FROM found WHERE d.key = found.key
"""


def set_limit(conn: Conn, keys: Sequence[UUID], limit: int | None) -> None:
    """The tickets of these executions will have this limit; 0 while their job is paused."""
    if keys:
        conn.execute(_SET_LIMIT, [list(keys), limit])


def set_flows(conn: Conn, flows: Mapping[UUID, Flow]) -> None:
    """The tickets of these executions will queue behind these flows."""
    if flows:
        rows = [{"key": key, **keyed(flow)} for key, flow in flows.items()]
        conn.execute(_SET_FLOWS, [orjson.dumps(rows).decode()])


def follow(conn: Conn, keys: Collection[UUID], *, tenant_id: int) -> None:
    """Locks those of these executions that wait for their time, and marks that somebody waits for their end."""
    conn.execute(_FOLLOW, [list(keys), tenant_id])


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
