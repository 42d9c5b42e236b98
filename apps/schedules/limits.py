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


def check_count(found: "QuerySet[Model]", limit: int | None, *, quota: str, what: str) -> None:
    """QuotaExceeded when there are `limit` rows already."""
    if limit is None:
        return
    use = found[:limit].count()
    if use >= limit:
        detail = f"The plan allows {limit:,} {what}; delete some, or ask for a larger plan."
        raise QuotaExceeded(detail, quota=quota, limit=limit, use=use)
