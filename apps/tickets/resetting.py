"""A person closes a circuit breaker: the next call is made, and what waited for it is let go."""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from apps.audit.services import Actor, record
from apps.tickets import breakers
from apps.tickets.models import Breaker
from kernel.errors import Conflict, NotFound
from tenants import door


def breaker_reset(*, actor: Actor, breaker_id: UUID, now: datetime, tenant_id: int | None = None) -> Breaker:
    """Closes a breaker, of this tenant when one is given. NotFound; Conflict when it is closed."""
    with transaction.atomic():
        before = Breaker.objects.filter(pk=breaker_id).first()
        if before is None or tenant_id not in (None, before.tenant_id):
            raise NotFound("There is no such breaker.")
        found = breakers.reset(door.raw(), breaker_id, tenant_id=tenant_id)
        if found is None:
            raise Conflict("The breaker is closed: calls are made.", code="breaker_closed")
        record(
            actor=actor, action="breaker.reset", object_type="breaker", object_id=breaker_id, now=now,
            tenant_id=before.tenant_id, before={"state": before.state, "destination": before.destination},
        )  # fmt: skip
    breakers.wake(door.raw(), tenant_id=found[0], destination=found[1])
    return Breaker.objects.filter(pk=breaker_id).get()
