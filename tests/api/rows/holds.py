"""Legal holds and erasure."""

from tests.api.rows import Row

ROWS = {
    "legal_holds_list": Row("admin"),
    "legal_holds_create": Row("admin", 201),
    "legal_holds_read": Row("admin"),
    "legal_holds_release": Row("admin"),
}
