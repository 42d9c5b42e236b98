"""Keys, people, how they sign in, and the secrets that sign."""

from typing import Any

from tests.api.rows import Row
from tests.fixtures_api import NOTHING


def with_provider(world: Any) -> Any:
    """No body; but a provider that can be deleted."""
    values = {"issuer": "https://login.example.com", "client_id": "shardbeat"}
    assert world.api.put("identity-provider", values, If_Match="*").status == 200
    return NOTHING


ROWS = {
    "api_keys_list": Row("admin"),
    "api_keys_create": Row("admin", 201),
    "api_keys_read": Row("admin"),
    "api_keys_revoke": Row("admin", 204),
    "api_keys_rotate": Row("admin", 201),
    "identity_provider_read": Row("admin", 404),
    "identity_provider_replace": Row("admin"),
    "identity_provider_delete": Row("admin", 204, body=with_provider, other=404),
    "members_list": Row("admin"),
    "members_read": Row("admin"),
    "members_patch": Row("admin"),
    "members_remove": Row("admin", 204),
    "members_reset": Row("admin", 201),
    "members_sign_out": Row("admin"),
    "invitations_list": Row("admin"),
    "invitations_create": Row("admin", 201),
    "invitations_read": Row("admin"),
    "invitations_revoke": Row("admin", 204),
    "signing_secrets_list": Row("viewer"),
    "signing_secrets_rotate": Row("admin", 201),
}
