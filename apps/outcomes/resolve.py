"""Dead letters closed without a run, with a note."""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from apps.audit.services import Actor, Entry, record_many
from apps.deadletters import store as deadletters
from apps.deadletters.models import DeadLetter
from kernel.errors import Conflict, NotFound, ShardbeatError
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant


def deadletter_resolve(*, tenant: Tenant, actor: Actor, letter_id: UUID, now: datetime, note: str = "") -> None:
    """Closes a dead letter without a run. NotFound; Conflict when it is not open."""
    refused = deadletters_resolve(tenant=tenant, actor=actor, letter_ids=[letter_id], now=now, note=note)
    if letter_id in refused:
        raise refused[letter_id]


def deadletters_resolve(
    *, tenant: Tenant, actor: Actor, letter_ids: Sequence[UUID], now: datetime, note: str = ""
) -> dict[UUID, ShardbeatError]:
    """The same of many in one transaction, each on its own: those that were refused, and why."""

    def work() -> dict[UUID, ShardbeatError]:
        closed = deadletters.resolve_many(
            door.raw(), tenant.schema_name, letter_ids, resolution="resolved", now=now, note=note, by=actor.stored
        )
        entries = [Entry("deadletter.resolve", "dead_letter", key, reason=note) for key in sorted(closed)]
        record_many(entries, actor=actor, now=now, tenant_id=tenant.pk)
        return not_open([key for key in letter_ids if key not in closed])

    return in_tenant(tenant, work)


def not_open(letter_ids: Collection[UUID]) -> dict[UUID, ShardbeatError]:
    """Why nothing can be done to these letters, which are not open."""
    found = DeadLetter.objects.filter(pk__in=letter_ids).values_list("pk", "resolution") if letter_ids else ()
    known = dict(found)
    return {
        key: Conflict(f"The dead letter is not open: it was {known[key]}.", code="not_open")
        if key in known
        else NotFound("There is no such dead letter.")
        for key in letter_ids
    }
