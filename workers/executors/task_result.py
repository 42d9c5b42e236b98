"""Results of registered callables, from the status and the JSON that `task_call` gives."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from workers.executors import frames
from workers.executors.base import Outcome, Result

PROGRESS_MAX_BYTES = 2_048
_STATUS: Mapping[int, Outcome] = {
    frames.SUCCEEDED: "succeeded",
    frames.FAILED: "failed",
    frames.FAILED_FOR_GOOD: "failed",
    frames.TIMED_OUT: "timed_out",
    frames.CANCELLED: "cancelled",
}


def result_of(status: int, value: Any, started_at: datetime, finished_at: datetime) -> Result:
    """The result. Raises KeyError for a status that there is not."""
    outcome = _STATUS[status]
    succeeded = outcome == "succeeded"
    return Result(
        outcome=outcome,
        result=value if succeeded else None,
        error=None if succeeded else value,
        retryable=status != frames.FAILED_FOR_GOOD,
        retry_after_s=None if succeeded else value.pop("retry_after_s", None),
        pause_schedule=False,
        started_at=started_at,
        finished_at=finished_at,
    )
