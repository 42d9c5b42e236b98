"""Limits of requests, as the middleware asks for them: of one key by its plan, and of one address without a key."""

from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings

from apps.audit.actors import address_of
from tenants.attempts import Attempts
from tenants.models import ApiKey, Member
from tenants.rates import RateLimited, Rates, rates

if TYPE_CHECKING:
    from apps.api.middleware import TenantRequest

POLICY = "api-key"
WHAT = "requests with one API key"
SESSION_POLICY = "api-session"
SESSION_WHAT = "requests of one person"


def look_at(request: "TenantRequest", key: str) -> None:
    """Before a key is looked up. RateLimited for addresses that tried too much."""
    limit = settings.FAILED_AUTH_PER_MIN
    if limit:
        attempts_of(rates()).check(address=address_of(request), key=key, limit=limit)


def count_request(request: "TenantRequest", key: ApiKey, text: str) -> None:
    """A request with a valid key. RateLimited beyond the plan's limit."""
    know(request, text)
    limit = key.tenant.plan.max_api_requests_per_min
    if limit is None:
        return
    request.standing = rates().take(POLICY, limit, key.tenant_id, str(key.pk))
    if request.standing is not None and not request.standing.allowed:
        raise RateLimited(request.standing, WHAT)


def know(request: "TenantRequest", key: str) -> None:
    """A key or a session that works from where it comes."""
    if settings.FAILED_AUTH_PER_MIN:
        attempts_of(rates()).succeeded(address=address_of(request), key=key)


def count_session(request: "TenantRequest", member: Member) -> None:
    """A request with a person's session. RateLimited beyond the plan's limit, which is that of a key."""
    limit = member.tenant.plan.max_api_requests_per_min
    if limit is None:
        return
    request.standing = rates().take(SESSION_POLICY, limit, member.tenant_id, str(member.uid))
    if request.standing is not None and not request.standing.allowed:
        raise RateLimited(request.standing, SESSION_WHAT)


def count_failure(request: "TenantRequest") -> None:
    """A request without a valid key. RateLimited beyond the limit of its address."""
    limit = settings.FAILED_AUTH_PER_MIN
    if limit:
        request.standing = attempts_of(rates()).failed(address=address_of(request), limit=limit)


@cache  # lint: allow memory-has-a-bound: one for each broker of the settings
def attempts_of(counted: Rates) -> Attempts:
    return Attempts(counted)
