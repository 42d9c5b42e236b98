"""Erasing a person from the trail: their keys go, their rows and the chain stay."""

from collections.abc import Collection
from datetime import datetime

from django.db import transaction

from apps.audit import personal
from apps.audit.actors import Actor
from apps.audit.models import AuditEvent
from apps.audit.services import django_connection, record
from apps.audit.verifying import ERASED

# What says of a person under which e-mail they came or left.
NAMING = ("invitation.create", "invitation.accept", "member.create", "member.remove")
CHUNK = 1_000


def subjects_named(emails: Collection[str]) -> list[str]:
    """Whom the trail knows under these e-mails, whether or not they are still there. Looks through all of it."""
    found, after = set[str](), 0
    rows = AuditEvent.objects.filter(action__in=NAMING, about_personal__isnull=False).order_by("pk")
    while chunk := list(rows.filter(pk__gt=after)[:CHUNK]):
        for row, opened in zip(chunk, personal.opened(django_connection(), chunk), strict=True):
            if opened.about.get("email") in emails:
                found.add(row.about)
        after = chunk[-1].pk
    return sorted(found)


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
