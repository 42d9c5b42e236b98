"""What operators do to due entries: conditional changes, each with its audit row in one transaction."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction

from apps.audit.services import Actor, record
from apps.due.models import DueEntry


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
