"""Why a step of a workflow's run waits, what it is up to, or why it ended so, over what was read of it. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from apps.dispatch.explaining.dependencies import FITS, NAMED_MAX
from apps.dispatch.explaining.ended import ERROR_CHARS, By, instant
from apps.dispatch.explaining.values import Thing, Verdict
from apps.dispatch.explaining.words import STEP_WORDS, because
from apps.workflows.definitions.definition import Step
from kernel.durations import span

ENDED = ("succeeded", "failed", "cancelled", "skipped")


class RunNow(NamedTuple):
    """The run that a step is of."""

    id: UUID
    state: str
    deadline_at: datetime | None
    paused_at: datetime | None = None
    paused_by: str = ""
    paused_reason: str = ""


class StepNow(NamedTuple):
    """A row: a step, or one item of its list."""

    step: str
    item: int | None
    type: str
    state: str
    reason: str
    error: Mapping[str, Any] | None
    execution_id: UUID | None
    wake_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    forced: bool
    decided_by: str
    note: str
    items: int | None
    items_open: int
    items_failed: int
    asked: str = ""  # of an approval: its message

    @property
    def name(self) -> str:
        return self.step if self.item is None else f"{self.step}[{self.item}]"


class Parent(NamedTuple):
    """What a step needs: a step, how it is to end, and how it is. `met` is None while it has not ended."""

    step: str
    on: str
    state: str
    met: bool | None


class Before(NamedTuple):
    """The same step in the run before, where that has not ended."""

    run_id: UUID
    state: str


def step_verdict(
    run: RunNow, row: StepNow, step: Step | None, parents: Sequence[Parent], *, before: Before | None = None,
    by: By | None = None, now: datetime,
) -> Verdict:  # fmt: skip
    """The cause. `step` is None for what is beside the graph; `by`: who paused or cancelled, as the trail says it."""
    me = Thing("workflow_run", str(run.id))
    if row.state in ENDED:
        return _ended(run, row, parents, by, me)
    if run.state == "paused":
        return _paused(run, by, me)
    if run.state == "cancelling":
        text = "Its run was cancelled: nothing of it starts any more, and it ends when what runs has stopped."
        return Verdict("run_cancelling", text, since=by.at if by else None, thing=me)
    if row.state == "running":
        return _running(row, step, me, now)
    if row.item is not None and step is not None and step.for_each is not None:
        most = step.for_each.max_in_flight
        text = f"{most:,} items of the step may run at once." if most else "It starts with the next pass."
        return Verdict("items_in_flight" if most else "about_to_start", text, fine=True, limit=most, thing=me)
    if before is not None:
        text = f"It waits for {row.step!r} of the run before, {before.run_id}, which is {before.state}."
        return Verdict("waits_for_previous", text, fine=True, thing=Thing("workflow_run", str(before.run_id)))
    pending = [one for one in parents if one.met is None]
    if not pending:
        return Verdict(
            "about_to_start", "All that it needs has ended, and it is decided with the next pass.", fine=True
        )
    return Verdict("waits_for_steps", waits_for(step, parents), fine=True, thing=me)


def waits_for(step: Step | None, parents: Sequence[Parent]) -> str:
    """Which steps a waiting one waits for, and what its join rule asks of them."""
    pending = [one for one in parents if one.met is None]
    met = sum(1 for one in parents if one.met)
    named = ", ".join(f"{one.step!r} {FITS[one.on]} (it is {one.state})" for one in pending[:NAMED_MAX])
    more = f" and {len(pending) - NAMED_MAX:,} more" if len(pending) > NAMED_MAX else ""
    join = "all" if step is None else step.join
    if join in ("any", "at_least"):
        wanted = 1 if join == "any" or step is None else step.at_least
        return f"{met:,} of {wanted:,} that it needs are met; it waits until {named}{more}."
    if join == "none_failed":
        return f"It is decided when all that it needs has ended; it waits until {named}{more}."
    return f"It waits until {named}{more}."


def run_verdict(run: RunNow, open_steps: Sequence[tuple[str, Verdict]], *, error: Mapping[str, Any] | None, reason: str,
                finished_at: datetime | None, by: By | None) -> Verdict:  # fmt: skip
    """Of the whole run: what of its open steps somebody should see to, else what it does."""
    me = Thing("workflow_run", str(run.id))
    if run.state in ("succeeded", "failed", "cancelled"):
        return _run_ended(run, error, reason, finished_at, by, me)
    if run.state == "paused":
        return _paused(run, by, me)
    if run.state == "cancelling":
        text = f"It was cancelled{_who(by)}; {len(open_steps):,} of its steps have yet to stop."
        return Verdict("run_cancelling", text, since=by.at if by else None, thing=me)
    for name, verdict in open_steps:
        if not verdict.fine:
            return verdict_of(name, verdict)
    going = [(name, one) for name, one in open_steps if one.code not in ("waits_for_steps", "waits_for_previous")]
    if not going and open_steps:
        return verdict_of(*open_steps[0])
    names = ", ".join(repr(name) for name, _ in going[:NAMED_MAX])
    more = f" and {len(going) - NAMED_MAX:,} more" if len(going) > NAMED_MAX else ""
    text = f"It is at {names}{more}." if going else "All its steps have ended, and it is about to be settled."
    return Verdict("run_goes_on", text, fine=True, clears_at=run.deadline_at, thing=me)


def verdict_of(name: str, verdict: Verdict) -> Verdict:
    """A step's verdict as its run's: the step is named."""
    return Verdict(
        verdict.code, f"Step {name!r}: {verdict.detail}", verdict.fine, verdict.check, verdict.limit, verdict.use,
        verdict.holders, verdict.since, verdict.clears_at, verdict.estimate, verdict.thing,
    )  # fmt: skip


def _paused(run: RunNow, by: By | None, me: Thing) -> Verdict:
    why = f": {run.paused_reason.rstrip('.')}" if run.paused_reason else ""
    text = f"Its run is paused since {instant(run.paused_at)}{_who(by)}{why}. What runs ends; nothing new starts."
    return Verdict("run_paused", text, since=run.paused_at, thing=me)


def _running(row: StepNow, step: Step | None, me: Thing, now: datetime) -> Verdict:
    since = row.started_at or now
    if row.type == "approval":
        role = step.approval.role if step is not None and step.approval is not None else "operator"
        over = f", until {instant(row.wake_at)}" if row.wake_at is not None else ""
        text = f"It waits for a person with the role {role} or more to approve or reject it{over}."
        if row.asked:
            text += f" It is asked: {row.asked[:ERROR_CHARS]}"
        return Verdict("awaits_approval", text, since=since, clears_at=row.wake_at, thing=me)
    if row.type == "delay":
        text = f"It waits until {instant(row.wake_at)}."
        return Verdict("step_delay", text, fine=True, since=since, clears_at=row.wake_at, thing=me)
    if row.items is not None:
        done = row.items - row.items_open
        failed = f", {row.items_failed:,} of them failed" if row.items_failed else ""
        text = f"{done:,} of {row.items:,} items have ended{failed}."
        return Verdict(
            "items_running", text, fine=not row.items_failed, limit=row.items, use=done, since=since, thing=me
        )
    if row.type == "workflow" and row.execution_id is not None:
        text = f"It is a run of another workflow, {row.execution_id}, which goes on."
        return Verdict(
            "sub_workflow", text, fine=True, since=since, thing=Thing("workflow_run", str(row.execution_id))
        )  # fmt: skip
    return Verdict(
        "running", f"It has run for {span((now - since).total_seconds())}.", fine=True, since=since, thing=me
    )


def _ended(run: RunNow, row: StepNow, parents: Sequence[Parent], by: By | None, me: Thing) -> Verdict:
    thing = me if row.execution_id is None else Thing("execution", str(row.execution_id))
    at = instant(row.finished_at)
    said = f" {row.decided_by} said so{': ' + row.note.rstrip('.') if row.note else ''}." if row.decided_by else ""
    if row.state == "succeeded":
        return Verdict("succeeded", f"It succeeded at {at}.{said}", fine=True, thing=thing)
    if row.state == "cancelled":
        return Verdict("cancelled", f"It was cancelled{_who(by)} at {at}.{said}", since=row.finished_at, thing=thing)
    if row.state == "failed":
        why = f": {because(row.reason)}" if row.reason in STEP_WORDS else ""
        text = f"It failed at {at}{why}.{said}{_error(row.error)}"
        return Verdict("step_failed", text, since=row.finished_at, thing=thing)
    code = row.reason if row.reason in STEP_WORDS else "skipped"
    text = f"It was skipped at {at}: {because(code)}.{said}"
    unmet = [one for one in parents if one.met is False]
    if unmet and code in ("upstream_failed", "upstream_skipped"):
        named = ", ".join(f"{one.step!r} ({one.on} was asked, it is {one.state})" for one in unmet[:NAMED_MAX])
        text += f" Not met: {named}."
    return Verdict(code, f"{text}{_error(row.error)}", fine=code == "when_false", since=row.finished_at, thing=thing)


def _run_ended(
    run: RunNow, error: Mapping[str, Any] | None, reason: str, finished_at: datetime | None, by: By | None, me: Thing
) -> Verdict:
    at = instant(finished_at)
    if run.state == "succeeded":
        return Verdict("succeeded", f"It succeeded at {at}.", fine=True, thing=me)
    if run.state == "cancelled":
        return Verdict("cancelled", f"It was cancelled{_who(by)}; it ended at {at}.", since=finished_at, thing=me)
    if reason == "deadline":
        text = f"Its deadline passed; what had not ended by then was stopped. It ended at {at}."
        return Verdict("run_deadline", text, since=finished_at, thing=me)
    step = f" Step {error['step']!r} failed it." if error and error.get("step") else ""
    return Verdict("run_failed", f"It failed at {at}.{step}{_error(error)}", since=finished_at, thing=me)


def _who(by: By | None) -> str:
    return f" by {by.who}" if by is not None else ""


def _error(error: Mapping[str, Any] | None) -> str:
    text = str((error or {}).get("message") or (error or {}).get("class") or "")[:ERROR_CHARS]
    return f" The error: {text}" if text else ""
