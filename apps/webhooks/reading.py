"""Reading webhooks and their deliveries, for the API and the portal. In the tenant's schema."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from psycopg import sql

from apps.webhooks.models import Webhook
from apps.webhooks.rules import as_given
from kernel.eventtypes import DELIVERY, TEST_TYPE
from kernel.ids import ID_SLACK, first_id_at
from kernel.transitions import TICKET_STATES
from tenants import door
from tenants.models import Tenant

EVENT_HEX = 32


class DeliveryRow(NamedTuple):
    """A delivery: its history and, while it is alive, its live state."""

    id: UUID
    webhook_id: UUID
    run_key: str
    type: str
    state: str
    attempt_count: int
    created_at: datetime
    available_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    result: Any
    error: Any
    replay_of: UUID | None


_ROWS = f"""
SELECT e.id, e.job_id, e.run_key, e.payload ->> 'type', coalesce(t.state, e.state),
       coalesce(t.attempt, e.attempt_count), e.created_at, t.available_at, coalesce(t.first_started_at, e.started_at),
       e.finished_at, e.result::text, e.error::text, e.replay_of
FROM {{schema}}.executions_execution e LEFT JOIN tickets_ticket t ON t.execution_id = e.id
WHERE e.job_id = %s AND e.trigger = '{DELIVERY}'
"""


def webhook_find(webhook_id: UUID) -> Webhook | None:
    """A webhook that is not deleted."""
    return Webhook.objects.filter(pk=webhook_id, deleted_at=None).first()


def webhook_shape(webhook: Webhook, *, now: datetime) -> dict[str, Any]:
    """A webhook, without its secrets."""
    overlaps = webhook.former_until is not None and webhook.former_until > now
    return {
        "id": webhook.pk,
        **as_given(webhook),
        "disabled_at": webhook.disabled_at,
        "disabled_reason": webhook.disabled_reason or None,
        "failing_since": webhook.failing_since,
        "failures": webhook.failures,
        "last_error": webhook.last_error or None,
        "last_success_at": webhook.last_success_at,
        "former_secret_until": webhook.former_until if overlaps else None,
        "replaying": webhook.replay or None,
        "created_at": webhook.created_at,
        "updated_at": webhook.updated_at,
    }


def delivery_read(tenant: Tenant, webhook_id: UUID, delivery_id: UUID) -> DeliveryRow | None:
    """One delivery of a webhook."""
    row = door.raw().execute(_in(f"{_ROWS} AND e.id = %s", tenant), [webhook_id, delivery_id]).fetchone()
    return None if row is None else _row(row)


def deliveries_read(
    tenant: Tenant, webhook_id: UUID, *, states: Sequence[str] = (), event_id: UUID | None = None,
    created_after: datetime | None = None, created_before: datetime | None = None, before: UUID | None = None,
    limit: int,
) -> list[DeliveryRow]:  # fmt: skip
    """Deliveries of a webhook by descending id."""
    parts: list[str] = []
    values: list[Any] = [webhook_id]
    if states:
        live = [state for state in states if state in TICKET_STATES]
        kept = [state for state in states if state not in TICKET_STATES]
        parts.append("((e.finished_at IS NULL AND t.state = ANY(%s)) OR e.state = ANY(%s))")
        values += [live, kept]
    for condition, value in (
        ("left(e.run_key, 32) = %s", event_id.hex if event_id is not None else None),
        ("e.created_at > %s", created_after),
        ("e.id > %s", first_id_at(created_after - ID_SLACK) if created_after is not None else None),
        ("e.created_at < %s", created_before),
        ("e.id < %s", first_id_at(created_before + ID_SLACK) if created_before is not None else None),
        ("e.id < %s", before),
    ):
        if value is not None:
            parts.append(condition)
            values.append(value)
    query = " AND ".join([_ROWS, *parts]) + " ORDER BY e.id DESC LIMIT %s"
    return [_row(row) for row in door.raw().execute(_in(query, tenant), [*values, limit])]


def delivery_shape(row: DeliveryRow) -> dict[str, Any]:
    """A delivery. Of what the receiver answered only the status is shown."""
    result = orjson.loads(row.result) if row.result else {}
    error = orjson.loads(row.error) if row.error else None
    status = result.get("status") if isinstance(result, dict) else None
    return {
        "id": row.id,
        "webhook": row.webhook_id,
        "event": None if row.type == TEST_TYPE else UUID(row.run_key[:EVENT_HEX]),
        "type": row.type,
        "webhook_id": row.run_key,
        "state": row.state,
        "attempt_count": row.attempt_count,
        "next_attempt_at": row.available_at if row.state == "ready" else None,
        "status": status if status is not None else (error or {}).get("status"),
        "error": {name: error[name] for name in ("class", "message") if name in error} if error else None,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "replay_of": row.replay_of,
    }


def _row(row: tuple[Any, ...]) -> DeliveryRow:
    return DeliveryRow._make(row)


def _in(query: str, tenant: Tenant) -> sql.Composed:
    return sql.SQL(query).format(schema=sql.Identifier(tenant.schema_name))
