"""What becomes of a work in a child process: results from DONE frames, and those that the parent writes itself."""

from collections.abc import Mapping
from datetime import UTC, datetime

from workers.executors import frames
from workers.executors.base import Held, Outcome, Result, ended, returned
from workers.executors.bounds import ERROR_MAX_BYTES, bounded_error, from_json
from workers.executors.childpool import Child

_STATUS: Mapping[int, Outcome] = {
    frames.SUCCEEDED: "succeeded",
    frames.FAILED: "failed",
    frames.FAILED_FOR_GOOD: "failed",
    frames.TIMED_OUT: "timed_out",
    frames.CANCELLED: "cancelled",
}


def result_of_frame(body: bytes) -> tuple[int, Result]:
    """Number of the work and its result. Raises ValueError, KeyError or TypeError for what a child may not send."""
    seq, status, began, ended_at = frames.DONE_HEAD.unpack_from(body)
    value = from_json(body[frames.DONE_HEAD.size :])
    outcome = _STATUS[status]
    succeeded = outcome == "succeeded"
    if not succeeded and (not isinstance(value, dict) or len(body) > 2 * ERROR_MAX_BYTES):
        raise frames.BrokenFrame
    return seq, Result(
        outcome=outcome,
        result=value if succeeded else None,
        error=None if succeeded else value,
        retryable=status != frames.FAILED_FOR_GOOD,
        retry_after_s=None if succeeded else value.pop("retry_after_s", None),
        pause_schedule=False,
        started_at=datetime.fromtimestamp(began, UTC),
        finished_at=datetime.fromtimestamp(ended_at, UTC),
    )


def result_without_frame(entry: Held, outcome: Outcome, now: datetime) -> Result:
    """The result of a work that did not report one."""
    if outcome == "returned":
        return returned(now, entry.started_at)
    class_, message = {
        "lost": ("lost", "The process that ran it ended without a result."),
        "timed_out": ("timeout", f"It ran for more than {entry.work.timeout_s:g} s and was stopped."),
    }.get(outcome, ("cancelled", "The run was cancelled."))
    return ended(outcome, now, entry.started_at, error=bounded_error(class_, message))


def verdict_on(seq: int, child: Child) -> Outcome:
    """How the work `seq` ends whose child ended while running it."""
    if child.verdict is None:
        return "lost"
    meant, outcome = child.verdict
    # A kill may hit the work after the one that it was meant for; that one did nothing wrong.
    return outcome if meant == seq else "returned"
