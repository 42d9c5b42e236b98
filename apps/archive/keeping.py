"""What the deletion of a tenant asks (`tenants.keepers`): nothing of it goes while anything of it is held."""

from typing import Any

import psycopg

from apps.archive import holds

Conn = psycopg.Connection[Any]

_HAS_HOLDS = "SELECT to_regclass(format('%%I.archive_legalhold', %s::text)) IS NOT NULL"


def kept_by(conn: Conn, schema: str) -> str:
    """Why nothing of this tenant may be deleted; empty when it may."""
    row = conn.execute(_HAS_HOLDS, [schema]).fetchone()
    found = holds.open_holds(conn, schema) if row is not None and row[0] else []  # a schema may be behind, or gone
    if not found:
        return ""
    more = f" (and {len(found) - 1:,} more)" if len(found) > 1 else ""
    return f"It is under legal hold {found[0].id}{more}: {found[0].reason}"


def remove_some(conn: Conn, tenant_id: int, schema: str) -> int:
    """Nothing of a tenant is outside of the database."""
    return 0


def orphans(conn: Conn) -> list[str]:
    """Nothing is outside of the database."""
    return []
