"""Limits of requests, as the middleware asks for them: of one key by its plan, and of one address without a key."""

from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings

from apps.audit.actors import address_of
from tenants.attempts import Attempts
from tenants.models import ApiKey
from tenants.rates import RateLimited, Rates, rates

if TYPE_CHECKING:
    from apps.api.middleware import TenantRequest

POLICY = "api-key"
WHAT = "requests with one API key"


def look_at(request: "TenantRequest", key: str) -> None:
    """Before a key is looked up. RateLimited for addresses that tried too much."""
    limit = settings.FAILED_AUTH_PER_MIN
    if limit:
        attempts_of(rates()).check(address=address_of(request), key=key, limit=limit)


def count_request(request: "TenantRequest", key: ApiKey, text: str) -> None:
    """A request with a valid key. RateLimited beyond the plan's limit."""
    if settings.FAILED_AUTH_PER_MIN:
        attempts_of(rates()).succeeded(address=address_of(request), key=text)
    limit = key.tenant.plan.max_api_requests_per_min
    if limit is None:
        return
    request.standing = rates().take(POLICY, limit, key.tenant_id, str(key.pk))
    if request.standing is not None and not request.standing.allowed:
        raise RateLimited(request.standing, WHAT)


def count_failure(request: "TenantRequest") -> None:
    """A request without a valid key. RateLimited beyond the limit of its address."""
    limit = settings.FAILED_AUTH_PER_MIN
    if limit:
        request.standing = attempts_of(rates()).failed(address=address_of(request), limit=limit)


@cache
def attempts_of(counted: Rates) -> Attempts:
    return Attempts(counted)
