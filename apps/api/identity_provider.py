"""/identity-provider: how the tenant's people sign in with their company's login."""

from collections.abc import Mapping
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.documents_signin import READ_ONLY, ProviderAnswer, ProviderInput
from apps.api.endpoint import Endpoint
from apps.api.etags import revisions, tagged
from apps.api.openapi import operation
from apps.api.reading import read_only_dropped
from apps.schedules.input_fields import Fields
from apps.signin.models import Provider
from apps.signin.setup import MAX_CLAIM_CHARS, has_secret, provider_delete, provider_put
from kernel.errors import Faults, NotFound
from tenants.permissions import ROLES

TAG = "identity provider"
MAX_SECRET_CHARS = 2_000


class IdentityProvider(Endpoint):
    """The tenant's provider; there is one or none."""

    actions = {"GET": "provider.read", "PUT": "provider.update", "DELETE": "provider.delete"}

    @operation("identity_provider_read", "Read the identity provider", answer=ProviderAnswer, tag=TAG,
               problems=("not_found",))  # fmt: skip
    def get(self, request: Request) -> Response:
        self.query().finish()
        found = Provider.objects.filter(tenant=self.tenant).first()
        if found is None:
            raise NotFound("There is no identity provider.")
        return tagged(self._shape(found), found.revision)

    @operation(
        "identity_provider_replace", "Set the identity provider up, or replace it; it is asked for its document when "
        "it is switched on", body=ProviderInput, answer=ProviderAnswer, if_match=True, rehearsed=False, tag=TAG,
        problems=("grant_too_high", "secrets_key_unknown"),
    )  # fmt: skip
    def put(self, request: Request) -> Response:
        values, secret = _read(read_only_dropped(self.body, READ_ONLY))
        made = provider_put(
            tenant=self.tenant, actor=self.actor, values=values, secret=secret, now=self.now, expect=revisions(request)
        )
        return tagged(self._shape(made), made.revision)

    @operation(
        "identity_provider_delete", "Take the identity provider away; people with a password go on with it", status=204,
        if_match=True, tag=TAG, problems=("grant_too_high", "not_found"),
    )  # fmt: skip
    def delete(self, request: Request) -> Response:
        provider_delete(tenant=self.tenant, actor=self.actor, now=self.now, expect=revisions(request))
        return Response(status=204)

    def _shape(self, found: Provider) -> dict[str, Any]:
        return {
            "enabled": found.enabled,
            "issuer": found.issuer,
            "client_id": found.client_id,
            "has_client_secret": has_secret(self.tenant),
            "domains": found.domains,
            "default_role": found.default_role or None,
            "role_claim": found.role_claim or None,
            "roles": found.roles,
            "created_at": found.created_at,
            "updated_at": found.updated_at,
        }


def _read(body: Any) -> tuple[dict[str, Any], str | None]:
    """What the body says; None as secret keeps the one that there is."""
    faults = Faults()
    fields = Fields(body, faults)
    fields.only(
        ("enabled", "issuer", "client_id", "client_secret", "domains", "default_role", "role_claim", "roles"),
        read_only=READ_ONLY,
    )
    given = fields.data.get("client_secret")
    if given is not None and (not isinstance(given, str) or len(given) > MAX_SECRET_CHARS or not given.isprintable()):
        faults.add("/client_secret", "type", f"must be one line of at most {MAX_SECRET_CHARS:,} characters.")
    domains, roles = fields.data.get("domains") or [], fields.data.get("roles") or {}
    if not isinstance(domains, list) or not all(isinstance(one, str) for one in domains):
        faults.add("/domains", "type", 'must be a list of texts such as ["example.com"].')
        domains = []
    if not isinstance(roles, Mapping) or not all(isinstance(one, str) for one in roles.values()):
        faults.add("/roles", "type", 'must be an object such as {"platform-team": "operator"}.')
        roles = {}
    values = {
        "enabled": fields.flag("enabled"),
        "issuer": fields.text("issuer", most=500, required=True),
        "client_id": fields.text("client_id", most=255, required=True),
        "domains": sorted({one.strip().lower() for one in domains}),
        "default_role": fields.choice("default_role", ROLES, ""),
        "role_claim": fields.text("role_claim", most=MAX_CLAIM_CHARS) or "",
        "roles": dict(roles),
    }
    faults.raise_if_any()
    return values, given
