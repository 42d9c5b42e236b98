"""What the checks of repairs share: a finding, and how far a look goes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]
CHUNK = 500
NOTHING = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that had come apart."""

    check: str
    tenant: str
    object_id: UUID
    detail: str


Found = tuple[list[Finding], UUID | None]  # what came apart, and where to go on; None at the end
Check = Callable[[Conn, Tenancy, UUID, bool], Found]


def in_schema(query: str, tenancy: Tenancy) -> sql.Composed:
    """The statement for this tenant's schema."""
    return sql.SQL(query).format(schema=sql.Identifier(tenancy.schema))
