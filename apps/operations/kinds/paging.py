"""Planning by the lists' own pages: what came into being until the operation was frozen, oldest first."""

from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from apps.deadletters.reading import LetterFilter
from apps.executions.filtering import ExecutionFilter
from apps.operations.kinds.base import Cursor, NewItem, Planned
from apps.operations.models import Operation
from apps.schedules.listing import DefinitionFilter
from kernel.keyset import Page, Position

F = TypeVar("F", ExecutionFilter, LetterFilter, DefinitionFilter)


def frozen(wanted: F, operation: Operation) -> F:
    """The filter, and nothing that was created later than the operation was asked for."""
    before = wanted.created_before
    until = operation.frozen_at if before is None else min(before, operation.frozen_at)
    changed: Any = replace(wanted, created_before=until)
    return changed  # type: ignore[no-any-return]  # `replace` gives what it got


def position_of(after: Cursor | None) -> Position | None:
    """Where a page of ids goes on."""
    return None if after is None else Position(UUID(after["id"]))


def planned_of(page: Page[UUID]) -> Planned:
    """A page of ids as items."""
    after = None if page.after is None else {"id": str(page.after.id)}
    return Planned([NewItem(one) for one in page.rows], after)
