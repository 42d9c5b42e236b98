"""Tenants as people call them, for rows that carry their numbers."""

from collections.abc import Iterable

from tenants.models import Tenant


def slugs_of(tenant_ids: Iterable[int]) -> dict[int, str]:
    """Number to slug, in one statement; tenants that are gone are left out."""
    wanted = set(tenant_ids)
    return dict(Tenant.objects.filter(pk__in=wanted).values_list("pk", "slug")) if wanted else {}
