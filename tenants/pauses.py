"""Holding back what operators do not want to start: everything, a pool, or one tenant's runs, in a pool or in all.

Schedules go on: their runs are made and wait, so nothing is lost, and how late they are is told. What was handed to a
queue or runs already goes on. Release hears of it at once (a trigger tells), leases from pull queues look each time.
Each change is one conditional statement and its audit row, in one transaction.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from django.db import transaction

from apps.audit.services import Actor, record
from kernel.errors import Conflict, FieldError, InvalidInput
from kernel.pools import POOLS
from tenants.models import DispatchPause, Tenant

Conn = psycopg.Connection[Any]
REASON_CHARS = 500
COUNTED = 10_000

# No index has who is paused, so that the table of tenants is read whole: nothing for each second.
_OF_TENANTS = """
SELECT slug, pool, count(*) OVER () FROM (
    SELECT slug, '' AS pool FROM tenants_tenant WHERE dispatch_paused AND status <> 'deleting'
    UNION ALL
    SELECT t.slug, p.pool FROM tenants_dispatchpause p JOIN tenants_tenant t ON t.id = p.tenant_id
    WHERE t.status <> 'deleting'
    LIMIT %s) held
ORDER BY pool, slug LIMIT %s
"""


class HeldBack(NamedTuple):
    """What operators hold back of single tenants: how many pauses (more than COUNTED is COUNTED + 1), and the slug and
    pool of the first of them, whole tenants (pool "") before pools."""

    total: int = 0
    first: tuple[tuple[str, str], ...] = ()


def pauses() -> Sequence[DispatchPause]:
    """What is held back now, the widest first."""
    return sorted(DispatchPause.objects.all(), key=lambda one: (one.tenant_id or 0, one.pool))


def held_back(conn: Conn, *, most: int) -> HeldBack:
    """Of single tenants, `most` of them by name."""
    rows = conn.execute(_OF_TENANTS, [COUNTED + 1, most]).fetchall()
    return HeldBack(rows[0][2], tuple((slug, pool) for slug, pool, _ in rows)) if rows else HeldBack()


def dispatch_pause(
    *, actor: Actor, now: datetime, pool: str = "", tenant_id: int | None = None, reason: str = ""
) -> None:
    """Holds back a pool ("" is all of them), of one tenant or of all. Conflict when it is; InvalidInput."""
    if pool and pool not in POOLS:
        raise InvalidInput([FieldError("/pool", "unknown", f"There are the pools {', '.join(POOLS)}.")])
    with transaction.atomic():
        _, new = DispatchPause.objects.get_or_create(
            pool=pool, tenant_id=tenant_id,
            defaults={"reason": reason[:REASON_CHARS], "paused_by": actor.stored, "paused_at": now},
        )  # fmt: skip
        if not new:
            raise Conflict("It is paused already.", code="already_paused")
        _record("pause", actor, pool, tenant_id, now, reason)


def dispatch_resume(
    *, actor: Actor, now: datetime, pool: str = "", tenant_id: int | None = None, reason: str = ""
) -> None:
    """Lets it go on. Conflict when it is not held back."""
    with transaction.atomic():
        gone, _ = DispatchPause.objects.filter(pool=pool, tenant_id=tenant_id).delete()
        if not gone:
            raise Conflict("It is not paused.", code="not_paused")
        _record("resume", actor, pool, tenant_id, now, reason)


def tenant_dispatch_set(*, tenant: Tenant, paused: bool, actor: Actor, now: datetime, reason: str = "") -> None:
    """Holds back all runs of one tenant, or lets them go on. Conflict when it is so already."""
    with transaction.atomic():
        changed = Tenant.objects.filter(pk=tenant.pk, dispatch_paused=not paused).update(dispatch_paused=paused)
        if not changed:
            raise Conflict("It is paused already." if paused else "It is not paused.")
        record(
            actor=actor, action="tenant.pause" if paused else "tenant.resume", object_type="tenant",
            object_id=tenant.pk, now=now, tenant_id=tenant.pk, before={"dispatch_paused": not paused},
            after={"dispatch_paused": paused}, reason=reason,
        )  # fmt: skip


def _record(verb: str, actor: Actor, pool: str, tenant_id: int | None, now: datetime, reason: str) -> None:
    where = {"pool": pool or "all", "tenant": tenant_id or "all"}
    record(
        actor=actor, action=f"dispatch.{verb}", object_type="dispatch", object_id=pool or "all", now=now,
        tenant_id=tenant_id, before=where if verb == "resume" else None, after=where if verb == "pause" else None,
        reason=reason,
    )  # fmt: skip
