"""What a run that has a worker is up to, and whether it should have ended by now. Pure."""

from datetime import datetime

from apps.dispatch.explaining.ended import By, instant
from apps.dispatch.explaining.rows import Lengths, Run
from apps.dispatch.explaining.values import Thing, Verdict
from kernel.durations import span

LONG_TIMES = 2.0  # of what 19 of 20 runs of its job take
LONG_LEAST_S = 10.0


def running(run: Run, lengths: Lengths, *, by: By | None, now: datetime, operator: bool) -> Verdict:
    """`by` asked for its end, where somebody did."""
    me = Thing("execution", str(run.id))
    since = run.ticket_started_at or now
    ran = (now - since).total_seconds()
    what = f"Attempt {run.attempt} has run for {span(ran)}"
    if run.deadline is not None and run.deadline < now:
        text = f"{what}; its deadline was {instant(run.deadline)}, and it is about to be ended as lost."
        return Verdict("past_deadline", text, since=since, thing=me)
    if run.cancel_requested:
        who = f" by {by.who} at {instant(by.at)}" if by is not None else ""
        text = f"{what}; it was asked to stop{who}, and has until {instant(run.deadline)}."
        return Verdict("cancel_requested", text, since=by.at if by else since, clears_at=run.deadline, thing=me)
    if run.remote:
        holder = run.holder or "somebody who gave no name"
        text = f"{what}; {holder} holds it from outside, until {instant(run.deadline)} without a word."
        return Verdict("held_outside", text, fine=True, since=since, clears_at=run.deadline, thing=me)
    if run.worker_expires_at is None or run.worker_expires_at < now:
        gone = f"ran out at {instant(run.worker_expires_at)}" if run.worker_expires_at else "is not there any more"
        return Verdict("worker_lost", f"{what}; the lease of its worker {gone}.", since=since, thing=me)
    where = f" on {run.worker_host}:{run.worker_pid}" if operator else ""
    if lengths.median_s is None or lengths.high_s is None:
        return Verdict("running", f"{what}{where}.", fine=True, since=since, thing=me)
    usual = (
        f"{lengths.seen} runs of its job lately took {span(lengths.median_s)} (median), "
        f"19 of 20 up to {span(lengths.high_s)}"
    )
    if ran > max(LONG_LEAST_S, LONG_TIMES * lengths.high_s):
        return Verdict("running_long", f"{what}{where}; {usual}.", since=since, clears_at=run.deadline, thing=me)
    return Verdict("running", f"{what}{where}; {usual}.", fine=True, since=since, thing=me)
