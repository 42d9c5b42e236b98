"""What a step that has not ended waits for, in a few words, from what a page has read of its run anyway. Pure.

`apps.dispatch.explaining` asks further, and takes a dozen statements for a step; this takes none.
"""

from collections.abc import Mapping
from datetime import datetime

from apps.workflows.definitions.definition import Edge, Step
from apps.workflows.runs.deciding import FINAL

TO = {"succeeded": "to succeed", "failed": "to fail", "finished": "to end", "skipped": "to be skipped"}
NAMED_MOST = 3  # needs that are named; the others are counted


def blocked_by(
    step: Step | None, *, state: str, type_: str, run_state: str, states: Mapping[str, str], now: datetime,
    execution_state: str | None = None, wake_at: datetime | None = None, items: int | None = None, items_open: int = 0,
) -> str:  # fmt: skip
    """ "needs 'load' to succeed, which is running"; empty for a step that has ended, or that runs.

    `states` are those of all steps of the run, `execution_state` that of the step's own execution.
    """
    if state in FINAL:
        return ""
    if run_state == "paused" and (state == "waiting" or execution_state is None):
        return "the run is paused"
    if state == "waiting":
        return _needs(step, states)
    if type_ == "approval":
        return "somebody is to approve or reject it"
    if type_ == "delay":
        return "its delay is over, and the next look ends it" if wake_at is None or wake_at <= now else "its delay"
    if items is not None:
        return f"{items_open:,} of its {items:,} items have not ended"
    if execution_state in ("ready", "queued", "blocked"):
        waits = {"ready": "a worker's slot", "queued": "a worker to take it", "blocked": "another execution"}
        return f"its execution waits for {waits[execution_state]}"
    return "its own run of a workflow" if type_ == "workflow" else ""


def _needs(step: Step | None, states: Mapping[str, str]) -> str:
    if step is None:
        return "its definition can't be read"
    open_ = [edge for edge in step.needs if states.get(edge.parent, "waiting") not in FINAL]
    if not open_:
        return "its turn comes with the next look at the run"
    named = [_need(edge, states) for edge in open_[:NAMED_MOST]]
    if len(open_) > NAMED_MOST:
        named.append(f"{len(open_) - NAMED_MOST:,} more")
    many = {"any": "any of: ", "at_least": f"{step.at_least} of: "}.get(step.join, "") if len(step.needs) > 1 else ""
    return f"needs {many}{'; '.join(named)}"


def _need(edge: Edge, states: Mapping[str, str]) -> str:
    return f"'{edge.parent}' {TO.get(edge.on, edge.on)}, which is {states.get(edge.parent, 'waiting')}"
