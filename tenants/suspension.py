"""When tenants stood still: one row a suspension, which all that must not let time pass for them asks.

Hot paths know tenants from seconds ago (`tenants.registry`). What would be for good, such as a skip, an expiry or the
end of an approval's time, asks here instead, in its own transaction.
"""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from django.db.models import F

from tenants.models import Suspension, Tenant

Conn = psycopg.Connection[Any]

# Few tenants stand still or did lately, however many are asked for.
_SINCE = """
SELECT t.id, t.status <> 'active', s.began_at, s.ended_at FROM tenants_tenant t LEFT JOIN tenants_suspension s
ON s.tenant_id = t.id AND (s.ended_at IS NULL OR s.ended_at > %(since)s)
WHERE t.id = ANY(%(tenants)s) AND (t.status <> 'active' OR s.began_at IS NOT NULL) ORDER BY s.began_at
"""
_NOW = "SELECT id FROM tenants_tenant WHERE id = ANY(%s) AND status <> 'active'"


class Standstill(NamedTuple):
    """A time in which a tenant stood still: until `until`, or it still does. Its begin may be unknown."""

    since: datetime | None
    until: datetime | None


class Span(NamedTuple):
    """A time in which a tenant stood still, and that is over; `until` is left out of it."""

    since: datetime
    until: datetime


def standstills(conn: Conn, tenant_ids: Collection[int], *, since: datetime) -> dict[int, list[Standstill]]:
    """Times in which these tenants stood still that were not over at `since`, the oldest first. One look at all."""
    found, stopped = defaultdict[int, list[Standstill]](list), set[int]()
    for tenant_id, stands, began, ended in conn.execute(_SINCE, {"tenants": sorted(tenant_ids), "since": since}):
        if began is not None and (ended is not None or stands):  # who was let go by hand has an open one, and goes on
            found[tenant_id].append(Standstill(began, ended))
        if stands:
            stopped.add(tenant_id)
    for tenant_id in stopped:
        if not found[tenant_id] or found[tenant_id][-1].until is not None:  # stopped by hand: nobody knows since when
            found[tenant_id].append(Standstill(None, None))
    return dict(found)


def stands_since(conn: Conn, tenant_id: int, *, now: datetime) -> Standstill | None:
    """The standstill that a tenant is in; None when it goes on."""
    found = standstills(conn, [tenant_id], since=now).get(tenant_id, [])
    if not found:
        return None
    return found[-1] if found[-1].until is None else None


def standing_still(conn: Conn, tenant_ids: Collection[int]) -> set[int]:
    """Those of these tenants that stand still now."""
    return {row[0] for row in conn.execute(_NOW, [sorted(tenant_ids)])} if tenant_ids else set()


def begin(tenant: Tenant, *, now: datetime, reason: str = "") -> None:
    """A tenant that was active stands still. The caller holds its row."""
    Suspension.objects.filter(tenant=tenant, ended_at=None).update(ended_at=F("began_at"))  # let go by hand
    Suspension.objects.create(tenant=tenant, began_at=now, reason=reason)


def end(tenant: Tenant, *, now: datetime) -> Span | None:
    """It goes on; None when nobody knows since when it stood still. The caller holds its row."""
    row = Suspension.objects.filter(tenant=tenant, ended_at=None).first()
    if row is None:
        return None
    until = max(now, row.began_at)
    Suspension.objects.filter(pk=row.pk, ended_at=None).update(ended_at=until)
    return Span(row.began_at, until)
