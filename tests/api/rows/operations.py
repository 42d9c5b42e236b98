"""Operations, and the bulk requests that make them: their filters fit whatever a tenant has, also nothing."""

from tests.api.rows import Row

ROWS = {
    "executions_bulk_cancel": Row("operator", 202, other=202),
    "executions_bulk_rerun": Row("operator", 202, other=202),
    "dead_letters_bulk_replay": Row("operator", 202, other=202),
    "dead_letters_bulk_resolve": Row("operator", 202, other=202),
    "jobs_bulk_pause": Row("editor", 202, other=202),
    "jobs_bulk_resume": Row("editor", 202, other=202),
    "jobs_bulk_label": Row("editor", 202, other=202),
    "schedules_bulk_pause": Row("editor", 202, other=202),
    "schedules_bulk_resume": Row("editor", 202, other=202),
    "schedules_bulk_label": Row("editor", 202, other=202),
    "operations_list": Row("viewer"),
    "operations_read": Row("viewer"),
    "operations_items": Row("viewer"),
    "operations_receipt": Row("viewer"),
    "operations_patch": Row("editor"),
    "operations_pause": Row("editor"),
    "operations_resume": Row("editor", things={"operation_id": "paused operation"}),
    "operations_cancel": Row("editor"),
    "operations_undo": Row("editor", 202, things={"operation_id": "done operation"}),
}
