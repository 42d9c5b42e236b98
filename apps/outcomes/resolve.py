"""Dead letters closed without a run, with a note, and opened again."""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from apps.audit.services import Actor, Entry, record, record_many
from apps.deadletters import store as deadletters
from apps.deadletters.models import DeadLetter
from apps.executions.models import Execution
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


def deadletter_reopen(*, tenant: Tenant, actor: Actor, letter_id: UUID, now: datetime, reason: str = "") -> None:
    """Opens a dead letter that was resolved. NotFound; Conflict when it was not, or its execution is not dead.

    The note of the resolution goes into the trail.
    """

    def work() -> None:
        letter = DeadLetter.objects.filter(pk=letter_id).first()
        if letter is None:
            raise NotFound("There is no such dead letter.")
        execution_id = deadletters.reopen(door.raw(), tenant.schema_name, letter_id)
        if execution_id is None:
            raise Conflict(_why_not(letter), code="not_resolved")
        # Locked after its letter, as by a replay: whoever runs it again comes before this or after it.
        rows = Execution.objects.select_for_update(no_key=True).filter(pk=execution_id)
        state = rows.values_list("state", flat=True).first()
        if state != "dead":
            raise Conflict(f"Its execution is {state or 'not kept any more'}.", code="not_dead")
        record(
            actor=actor, action="deadletter.reopen", object_type="dead_letter", object_id=letter_id, now=now,
            tenant_id=tenant.pk, before={"note": letter.note, "resolved_by": letter.resolved_by}, reason=reason,
        )  # fmt: skip

    in_tenant(tenant, work)


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


def _why_not(letter: DeadLetter) -> str:
    if letter.resolution != "resolved":
        return f"The dead letter is not resolved: it is {letter.resolution or 'open'}."
    return "Another dead letter of its execution is open."
