"""What an ended attempt adds to its tenant's figures. Pure."""

from apps.outcomes.causing import cause_of
from apps.outcomes.verdict import FAILURES, Report, Verdict, has_letter
from apps.tickets.values import Started
from apps.usage.figures import ATTEMPTS, ATTEMPTS_FAILED, DURATION, ENDS, RUN_MS, START, STARTED, Tally


def count(tally: Tally, started: Started, report: Report, verdict: Verdict, *, host: str) -> None:
    """Adds an attempt that was settled, and its run when that ended with it. `host` is the one that it called."""
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
    if report.outcome in FAILURES:
        tally.add(tenant_id, ATTEMPTS_FAILED)
        dead_letters = int(verdict.state == "dead" and has_letter(started.trigger, started.run_key))
        cause = cause_of(report.error, host=host)
        tally.failed(tenant_id, cause, execution_id=started.execution_id, letters=dead_letters)
