"""What operators do to rows of the live tables: conditional changes, each with its audit row in one transaction."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction

from apps.audit.services import Actor, record
from apps.due.models import DueEntry
from apps.outcomes.cancel import execution_cancel
from apps.tickets.models import Ticket
from apps.tickets.resetting import breaker_reset
from kernel.errors import Conflict, NotFound
from tenants.models import Tenant


def entries_unpark(*, keys: Sequence[UUID], actor: Actor, now: datetime) -> int:
    """Serves entries again that were put aside; returns how many still were. They fire in the next pass."""
    with transaction.atomic():
        parked = DueEntry.objects.select_for_update().filter(key__in=keys).exclude(parked="").order_by("key")
        found = {entry.key: entry for entry in parked}
        DueEntry.objects.filter(key__in=list(found)).update(parked="")
        for entry in found.values():
            record(
                actor=actor, action="dueentry.unpark", object_type="dueentry", object_id=entry.key, now=now,
                tenant_id=entry.tenant_id, before={"parked": entry.parked},
            )  # fmt: skip
    return len(found)


def breakers_reset(*, ids: Sequence[UUID], actor: Actor, now: datetime) -> int:
    """Closes circuit breakers of any tenant; returns how many were not closed."""
    count = 0
    for breaker_id in sorted(ids):
        try:
            breaker_reset(actor=actor, breaker_id=breaker_id, now=now)
            count += 1
        except (Conflict, NotFound):
            continue
    return count


def tickets_cancel(*, ids: Sequence[UUID], actor: Actor, now: datetime) -> Counter[str]:
    """Asks for the end of executions of any tenant, each on its own; counts by outcome ("ended" is: it was over)."""
    of_tenant = dict(Ticket.objects.filter(execution_id__in=ids).values_list("execution_id", "tenant_id"))
    tenants = Tenant.objects.select_related("plan").in_bulk(set(of_tenant.values()))
    outcomes: Counter[str] = Counter()
    for execution_id in sorted(ids):
        tenant = tenants.get(of_tenant.get(execution_id, 0))
        if tenant is None:
            outcomes["ended"] += 1
            continue
        try:
            outcomes[execution_cancel(tenant=tenant, actor=actor, execution_id=execution_id, now=now).outcome] += 1
        except (Conflict, NotFound):
            outcomes["ended"] += 1
    return outcomes
