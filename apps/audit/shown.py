"""Rows of the trail as people read them: with the names that can still be read, and where they are in their chain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from apps.audit import personal
from apps.audit.models import AuditEvent, Seal
from apps.audit.personal import Opened
from apps.audit.services import django_connection


@dataclass(frozen=True, slots=True)
class Shown:
    """One row: who it was by name where that can be read, and its link when it is sealed."""

    event: AuditEvent
    opened: Opened
    seal: Seal | None

    @property
    def who(self) -> str:
        return self.opened.name or self.event.actor


def shown(events: Iterable[AuditEvent], *, seals: bool = True, known: Iterable[Seal] = ()) -> list[Shown]:
    """The rows in their order; two queries at most. Links that are `known` are not asked for."""
    rows = list(events)
    found = {one.event_id: one for one in known}
    if seals and rows and not found:
        found = Seal.objects.in_bulk([row.pk for row in rows])
    opened = personal.opened(django_connection(), rows)
    return [Shown(row, one, found.get(row.pk)) for row, one in zip(rows, opened, strict=True)]
