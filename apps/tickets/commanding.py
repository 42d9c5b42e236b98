"""What operators tell workers, and do to a ticket that waits: one conditional statement and its audit row each."""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from apps.audit.services import Actor, record
from apps.tickets import workers
from apps.tickets.store import notify_ready
from kernel.errors import Conflict
from tenants import door

# Waits for its time, or lies at the broker under the release that was looked at: to be released anew, at once.
_RELEASE_NOW = """
UPDATE tickets_ticket SET state = 'ready', rank = NULL, available_at = %(now)s
WHERE execution_id = %(id)s AND tenant_id = %(tenant)s
  AND ((state = 'queued' AND release = %(release)s)
       OR (state = 'ready' AND rank IS NULL AND available_at > %(now)s AND release IS NOT DISTINCT FROM %(release)s))
RETURNING pool
"""


def worker_drain(*, worker_id: UUID, wanted: bool, actor: Actor, now: datetime, reason: str = "") -> None:
    """Tells a worker to stand back, or to take work again. Conflict when it is gone, or was told so already."""
    with transaction.atomic():
        if not workers.drain(door.raw(), worker_id, wanted=wanted):
            raise Conflict("The worker is gone, or was told so already.")
        record(
            actor=actor, action="worker.drain" if wanted else "worker.undrain", object_type="worker",
            object_id=worker_id, now=now, tenant_id=None, before={"drain_wanted": not wanted},
            after={"drain_wanted": wanted}, reason=reason,
        )  # fmt: skip


def ticket_release(
    *, tenant_id: int, execution_id: UUID, release: int | None, actor: Actor, now: datetime, reason: str = ""
) -> None:
    """Lets a run go now that waits between tries, or whose message may be lost; `release` is its last number.

    A message that is still at the broker starts nothing: its number is not the ticket's any more. Conflict when it
    does not wait like this (any more).
    """
    with transaction.atomic():
        conn = door.raw()
        given = {"id": execution_id, "tenant": tenant_id, "release": release, "now": now}
        row = conn.execute(_RELEASE_NOW, given).fetchone()
        if row is None:
            raise Conflict("It does not wait like this any more.")
        record(
            actor=actor, action="ticket.release", object_type="execution", object_id=execution_id, now=now,
            tenant_id=tenant_id, before={"release": release}, reason=reason,
        )  # fmt: skip
        notify_ready(conn, {row[0]})
