"""When tenants stood still: one row a suspension, which all that must not let time pass for them asks.

Hot paths know tenants from seconds ago (`tenants.registry`). What would be for good, such as a skip, an expiry or the
end of an approval's time, asks here instead, in its own transaction.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from django.db.models import F

from tenants.models import Suspension, Tenant

Conn = psycopg.Connection[Any]

_NEWEST = """
SELECT t.id, t.status <> 'active', s.began_at, s.ended_at FROM tenants_tenant t LEFT JOIN LATERAL (
    SELECT began_at, ended_at FROM tenants_suspension WHERE tenant_id = t.id ORDER BY began_at DESC LIMIT 1) s ON true
WHERE t.id = ANY(%s) AND (t.status <> 'active' OR s.began_at IS NOT NULL)
"""
_NOW = "SELECT id FROM tenants_tenant WHERE id = ANY(%s) AND status <> 'active'"


class Standstill(NamedTuple):
    """The newest time in which a tenant stood still: until `until`, or it still does. Its begin may be unknown."""

    since: datetime | None
    until: datetime | None

    @property
    def lasts(self) -> bool:
        return self.until is None


class Span(NamedTuple):
    """A time in which a tenant stood still; `until` is left out of it, and None when it still does."""

    since: datetime
    until: datetime | None


def newest(conn: Conn, tenant_ids: Collection[int]) -> dict[int, Standstill]:
    """The newest standstill of those tenants that have had one. One look, whatever the number of tenants."""
    found = {}
    for tenant_id, stands, since, until in conn.execute(_NEWEST, [sorted(tenant_ids)]):
        if stands:  # without a row of its own it was stopped by hand: since when is not known
            found[tenant_id] = Standstill(since if until is None else None, None)
        else:
            found[tenant_id] = Standstill(since, until or since)
    return found


def standing_still(conn: Conn, tenant_ids: Collection[int]) -> set[int]:
    """Those of these tenants that stand still now."""
    return {row[0] for row in conn.execute(_NOW, [sorted(tenant_ids)])} if tenant_ids else set()


def spans(tenant_id: int, *, since: datetime, until: datetime) -> list[Span]:
    """All times of a range in which a tenant stood still, the oldest first."""
    rows = Suspension.objects.filter(tenant_id=tenant_id, began_at__lt=until).exclude(ended_at__lte=since)
    return [Span(one.began_at, one.ended_at) for one in rows.order_by("began_at")]


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
