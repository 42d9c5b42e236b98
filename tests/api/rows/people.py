"""Keys and the secrets that sign."""

from tests.api.rows import Row

ROWS = {
    "api_keys_list": Row("admin"),
    "api_keys_create": Row("admin", 201),
    "api_keys_read": Row("admin"),
    "api_keys_revoke": Row("admin", 204),
    "api_keys_rotate": Row("admin", 201),
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
