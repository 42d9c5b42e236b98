"""Reading operations and their receipts."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from apps.audit.services import Actor
from apps.operations.kinds import KINDS
from apps.operations.models import Item, Operation
from apps.operations.states import ITEM_STATES
from kernel.errors import Forbidden, NotFound
from tenants import door
from tenants.models import Tenant
from tenants.permissions import may

LINES_AT_ONCE = 2_000
COUNTS = ("planned", *ITEM_STATES)


class ItemPage(NamedTuple):
    """Items by number; the next page begins after `after`, None on the last."""

    rows: list[Item]
    after: int | None


def counts_of(one: Operation) -> dict[str, int]:
    """How many items it has, and how many of them are in which state."""
    return {name: getattr(one, name) for name in COUNTS}


def name_of(one: Operation) -> str:
    """ "cancel executions" """
    return f"{one.action} {one.target.replace('_', ' ')}"


def undo_blocked(one: Operation) -> str:
    """Why nothing could be taken back; empty when something may be."""
    kind = KINDS.get((one.action, one.target))
    if kind is None or not kind.undoes:
        return "Nothing takes this back."
    return "" if one.running + one.succeeded else "It has done nothing yet."


def operation_access(*, actor: Actor, operation_id: UUID, need: str) -> Operation:
    """An operation in the tenant's schema. Whoever changes it must be allowed what it does to its items: Forbidden.

    NotFound when there is none, or the actor may not even do this to any.
    """
    found = Operation.objects.filter(pk=operation_id).first()
    if found is None or not may(actor, need):
        raise NotFound("There is no such operation.")
    kind = KINDS.get((found.action, found.target))
    if need != "operation.read" and kind is not None and not may(actor, kind.permission):
        raise Forbidden(
            f"This operation needs the permission {kind.permission}.", code="role_too_low", needs=kind.permission
        )
    return found


def items_read(operation: Operation, *, states: Sequence[str], after: int, size: int) -> ItemPage:
    """A page of the receipt. In the tenant's schema."""
    found = Item.objects.filter(operation_id=operation.pk, n__gt=after)
    if states and set(states) != set(ITEM_STATES):
        found = found.filter(state__in=list(states))
        if list(states) == ["pending"]:
            found = found.filter(n__gt=operation.planned - operation.pending)
    rows = list(found.order_by("n")[: size + 1])
    return ItemPage(rows[:size], rows[size - 1].n if len(rows) > size else None)


def items_all(tenant: Tenant, operation: Operation) -> Iterator[list[Item]]:
    """The whole receipt, some at a time; each in a short transaction of its own."""
    after = 0
    while True:
        with door.inside(tenant):
            page = items_read(operation, states=(), after=after, size=LINES_AT_ONCE)
        if page.rows:
            yield page.rows
        if page.after is None:
            return
        after = page.after
