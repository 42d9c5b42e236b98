"""Limits of a tenant's plan on definitions. Counted under a lock on the tenant's row, so that nobody gets past them."""

from django.db.models import Model, QuerySet

from kernel.errors import QuotaExceeded
from tenants.models import Plan, Tenant


def plan_locked(tenant: Tenant, *, quota: str) -> Plan:
    """The tenant's plan as it is now; others who make such definitions wait until this transaction ends.

    Without that quota there is nothing to count, and nobody waits.
    """
    plan: Plan = tenant.plan
    if getattr(plan, quota) is not None:
        locked = Tenant.objects.select_for_update(of=("self",), no_key=True)
        plan = locked.select_related("plan").filter(pk=tenant.pk).get().plan
    return plan


def use_of(found: "QuerySet[Model]", limit: int | None) -> int:
    """How many rows there are; not counted beyond the limit, or without one."""
    return 0 if limit is None else found[:limit].count()


def quota_error(*, quota: str, limit: int | None, use: int, what: str) -> QuotaExceeded:
    """What is told when there are `limit` rows already."""
    detail = f"The plan allows {limit or 0:,} {what}; delete some, or ask for a larger plan."
    return QuotaExceeded(detail, quota=quota, limit=limit, use=use)
