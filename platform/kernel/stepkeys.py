"""Run keys of the executions that a workflow makes for its steps: one execution for each step, item and generation."""

from uuid import UUID

TRIGGER = "workflow"
RUN_CHARS = 32  # of a run's id in hexadecimal


def step_key(run_id: UUID, step: str, item: int | None, generation: int) -> str:
    """`<run>:<step>[:<item>]:<generation>`. A step's name has no colon."""
    parts = [run_id.hex, step, str(generation)] if item is None else [run_id.hex, step, str(item), str(generation)]
    return ":".join(parts)


def run_of_step(trigger: str, run_key: str) -> UUID | None:
    """The workflow's run whose step has this run key; None when it is none of a step."""
    if trigger != TRIGGER or run_key[RUN_CHARS : RUN_CHARS + 1] != ":":
        return None
    return UUID(run_key[:RUN_CHARS])
