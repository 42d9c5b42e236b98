"""Builders for the tests of events and webhooks: everything through the code that the processes run."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg

from tests.conftest import wait_until
from tests.fixtures_flow import NOW, actor, count, rows_of, started_now

if TYPE_CHECKING:
    from apps.events.store import EventRow
    from apps.tickets.values import Started
    from apps.webhooks.models import Webhook
    from apps.webhooks.services import Made
    from tenants.models import Tenant
    from tenants.registry import Registry, Tenancy

Conn = psycopg.Connection[Any]
URL = "http://127.0.0.1:9999/hook"


def make_webhook(tenant: Tenant, registry: Registry | None = None, *, now: datetime = NOW, **members: Any) -> Made:
    """A webhook for all events unless the caller says otherwise; the registry knows of it."""
    from apps.webhooks.services import webhook_create

    data = {"url": URL, "types": ["*"], **members}
    made = webhook_create(tenant=tenant, actor=actor(tenant), data=data, now=now)
    if registry is not None:
        registry.refresh(force=True)
    return made


def change_webhook(tenant: Tenant, webhook: Webhook, *, now: datetime = NOW, **patch: Any) -> Webhook:
    from apps.webhooks.services import webhook_update

    return webhook_update(tenant=tenant, actor=actor(tenant), webhook_id=webhook.pk, patch=patch, now=now)


def emit(conn: Conn, tenant: Tenant, type_: str = "schedule.resumed", **about: Any) -> UUID:
    """One event in the connection's current transaction; its id."""
    from apps.events import store

    event = store.new_event(type_, NOW, {"n": 1}, **about)
    store.emit(conn, tenant.schema_name, tenant.pk, [event])
    return event.id


def tenancy_of(registry: Registry, tenant: Tenant) -> Tenancy:
    registry.refresh(force=True)
    return registry.by_id[tenant.pk]


def carry(conn: Conn, registry: Registry, tenant: Tenant, **bounds: int) -> None:
    """The fan-out until no bell is left that may be answered now. Other transactions of the server may delay it."""
    from apps.webhooks.fanout import fan_out

    waiting = "SELECT count(*) FROM due_eventbell WHERE tenant_id = %s AND available_at <= clock_timestamp()"

    def silent() -> bool:
        fan_out(conn, tenancy_of(registry, tenant), **bounds)
        return count(conn, waiting, tenant.pk) == 0

    wait_until(silent, "the bells to be answered")


def deliveries_of(conn: Conn, tenant: Tenant, webhook: Webhook | None = None) -> list[dict[str, Any]]:
    """Executions that carry events out, oldest first."""
    found = [one for one in rows_of(conn, tenant, "executions_execution") if one["trigger"] == "webhook"]
    chosen = [one for one in found if webhook is None or one["job_id"] == webhook.pk]
    return sorted(chosen, key=lambda one: one["id"])


def events_of(conn: Conn, tenant: Tenant) -> list[dict[str, Any]]:
    """All events in their order."""
    return sorted(rows_of(conn, tenant, "events_event"), key=lambda one: (one["tx"], one["id"]))


def types_of(conn: Conn, tenant: Tenant) -> list[str]:
    return [one["type"] for one in events_of(conn, tenant)]


def webhook_row(conn: Conn, tenant: Tenant, webhook: Webhook) -> dict[str, Any]:
    [found] = [one for one in rows_of(conn, tenant, "webhooks_webhook") if one["id"] == webhook.pk]
    return found


def begin(conn: Conn, execution_id: UUID) -> Started:
    """Released and started at once."""
    [started] = started_now(conn, [execution_id], uuid.uuid4())
    return started


def read_all(conn: Conn, tenant: Tenant, after: Any = None) -> list[EventRow]:
    """What a reader who asks now is given after a position, as the API does it."""
    from apps.events import store

    start = after or store.Position(0, store.FIRST)
    return store.read_after(conn, tenant.schema_name, start, limit=1_000, bound=store.horizon(conn))
