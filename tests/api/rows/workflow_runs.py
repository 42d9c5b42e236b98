"""Runs of workflows, their steps, and approvals."""

from tests.api.rows import Row
from tests.api.world import World


def first_step(world: World) -> dict[str, str]:
    """Not the example: it names a step of another workflow."""
    return {"step": "ask"}


FAILED = {"run_id": "failed run"}

ROWS = {
    "workflows_runs": Row("viewer"),
    "approvals_list": Row("viewer"),
    "workflow_steps_read": Row("viewer"),
    **{
        f"workflow_runs_{one}": Row("viewer")
        for one in ("list", "read", "graph", "picture", "timeline", "explanation", "explain", "steps")
    },
    "workflow_steps_explanation": Row("viewer"),
    "workflow_steps_explain": Row("viewer"),
    "workflow_runs_cancel": Row("operator", 202),
    "workflow_runs_pause": Row("operator"),
    "workflow_runs_resume": Row("operator", things={"run_id": "paused run"}),
    "workflow_runs_retry": Row("operator", things=FAILED),
    "workflow_runs_rerun": Row("operator", things=FAILED, body=first_step),
    "workflow_steps_retry": Row("operator", things=FAILED),
    "workflow_steps_rerun": Row("operator", things=FAILED),
    "workflow_steps_skip": Row("operator"),
    "workflow_steps_force": Row("operator", things={"step": "waiting step"}),
    "workflow_steps_cancel": Row("operator"),
    "workflow_steps_approve": Row("editor"),
    "workflow_steps_reject": Row("editor"),
}
