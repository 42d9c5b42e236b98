"""The outline of an operation, for pages over all tenants: written wherever the operation is."""

from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from apps.due import outlines
from apps.due.outlines import Outline
from apps.operations.models import Operation

BACKFILL = "backfill"
_SAME = tuple(name for name in Outline._fields if name not in ("operation_id", "tenant_id", "schedule_id"))


def outline(conn: psycopg.Connection[Any], one: Operation, *, tenant_id: int, now: datetime) -> None:
    """Writes it as the operation is now, in the transaction that changed it."""
    schedule = one.filter.get("schedule") if one.action == BACKFILL and isinstance(one.filter, dict) else None
    found = Outline(
        operation_id=one.pk, tenant_id=tenant_id, schedule_id=UUID(schedule) if isinstance(schedule, str) else None,
        **{name: getattr(one, name) for name in _SAME},
    )  # fmt: skip
    outlines.put(conn, found, now=now)
