"""What all webhooks of a tenant ask for together, kept at the tenant, where the hot paths see it without a query.

Too much in it costs events that nobody carries out; too little would lose some. So it is only written under the
tenant's row, from what the webhooks say then.
"""

from typing import Any

import orjson
import psycopg
from psycopg import sql

from kernel.eventtypes import wanted_types

Conn = psycopg.Connection[Any]
HEARD_S = 10.0  # by then every process has read the tenants anew (tenants.registry.REFRESH_S)

_LOCK = "SELECT 1 FROM tenants_tenant WHERE id = %s FOR NO KEY UPDATE"
_TYPES = "SELECT types::text FROM {schema}.webhooks_webhook WHERE enabled"
_SET = "UPDATE tenants_tenant SET event_types = %s::jsonb WHERE id = %s AND event_types IS DISTINCT FROM %s::jsonb"


def lock(conn: Conn, tenant_id: int) -> None:
    """Whoever changes webhooks of this tenant waits until the transaction ends."""
    conn.execute(_LOCK, [tenant_id])


def refresh(conn: Conn, schema: str, tenant_id: int) -> None:
    """Brings it up to date. Locks the tenant's row first, so a webhook's row must not be held without that."""
    with conn.transaction():
        lock(conn, tenant_id)
        rows = conn.execute(sql.SQL(_TYPES).format(schema=sql.Identifier(schema))).fetchall()
        types: frozenset[str] = frozenset().union(*(wanted_types(orjson.loads(row[0])) for row in rows))
        text = orjson.dumps(sorted(types)).decode()
        conn.execute(_SET, [text, tenant_id, text])
