"""Limits that came near, told to the tenants: from the notices of `apps.usage` to events."""

import logging
from typing import Any

import psycopg

from apps.events import store as events
from apps.usage import notices
from apps.usage.notices import Near
from tenants.registry import Registry
from tenants.work import database_now

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
AT_ONCE = 100


def tell_near(conn: Conn, registry: Registry) -> int:
    """Takes what nobody was told of yet and writes the events; how many. One tenant's trouble is not the others'."""
    told = 0
    if not notices.any_untold(conn):
        return told
    with conn.transaction():
        for near in notices.take(conn, now=database_now(conn), limit=AT_ONCE):
            tenancy = registry.get(near.tenant_id)
            if tenancy is None:
                continue
            try:
                with conn.transaction():
                    events.emit(conn, tenancy.schema, tenancy.id, [_event(near)], ring=bool(tenancy.wants))
                told += 1
            except psycopg.Error as error:
                if conn.closed:
                    raise
                log.warning("tenant %s is not told that %s is near its limit: %s", tenancy.slug, near.quota, error)
    return told


def _event(near: Near) -> events.NewEvent:
    data = {
        "quota": near.quota, "level_percent": near.level, "limit": near.limit, "use": near.use,
    }  # fmt: skip
    return events.new_event("quota.near", near.noted_at, data)
