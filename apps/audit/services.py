"""Writing the trail: one row an effect or refused attempt, in the caller's transaction."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.audit.models import AuditEvent


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks: `name` is shown ("key:deploy (viewer)", "admin:ada", "command:root"), `role` decides.

    `scopes` narrow the role (tenants.permissions); None does not.
    """

    name: str
    role: str
    tenant_id: int | None = None
    request_id: str = ""
    scopes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One row that is to be written. `before` and `after` hold only what changed."""

    action: str
    object_type: str
    object_id: object
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    reason: str = ""
    allowed: bool = True


def record_many(entries: Iterable[Entry], *, actor: Actor, now: datetime, tenant_id: int | None) -> None:
    """Appends rows of one actor and tenant, in one statement."""
    AuditEvent.objects.bulk_create(
        AuditEvent(
            at=now, tenant_id=tenant_id, actor=actor.name[:200], action=one.action, object_type=one.object_type,
            object_id=str(one.object_id), allowed=one.allowed, before=one.before, after=one.after, reason=one.reason,
            request_id=actor.request_id,
        )
        for one in entries
    )  # fmt: skip


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
) -> None:
    """Appends one row. `before` and `after` hold only what changed."""
    AuditEvent.objects.create(
        at=now,
        tenant_id=tenant_id,
        actor=actor.name[:200],
        action=action,
        object_type=object_type,
        object_id=str(object_id),
        allowed=allowed,
        before=before,
        after=after,
        reason=reason,
        request_id=actor.request_id,
    )
