"""What follows from an ended attempt: pure, over values."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from apps.schedules.retry import RETRY_AFTER_MAX_S, RetryPolicy
from kernel.eventtypes import DELIVERY
from kernel.stepkeys import run_of_step

Kind = Literal["end", "again"]
ACCEPTED = "accepted"  # the attempt goes on outside; its result comes over the API
FAILURES = ("failed", "timed_out", "lost")
CUT_SHORT = ("timed_out", "lost")
USED_UP = "attempts_used_up"
TOTAL_TIMEOUT = "total_timeout"
RETURNED_WAIT_S = 0.0
WAIT_REASON_CHARS = 300


@dataclass(frozen=True, slots=True)
class Report:
    """How an attempt ended, as its executor or the reconciler says it."""

    outcome: str
    started_at: datetime
    finished_at: datetime
    result: str | None = None  # JSON text
    error: Mapping[str, Any] | None = None
    retryable: bool = True
    retry_after_s: float | None = None
    pause_schedule: bool = False
    holder: str = ""  # who goes on with what was accepted


@dataclass(frozen=True, slots=True)
class Verdict:
    """End the execution in `state`, or try again at `at`. `failures` is what counts against the policy then.

    `reason` says why it ended so, or why it waits.
    """

    kind: Kind
    state: str
    failures: int
    at: datetime | None = None
    reason: str = ""


def judge(
    report: Report, *, policy: RetryPolicy, failures: int, cancel_requested: bool, give_up_at: datetime | None = None
) -> Verdict:
    """Decides what follows. `failures` is the count before this attempt.

    A result that came in before the cancel took effect stands; whatever else ended is cancelled. No try is begun at
    `give_up_at` or later, the end of the total time-out: what would be is dead for that reason, and so is what this end
    cut short.
    """
    verdict = _by_policy(report, policy, failures, cancel_requested)
    if give_up_at is None:
        return verdict
    too_late = verdict.at is not None and verdict.at >= give_up_at
    cut_short = verdict.reason == USED_UP and report.outcome in CUT_SHORT and report.finished_at >= give_up_at
    if too_late or cut_short:
        return Verdict("end", "dead", verdict.failures, reason=TOTAL_TIMEOUT)
    return verdict


def has_letter(trigger: str, run_key: str) -> bool:
    """Whether the death of such a run is a dead letter of its own.

    Deliveries are listed with their webhook, and of a workflow's run there is one letter, not one for each step.
    """
    return trigger != DELIVERY and run_of_step(trigger, run_key) is None


def total_timeout_error(
    last: Mapping[str, Any] | None, *, give_up_at: datetime, total_timeout_s: int
) -> dict[str, Any]:
    """The error of a run whose total time-out ended; `last` is that of its last attempt."""
    at = give_up_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    message = f"Its total time-out of {total_timeout_s:,} s ended at {at}: no further attempt is begun."
    return {"class": TOTAL_TIMEOUT, "message": message, "last": dict(last) if last else None}


def _by_policy(report: Report, policy: RetryPolicy, failures: int, cancel_requested: bool) -> Verdict:
    if report.outcome == "succeeded":
        return Verdict("end", "succeeded", failures)
    if cancel_requested or report.outcome == "cancelled":
        return Verdict("end", "cancelled", failures, reason="cancelled")
    if report.outcome == "returned":
        wait = max(RETURNED_WAIT_S, min(report.retry_after_s or 0.0, RETRY_AFTER_MAX_S))
        at = report.finished_at + timedelta(seconds=wait)
        return Verdict("again", "ready", failures, at=at, reason=_why_returned(report.error or {}))
    failed = failures + 1
    if not report.retryable:
        return Verdict("end", "dead", failed, reason="not_retryable")
    names = names_of(report)
    if not policy.wants_retry(names):
        return Verdict("end", "dead", failed, reason="excluded_by_policy")
    if (report.error or {}).get("outcome_unknown") is True and not policy.asks_for(names):
        return Verdict("end", "dead", failed, reason="outcome_unknown")
    if failed >= policy.max_attempts:
        return Verdict("end", "dead", failed, reason=USED_UP)
    wait = policy.wait_s(failed, retry_after_s=report.retry_after_s)
    return Verdict("again", "ready", failed, at=report.finished_at + timedelta(seconds=wait), reason="retry")


def _why_returned(error: Mapping[str, Any]) -> str:
    """Why it waits, for the ticket: "breaker_open hooks.example.com:443"."""
    return " ".join(str(error[name]) for name in ("class", "destination") if error.get(name))[:WAIT_REASON_CHARS]


def names_of(report: Report) -> set[str]:
    """All names that a retry policy may call this failure by."""
    error = report.error or {}
    names = {report.outcome, str(error.get("class", ""))}
    status = error.get("status")
    if isinstance(status, int):
        names |= {f"http_{status}", f"http_{status // 100}xx"}
    return names - {""}
