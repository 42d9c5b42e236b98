"""Tenants as people call them: for rows that carry their numbers, and in filters."""

from collections.abc import Iterable
from typing import NamedTuple

from django.http import HttpRequest

from tenants.models import Tenant


class TenantFilter(NamedTuple):
    """The tenant whose rows a list is to show; without a slug those of all."""

    slug: str
    tenant_id: int | None

    @property
    def unknown(self) -> bool:
        """Whether there is no such tenant, and so nothing to show."""
        return bool(self.slug) and self.tenant_id is None


def slugs_of(tenant_ids: Iterable[int]) -> dict[int, str]:
    """Number to slug, in one statement; tenants that are gone are left out."""
    wanted = set(tenant_ids)
    return dict(Tenant.objects.filter(pk__in=wanted).values_list("pk", "slug")) if wanted else {}


def tenant_filter(request: HttpRequest) -> TenantFilter:
    """As the address says."""
    slug = request.GET.get("tenant", "").strip()
    return TenantFilter(slug, Tenant.objects.filter(slug=slug).values_list("pk", flat=True).first() if slug else None)
