"""The trail."""

from tests.api.rows import Row

ROWS = {
    "audit_events_list": Row("admin"),
    "audit_events_chain": Row("admin"),
    "audit_events_export": Row("admin"),
}
