"""Keys and the secrets that sign."""

from tests.api.rows import Row

ROWS = {
    "api_keys_list": Row("admin"),
    "api_keys_create": Row("admin", 201),
    "api_keys_read": Row("admin"),
    "api_keys_revoke": Row("admin", 204),
    "signing_secrets_list": Row("viewer"),
    "signing_secrets_rotate": Row("admin", 201),
}
