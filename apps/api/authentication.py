"""Who asks: the API key that `TenantMiddleware` has looked up already, because it decides which schema is used."""

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from apps.audit.actors import Actor, at_request
from kernel.runtokens import RunToken
from tenants.models import ApiKey

CHALLENGE = 'Bearer realm="shardbeat"'


class ApiKeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer sb_...`. Raises what the middleware found wrong with the key or its host."""

    def authenticate(self, request: Request) -> tuple[Actor, ApiKey | None] | None:
        inner = request._request  # the middleware's; DRF would look for its own user there
        refusal: Exception | None = getattr(inner, "refusal", None)
        if refusal is not None:
            raise refusal
        completion: RunToken | None = getattr(inner, "completion", None)
        if completion is not None:
            return at_request(actor_of_run(completion), inner), None
        key: ApiKey | None = getattr(inner, "api_key", None)
        if key is None:
            return None
        return at_request(actor_of(key), inner), key

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


def actor_of(key: ApiKey) -> Actor:
    """The key as the audit trail names it."""
    name = f"key:{key.name} ({key.role})"
    scopes = None if key.scopes is None else frozenset(key.scopes)
    return Actor(name=name, role=key.role, tenant_id=key.tenant_id, subject=f"key:{key.pk}", scopes=scopes)


def actor_of_run(token: RunToken) -> Actor:
    """Whoever holds the token of an attempt."""
    return Actor(name=f"run:{token.execution_id}", role="completion", tenant_id=token.tenant_id, subject="run")


def invalid_key() -> AuthenticationFailed:
    return AuthenticationFailed()
