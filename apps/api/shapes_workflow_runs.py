"""Runs of workflows and their steps as the API answers them."""

from datetime import datetime
from typing import Any

from apps.api.renderers import stored
from apps.workflows.views.critical import Timeline
from apps.workflows.views.runs_reading import RunRow
from apps.workflows.views.steps_reading import StepRow


def run_item(row: RunRow, *, as_of: datetime) -> dict[str, Any]:
    """A run as lists show it."""
    return {
        "id": row.id,
        "workflow": row.workflow_id,
        "workflow_name": row.workflow_name,
        "version": row.version,
        "state": row.state,
        "trigger": row.trigger,
        "schedule": row.schedule_id,
        "nominal_at": row.nominal_at,
        "run_key": row.run_key,
        "priority": row.priority,
        "created_at": row.created_at,
        "actual_at": row.actual_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "deadline_at": row.deadline_at,
        "paused_at": row.paused_at,
        "paused_by": row.paused_by or None,
        "paused_reason": row.paused_reason or None,
        "wait_reason": row.wait_reason,
        "reason": row.reason or None,
        "error": stored(row.error),
        "generation": row.generation,
        "parent": None
        if row.parent_run_id is None
        else {"run": row.parent_run_id, "step": row.parent_step, "item": row.parent_item},
        "replay_of": row.replay_of,
        "fired_by": row.fired_by,
        "labels": stored(row.labels) if row.labels else {},
        "as_of": as_of,
    }


def run_shape(row: RunRow, counts: dict[str, int], *, as_of: datetime) -> dict[str, Any]:
    """A run that is read alone."""
    return {
        **run_item(row, as_of=as_of),
        "input": stored(row.input),
        "output": stored(row.output),
        "step_count": sum(counts.values()),
        "steps": counts,
    }


def step_shape(row: StepRow) -> dict[str, Any]:
    """A step of a run, or one item of its list."""
    return {
        "run": row.run_id,
        "step": row.step,
        "item": row.item,
        "type": row.type,
        "state": row.state,
        "reason": row.reason or None,
        "error": stored(row.error),
        "execution": row.execution_id,
        "execution_state": row.execution_state,
        "attempt_count": row.attempt_count,
        "generation": row.generation,
        "items": row.items,
        "items_open": row.items_open,
        "items_failed": row.items_failed,
        "value": stored(row.value),
        "output": stored(row.output),
        "wake_at": row.wake_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "forced": row.forced,
        "decided_by": row.decided_by or None,
        "note": row.note or None,
        "used": stored(row.used) if row.used else {},
    }


def timeline_shape(
    found: Timeline, *, started_at: datetime | None, finished_at: datetime | None, as_of: datetime
) -> dict[str, Any]:
    """Where the time of a run went."""
    return {
        "started_at": started_at,
        "finished_at": finished_at,
        "total_s": found.total_s,
        "bars": [
            {
                "step": bar.step,
                "state": bar.state,
                "reason": bar.reason or None,
                "start_s": bar.start_s,
                "begin_s": bar.begin_s,
                "end_s": bar.end_s,
                "freed_by": bar.freed_by,
                "is_critical": bar.critical,
                "slack_s": bar.slack_s,
            }
            for bar in found.bars
        ],
        "critical_path": [link._asdict() for link in found.path],
        "as_of": as_of,
    }
