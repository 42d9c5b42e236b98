"""What the checks of repairs share: a finding, and how far a look goes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args
from uuid import UUID

import psycopg
from psycopg import sql

from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]
CHUNK = 500
NOTHING = UUID(int=0)

# What is put right, by the name of its check; `incomplete` and `parked` are for a person.
Repair = Literal[
    "schedule_without_due_entry", "due_entry_without_schedule", "cursor_ahead", "gap", "execution_without_ticket",
    "ticket_without_execution", "blocked_not_decided", "rate_without_bucket", "bucket_without_rate",
    "operation_without_turn",
]  # fmt: skip
CheckName = Repair | Literal["incomplete", "parked"]
REPAIRS: tuple[Repair, ...] = get_args(Repair)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that had come apart."""

    check: CheckName
    tenant: str
    object_id: UUID
    detail: str


Found = tuple[list[Finding], UUID | None]  # what came apart, and where to go on; None at the end
Check = Callable[[Conn, Tenancy, UUID, bool], Found]


def in_schema(query: str, tenancy: Tenancy) -> sql.Composed:
    """The statement for this tenant's schema."""
    return sql.SQL(query).format(schema=sql.Identifier(tenancy.schema))
