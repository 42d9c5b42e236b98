"""What becomes of a work in a child process: results from DONE frames, and those that the parent writes itself."""

from datetime import UTC, datetime

from workers.executors import frames
from workers.executors.base import Held, Outcome, Result, cancelled, ended, returned
from workers.executors.bounds import ERROR_MAX_BYTES, bounded_error, from_json
from workers.executors.childpool import Child
from workers.executors.task_result import result_of


def result_of_frame(body: bytes) -> tuple[int, Result]:
    """Number of the work and its result. Raises ValueError, KeyError or TypeError for what a child may not send."""
    seq, status, began, ended_at = frames.DONE_HEAD.unpack_from(body)
    value = from_json(body[frames.DONE_HEAD.size :])
    if status != frames.SUCCEEDED and (not isinstance(value, dict) or len(body) > 2 * ERROR_MAX_BYTES):
        raise frames.BrokenFrame
    return seq, result_of(status, value, datetime.fromtimestamp(began, UTC), datetime.fromtimestamp(ended_at, UTC))


def result_without_frame(entry: Held, outcome: Outcome, now: datetime) -> Result:
    """The result of a work that did not report one."""
    if outcome == "returned":
        return returned(now, entry.started_at)
    if outcome not in ("lost", "timed_out"):
        return cancelled(now, entry.started_at)
    class_, message = {
        "lost": ("lost", "The process that ran it ended without a result."),
        "timed_out": ("timeout", f"It ran for more than {entry.work.timeout_s:g} s and was stopped."),
    }[outcome]
    return ended(outcome, now, entry.started_at, error=bounded_error(class_, message))


def verdict_on(seq: int, child: Child) -> Outcome:
    """How the work `seq` ends whose child ended while running it."""
    if child.verdict is None:
        return "lost"
    meant, outcome = child.verdict
    # A kill may hit the work after the one that it was meant for; that one did nothing wrong.
    return outcome if meant == seq else "returned"
