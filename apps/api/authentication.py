"""Who asks: the API key that `TenantMiddleware` has looked up already, because it decides which schema is used."""

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from apps.audit.services import Actor
from tenants.models import ApiKey

CHALLENGE = 'Bearer realm="shardbeat"'


class ApiKeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer sb_...`. Raises what the middleware found wrong with the key or its host."""

    def authenticate(self, request: Request) -> tuple[Actor, ApiKey] | None:
        inner = request._request  # the middleware's; DRF would look for its own user there
        refusal: Exception | None = getattr(inner, "refusal", None)
        if refusal is not None:
            raise refusal
        key: ApiKey | None = getattr(inner, "api_key", None)
        if key is None:
            return None
        return actor_of(key, request_id=getattr(inner, "request_id", "")), key

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


def actor_of(key: ApiKey, *, request_id: str = "") -> Actor:
    """The key as the audit trail names it."""
    return Actor(name=f"key:{key.name} ({key.role})", role=key.role, tenant_id=key.tenant_id, request_id=request_id)


def invalid_key() -> AuthenticationFailed:
    return AuthenticationFailed()
