"""What operators tell dispatchers, and do to leases: conditional statements, each with its audit row."""

from collections import Counter
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from django.db import transaction

from apps.audit.services import Actor, Entry, record, record_many
from apps.due import leases
from apps.due.leases import Slice
from kernel.errors import Conflict
from tenants import door

Conn = psycopg.Connection[Any]


class Spread(NamedTuple):
    """Leases that are held by another live dispatcher than they should be: slice -> (term, holder, who should)."""

    misplaced: dict[Slice, tuple[int, UUID, UUID]]
    held: Counter[UUID]  # how many each live dispatcher has
    share: Counter[UUID]  # and should have


def spread_read(conn: Conn) -> Spread:
    """How the leases of live holders are spread, and how they should be."""
    live = leases.live_dispatchers(conn)
    found = Spread({}, Counter(), Counter())
    for one in leases.read(conn):
        should = leases.preferred((one.kind, one.shard), live)
        if one.owner is None or one.expired_s >= 0 or should is None:
            continue
        found.held[one.owner] += 1
        found.share[should] += 1
        if one.owner != should:
            found.misplaced[one.kind, one.shard] = (one.term, one.owner, should)
    return found


def dispatcher_drain(*, dispatcher_id: UUID, wanted: bool, actor: Actor, now: datetime, reason: str = "") -> None:
    """Tells a dispatcher to stand back, or to take its share again. Conflict when it is gone or was told so."""
    with transaction.atomic():
        if not leases.drain(door.raw(), dispatcher_id, wanted=wanted):
            raise Conflict("The dispatcher is gone, or was told so already.")
        record(
            actor=actor, action="dispatcher.drain" if wanted else "dispatcher.undrain", object_type="dispatcher",
            object_id=dispatcher_id, now=now, tenant_id=None, before={"drain_wanted": not wanted},
            after={"drain_wanted": wanted}, reason=reason,
        )  # fmt: skip


def lease_release(*, kind: str, shard: int, term: int, actor: Actor, now: datetime, reason: str = "") -> None:
    """Takes a lease from its holder at that term. Conflict when it has another holder or none by now."""
    with transaction.atomic():
        if not leases.release(door.raw(), kind=kind, shard=shard, term=term):
            raise Conflict("It has another holder by now, or none.")
        record(
            actor=actor, action="lease.release", object_type="lease", object_id=f"{kind}/{shard}", now=now,
            tenant_id=None, before={"term": term}, reason=reason,
        )  # fmt: skip


def leases_rebalance(*, actor: Actor, now: datetime, reason: str = "") -> int:
    """Takes leases from those who should not have them, for those who should; returns how many."""
    with transaction.atomic():
        conn = door.raw()
        misplaced = sorted(spread_read(conn).misplaced.items())
        done = [
            Entry(
                "lease.release", "lease", f"{kind}/{shard}", before={"term": term, "owner": str(holder)}, reason=reason
            )
            for (kind, shard), (term, holder, _) in misplaced
            if leases.release(conn, kind=kind, shard=shard, term=term)
        ]
        record_many(done, actor=actor, now=now, tenant_id=None)
    return len(done)
