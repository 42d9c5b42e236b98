"""Writing the trail: one row an effect or refused attempt, in the caller's transaction."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.audit.actors import Actor
from apps.audit.models import AuditEvent

__all__ = ["Actor", "Entry", "record", "record_many"]
OBJECT_ID_CHARS = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """One row that is to be written. `before` and `after` hold only what changed.

    `about` is the subject ("user:3", "invitation:<id>") of the person that it concerns, and `personal` what it says of
    them: encrypted for that subject, so that it can be destroyed. Nothing personal belongs into the other fields.
    """

    action: str
    object_type: str
    object_id: object
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    reason: str = ""
    allowed: bool = True
    about: str = ""
    personal: Mapping[str, str] | None = None


def record(
    *,
    actor: Actor,
    action: str,
    object_type: str,
    object_id: object,
    now: datetime,
    tenant_id: int | None,
    allowed: bool = True,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    reason: str = "",
    about: str = "",
    personal: Mapping[str, str] | None = None,
) -> None:
    """Appends one row; the parameters are an `Entry`'s."""
    entry = Entry(
        action, object_type, object_id, before=before, after=after, reason=reason, allowed=allowed, about=about,
        personal=personal,
    )  # fmt: skip
    record_many([entry], actor=actor, now=now, tenant_id=tenant_id)


def record_many(entries: Iterable[Entry], *, actor: Actor, now: datetime, tenant_id: int | None) -> None:
    """Appends rows of one actor and tenant, in one statement."""
    AuditEvent.objects.bulk_create(_row(one, actor, now, tenant_id) for one in entries)


def _row(entry: Entry, actor: Actor, now: datetime, tenant_id: int | None) -> AuditEvent:
    return AuditEvent(
        at=now,
        tenant_id=tenant_id,
        actor=actor.name[:200],
        action=entry.action,
        object_type=entry.object_type,
        object_id=str(entry.object_id)[:OBJECT_ID_CHARS],
        allowed=entry.allowed,
        before=entry.before,
        after=entry.after,
        reason=entry.reason,
        request_id=actor.request_id,
    )
