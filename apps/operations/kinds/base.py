"""What a kind of operation is: which items a wish has, how one is carried out, and how it is taken back.

The engine calls these inside the tenant's schema and its own transaction, an item in a savepoint of its own. A
`ShardbeatError` makes the item skipped (404 and 409: there is nothing left to do) or failed; QuotaExceeded,
Overloaded and HeldBack leave it pending, and the operation waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal, NamedTuple
from uuid import UUID

from apps.audit.services import Actor
from apps.operations.models import Operation
from kernel.errors import Conflict, Faults, ShardbeatError
from tenants.models import Tenant

Cursor = Mapping[str, Any]  # as JSON


class HeldBack(ShardbeatError):
    """It is not this item's turn yet; `code` is what the operation waits for."""

    status = 409

    def __init__(self, code: str) -> None:
        super().__init__("It is not its turn yet.")
        self.code = code


@dataclass(frozen=True, slots=True)
class Work:
    """For whom, at which time and as part of what an item is carried out. `actor` is who asked for the operation."""

    tenant: Tenant
    actor: Actor
    operation: Operation
    now: datetime


class NewItem(NamedTuple):
    """One thing that a wish is about: an object, or an occurrence."""

    target_id: UUID | None
    nominal_at: datetime | None = None


class Planned(NamedTuple):
    """The next items in their order, and where to go on; None when these were the last. A page may be empty."""

    items: Sequence[NewItem]
    after: Cursor | None


class TakenItem(NamedTuple):
    """An item that is carried out, or taken back."""

    n: int
    target_id: UUID | None
    nominal_at: datetime | None
    state: str
    made_id: UUID | None
    before: Any


class Done(NamedTuple):
    """What became of an item. `running`: `made_id` is an execution, and its end decides.

    `before` is what an undo restores.
    """

    state: Literal["running", "succeeded", "skipped", "failed"]
    code: str = ""
    detail: str = ""
    made_id: UUID | None = None
    before: Any = None


class Kind:
    """One action on one sort of thing. Kinds hold no state."""

    action: ClassVar[str]
    target: ClassVar[str]
    permission: ClassVar[str]  # of tenants.permissions
    undoes: ClassVar[bool] = True

    def filtered(self, given: Any, faults: Faults) -> dict[str, Any]:
        """The filter in the form in which it is kept. Faults are added; InvalidInput with them, for some."""
        raise NotImplementedError

    def checked(self, tenant: Tenant, given: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
        """The members of the body that only this kind knows, in the form in which they are kept as `params`.

        Faults are added; unknown members are a fault.
        """
        for name in given:
            faults.add(f"/{name}", "unknown_field", "There is no such field.")
        return {}

    def planned(self, tenant: Tenant, operation: Operation, *, after: Cursor | None, size: int) -> Planned:
        """The next items, `size` at most, of what was there at `operation.frozen_at`."""
        raise NotImplementedError

    def warnings(self, tenant: Tenant, operation: Operation, *, count: int, now: datetime) -> list[str]:
        """What a dry run says besides the count."""
        return []

    def holds(self, work: Work) -> str:
        """Code of what keeps this operation from starting more items just now; empty when nothing does."""
        return ""

    def apply(self, work: Work, item: TakenItem) -> Done:
        """Carries out one item through the service of a single request."""
        raise NotImplementedError

    def apply_together(self, work: Work, items: Sequence[TakenItem]) -> Mapping[int, Done | ShardbeatError]:
        """Carries out all of them at once, for kinds whose service does; what became of each, by its number.

        Empty: one by one. Behind one for which there is no room (QuotaExceeded) nothing was done.
        """
        return {}

    def ended(self, tenant: Tenant, operation: Operation, *, now: datetime) -> None:
        """Tells whoever wants to know; once, in the transaction in which the operation ends for good."""

    def undo(self, work: Work, item: TakenItem) -> None:
        """Takes one item back that is running or has succeeded. Conflict with a code when that can't be any more."""
        raise Conflict("This can't be taken back.", code="no_undo")
