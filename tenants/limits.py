"""How many of a kind a tenant's plan allows. Counted under a lock on the tenant's row, so that nobody gets past it.

Call it first in the transaction that makes the row: the tenant comes before what belongs to it in the order of locks.
"""

from typing import Any

from django.db.models import Model, QuerySet

from kernel.errors import QuotaExceeded
from tenants.models import Plan, Tenant


def plan_locked(tenant: Tenant, *, quota: str, always: bool = False) -> Plan:
    """The tenant's plan as it is now; others who make such definitions wait until this transaction ends.

    Without that quota there is nothing to count, and nobody waits unless it is `always` so.
    """
    plan: Plan = tenant.plan
    if always or getattr(plan, quota) is not None:
        locked = Tenant.objects.select_for_update(of=("self",), no_key=True)
        plan = locked.select_related("plan").filter(pk=tenant.pk).get().plan
    return plan


def make_room(
    tenant: Tenant, *found: "QuerySet[Any]", quota: str, what: str, bounded: bool = False
) -> int:  # fmt: skip
    """Makes sure that the plan has room for one more beside what these querysets find; QuotaExceeded when not.

    Says how many there are, which is only counted where somebody asks: a plan with that quota, or a caller with a bound
    of its own (`bounded`), who then has the lock in any case.
    """
    limit: int | None = getattr(plan_locked(tenant, quota=quota, always=bounded), quota)
    if limit is None and not bounded:
        return 0
    use = sum(one.count() for one in found)
    if limit is not None and use >= limit:
        raise quota_error(quota=quota, limit=limit, use=use, what=what)
    return use


def use_of(found: "QuerySet[Model]", limit: int | None) -> int:
    """How many rows there are; not counted beyond the limit, or without one."""
    return 0 if limit is None else found[:limit].count()


def quota_error(*, quota: str, limit: int | None, use: int, what: str) -> QuotaExceeded:
    """What is told when there are `limit` rows already."""
    detail = f"The plan allows {limit or 0:,} {what}; delete some, or ask for a larger plan."
    return QuotaExceeded(detail, quota=quota, limit=limit, use=use)
