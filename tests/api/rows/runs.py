"""Executions, attempts, dead letters, breakers, pull queues."""

from tests.api.rows import Row

WORKER = ("worker",)

ROWS = {
    "usage_read": Row("viewer"),
    "usage_history": Row("viewer"),
    "executions_list": Row("viewer"),
    "executions_submit": Row("editor", 202, other=400),
    "executions_bulk_submit": Row("editor"),
    "executions_read": Row("viewer"),
    "executions_explanation": Row("viewer"),
    "executions_explain": Row("viewer"),
    "executions_attempts": Row("viewer"),
    "executions_reruns": Row("viewer"),
    "executions_dead_letters": Row("viewer"),
    "executions_cancel": Row("operator"),
    "executions_rerun": Row("operator", 202, things={"execution_id": "dead execution"}),
    "executions_complete": Row(
        "operator", things={"execution_id": "held execution"}, body=lambda world: {"token": world.ids["completion"]}
    ),
    "executions_heartbeat": Row(
        "operator", things={"execution_id": "held execution"}, body=lambda world: {"token": world.ids["completion"]}
    ),
    "attempts_list": Row("viewer"),
    "dead_letters_list": Row("viewer"),
    "dead_letters_groups": Row("viewer"),
    "dead_letters_read": Row("viewer"),
    "dead_letters_replay": Row("operator", 202),
    "dead_letters_resolve": Row("operator"),
    "dead_letters_reopen": Row("operator", things={"letter_id": "resolved letter"}),
    "breakers_list": Row("viewer"),
    "breakers_reset": Row("operator"),
    "queues_list": Row("viewer", also=WORKER),
    "queues_read": Row("viewer", also=WORKER),
    "queues_pause": Row("editor"),
    "queues_resume": Row("editor"),
    "queues_lease": Row("operator", also=WORKER),
    "leases_heartbeat": Row("operator", also=WORKER),
    "leases_complete": Row("operator", also=WORKER),
    "leases_fail": Row("operator", also=WORKER),
    "leases_release": Row("operator", also=WORKER),
    "leases_settle": Row("operator", also=WORKER),
}
