"""Erasing a person from the trail: their keys go, their rows and the chain stay."""

from datetime import datetime

from django.db import transaction

from apps.audit import personal
from apps.audit.actors import Actor
from apps.audit.services import django_connection, record
from apps.audit.verifying import ERASED


def person_erase(
    *, subject: str, actor: Actor, now: datetime, tenant_id: int | None = None, reason: str = ""
) -> list[int]:
    """Destroys what the trail says of a subject ("user:3", "key:<id>"), in one tenant's trail or in all.

    Each trail that lost something says so. Returns their tenants (0: the operators' own); empty when there was nothing.
    What the subject does afterwards is written down under a new key.
    """
    with transaction.atomic():
        lost = personal.erase(django_connection(), subject=subject, tenant_id=tenant_id)
        for one in lost:
            record(
                actor=actor, action=ERASED, object_type="person", object_id=subject, now=now, tenant_id=one or None,
                reason=reason,
            )  # fmt: skip
    return lost
