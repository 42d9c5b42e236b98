"""Executions and attempts as the API answers them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from apps.api.renderers import stored
from apps.executions.reading import ExecutionRow
from apps.executions.reading_attempts import AttemptRow
from apps.workflows.dependencies.depending_reading import Parent


def execution_shape(
    row: ExecutionRow, *, as_of: datetime, payload: bool = False, parents: Sequence[Parent] | None = None,
    archived: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """An execution as the API answers it; `parents` are what it depends on, where they were read."""
    shape = {
        "id": row.id,
        "job": row.job_id,
        "job_version": row.job_version,
        "schedule": row.schedule_id,
        "schedule_version": row.schedule_version,
        "run_key": row.run_key,
        "state": row.state,
        "trigger": row.trigger,
        "priority": row.priority,
        "nominal_at": row.nominal_at,
        "until_at": row.until_at,
        "count": row.occurrences,
        "actual_at": row.actual_at,
        "available_at": row.available_at,
        "start_by": row.start_by,
        "wait_reason": row.wait_reason,
        "created_at": row.created_at,
        "queued_at": row.queued_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "attempt_count": row.attempt_count,
        "cancel_requested": row.cancel_requested,
        "progress": stored(row.progress),
        "result": stored(row.result),
        "error": stored(row.error),
        "reason": row.reason or None,
        "replay_of": row.replay_of,
        "workflow_run": row.workflow_run_id,
        "step": row.step,
        "fired_by": row.fired_by,
        "labels": stored(row.labels) if row.labels else {},
        "archived": archived or row.archived_at is not None,
        "erased_at": row.erased_at,
        "as_of": as_of,
    }
    if payload:
        shape["payload"] = stored(row.payload)
    if parents is not None:
        shape["depends_on"] = [
            {"execution": one.execution_id, "on": one.on, "met": one.met, "state": one.state} for one in parents
        ]
    return shape


def attempt_shape(row: AttemptRow) -> dict[str, Any]:
    """An attempt as the API answers it."""
    return {
        "id": row.id,
        "execution": row.execution_id,
        "number": row.number,
        "state": row.state,
        "worker": row.worker_id,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "error": stored(row.error),
        "retry_at": row.retry_at,
    }
