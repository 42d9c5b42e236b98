"""What an ended attempt adds to its tenant's figures. Pure."""

from apps.outcomes.verdict import Report, Verdict
from apps.tickets.values import Started
from apps.usage.figures import ATTEMPTS, ATTEMPTS_FAILED, DURATION, ENDS, RUN_MS, START, STARTED, Tally

FAILED = ("failed", "timed_out", "lost")


def count(tally: Tally, started: Started, report: Report, verdict: Verdict) -> None:
    """Adds an attempt that was settled, and its run when that ended with it."""
    tenant_id = started.tenant_id
    if verdict.kind == "end":
        tally.add(tenant_id, ENDS[verdict.state])
    if started.attempt == 1:
        tally.add(tenant_id, STARTED)
        tally.took(tenant_id, START, (report.started_at - started.actual_at).total_seconds())
    if report.outcome == "returned":  # it does not count against the job either
        return
    took_s = (report.finished_at - report.started_at).total_seconds()
    tally.add(tenant_id, ATTEMPTS)
    tally.add(tenant_id, RUN_MS, round(took_s * 1_000))
    tally.took(tenant_id, DURATION, took_s)
    if report.outcome in FAILED:
        tally.add(tenant_id, ATTEMPTS_FAILED)
