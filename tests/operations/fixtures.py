"""Operations worked off by the loop's own passes, in this thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.fixtures_flow import actor

if TYPE_CHECKING:
    from apps.operations.models import Operation
    from tenants.models import Tenant


def ask(tenant: Tenant, action: str, target: str, filter_: Any, **more: Any) -> Operation:
    """An operation, as an admin of the tenant asks for it; members of a pace go into its pace, others to its kind."""
    from apps.operations import pacing
    from apps.operations.pacing import Pace
    from apps.operations.services import Wish, operation_create
    from tenants.work import database_now

    pace = Pace(**{name: more.pop(name) for name in pacing.NAMES if name in more})
    wish = Wish(action, target, filter_, more.pop("params", {}), pace, **more)
    return operation_create(tenant=tenant, actor=actor(tenant), wish=wish, now=database_now())


def passes(number: int = 1) -> dict[str, int]:
    """So many passes of the loop; what they counted."""
    from apps.operations.loops import OperationService

    service = OperationService()
    counts: dict[str, int] = {}
    for _ in range(number):
        for name, count in service.run_once().counts.items():
            counts[name] = counts.get(name, 0) + count
    return counts


def work_while_due() -> None:
    """What one dispatcher of several does: passes, on a connection of this thread, until no operation is due."""
    from apps.due import operations as due_operations
    from apps.operations.loops import OperationService
    from tenants import door

    service = OperationService()
    try:
        while service.run_once().full or due_operations.any_due(door.raw()):
            pass
    finally:
        service.close()


def work_off(tenant: Tenant | str, operation_id: UUID | str, *, most: int = 200) -> Operation:
    """Passes until the operation wants no more work, as if no time had to go by between them."""
    from apps.operations.loops import OperationService
    from tenants import door

    service = OperationService()
    for _ in range(most):
        door.raw().execute("UPDATE due_dueoperation SET due_at = '2000-01-01' WHERE operation_id = %s", [operation_id])
        if not service.run_once().full:
            break
    return read(tenant, operation_id)


def read(tenant: Tenant | str, operation_id: UUID | str) -> Operation:
    """The operation as it is now; its counts are those of its items. The tenant may be named by its slug."""
    from django.db.models import Count

    from apps.operations.models import Item, Operation
    from tenants import door
    from tenants.models import Tenant as Model

    with door.inside(Model.objects.get(slug=tenant) if isinstance(tenant, str) else tenant):
        one: Operation = Operation.objects.get(pk=operation_id)
        rows = Item.objects.filter(operation_id=operation_id).values_list("state").annotate(Count("n"))
        counted = dict(rows)
    states = ("pending", "running", "succeeded", "skipped", "failed", "undone")
    assert {state: getattr(one, state) for state in states} == {state: counted.get(state, 0) for state in states}
    assert one.planned == sum(counted.values())
    return one


def receipt(tenant: Tenant, operation_id: UUID) -> list[tuple[int, str, str]]:
    """Number, state and code of each item."""
    from apps.operations.models import Item
    from tenants import door

    with door.inside(tenant):
        found = Item.objects.filter(operation_id=operation_id).order_by("n")
        return [(one.n, one.state, one.code) for one in found]
