"""Legal holds and erasure."""

from tests.api.rows import Row

ROWS = {
    "legal_holds_list": Row("admin"),
    "legal_holds_create": Row("admin", 201),
    "legal_holds_read": Row("admin"),
    "legal_holds_release": Row("admin"),
    "executions_erase": Row("admin", things={"execution_id": "dead execution"}),
    "executions_erasure": Row("admin", things={"execution_id": "erased execution"}),
}
