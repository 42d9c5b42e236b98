"""Why a schedule does not run, or when it will, over what was read of it. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from apps.dispatch.explaining.ended import By, instant
from apps.dispatch.explaining.values import Thing, Verdict
from apps.dispatch.explaining.words import because
from apps.schedules import policy, timing
from apps.schedules.timing_preview import left_out
from apps.schedules.timing_spec import Spec
from kernel.durations import span
from kernel.pools import WORKFLOW

LEFT_OUT_SHOWN = 3
BEHIND_S = 10.0  # a due entry that is older was not fired in time
LATE_S = 60.0  # a run that waits for longer is said before what comes next
# What happened to the newest occurrence and is likely to happen to the next one, too.
TOLD_SKIPS = frozenset(
    {"overlap_skipped", "misfire_skipped", "misfire_capped", "misfire_too_old", "daily_quota", "backlog_full"}
)


class Facts(NamedTuple):
    """A schedule with its definition, job, due entry, the lease of its shard, and its tenant."""

    name: str
    status: str
    paused_reason: str
    paused_at: datetime | None
    resume_at: datetime | None
    defined_at: datetime
    spec: str
    job_id: UUID
    job_name: str
    job_kind: str
    job_paused_at: datetime | None
    job_paused_reason: str
    due_at: datetime | None
    nominal_at: datetime | None
    parked: str
    shard: int | None
    runs_done: int | None
    shard_is_held: bool
    lease_until: datetime | None
    dispatcher_host: str | None
    dispatcher_pid: int | None
    tenant_status: str
    dispatch_paused: bool
    alive: int


class Row(NamedTuple):
    """What became of an occurrence; `until_at` is the last one that the row stands for."""

    execution_id: UUID
    nominal_at: datetime
    state: str
    reason: str
    occurrences: int
    actual_at: datetime
    until_at: datetime | None


def is_paused(facts: Facts, now: datetime) -> bool:
    """A pause that ends by itself leaves its row as it is."""
    return facts.status == "paused" and (facts.resume_at is None or facts.resume_at > now)


def status_of(facts: Facts, now: datetime) -> str:
    """As the API says it."""
    if is_paused(facts, now):
        return "paused"
    gone = facts.due_at is None and facts.job_paused_at is None
    return "completed" if facts.status == "completed" or gone else "active"


def cause_now(
    schedule_id: UUID, facts: Facts, spec: Spec | None, rows: Sequence[Row], *, by: By | None, now: datetime,
    operator: bool,
) -> Verdict:  # fmt: skip
    """The first that holds, from what stops all of it to what comes next. `by`: who paused it, or its job."""
    me = Thing("schedule", str(schedule_id))
    if facts.tenant_status != "active":
        text = f"The tenant is {facts.tenant_status}: occurrences pass without a run, and nothing is owed for them."
        return Verdict("tenant_inactive", text, thing=Thing("tenant"))
    if is_paused(facts, now):
        return _paused(facts, me, by)
    if facts.job_paused_at is not None:
        word = "workflow" if facts.job_kind == WORKFLOW else "job"
        since, why = _since(facts.job_paused_at, by), _why(facts.job_paused_reason)
        text = f"Its {word} {facts.job_name!r} is paused{since}{why}."
        return Verdict("job_paused", text, since=facts.job_paused_at, thing=Thing(word, str(facts.job_id)))
    if facts.parked:
        return Verdict("entry_parked", f"Its due entry was put aside: {facts.parked}", thing=me)
    if facts.due_at is None or facts.nominal_at is None or spec is None:
        return _without_entry(schedule_id, facts, spec, me, now)
    if now - facts.nominal_at > policy.IMPLAUSIBLE_DEBT:
        text = (
            f"It has been due since {instant(facts.nominal_at)}, which is longer than the clock can be right about; "
            "no occurrence is fired or skipped until somebody has looked."
        )
        return Verdict("clock_implausible", text, since=facts.nominal_at, thing=me)
    if not facts.shard_is_held:
        due = (
            f"it has been due since {instant(facts.due_at)}"
            if facts.due_at <= now
            else f"it is due at {instant(facts.due_at)}"
        )
        text = f"No live dispatcher holds shard {facts.shard}, which it is in; {due}."
        return Verdict("no_dispatcher", text, since=facts.lease_until, thing=Thing("shard", str(facts.shard)))
    if facts.due_at <= now:
        late = (now - facts.due_at).total_seconds()
        where = f" by {facts.dispatcher_host}:{facts.dispatcher_pid}" if operator and facts.dispatcher_host else ""
        text = f"It has been due for {span(late)}; its shard is served{where}."
        return Verdict("due_now", text, fine=late < BEHIND_S, since=facts.due_at, thing=me)
    if facts.dispatch_paused:
        text = (
            f"Its runs are made, the next at {instant(facts.due_at)}; they wait: the operator has paused all of them."
        )
        return Verdict("dispatch_paused", text, thing=Thing("tenant"))
    if timing.is_look_again(spec, facts.nominal_at):
        text = f"Nothing was found up to {instant(facts.nominal_at)}; the search goes on from there then."
        return Verdict("nothing_ahead", text, clears_at=facts.due_at, thing=me)
    return _coming(facts, rows, me, now)


def cause_at(
    schedule_id: UUID, facts: Facts, spec: Spec, rows: Sequence[Row], *, at: datetime, now: datetime
) -> Verdict:
    """What became of one instant, or becomes of it."""
    row = rows[0] if rows else None
    micro = timedelta(microseconds=1)
    falls = timing.next_after(spec, at - micro) == at
    if row is not None and (row.nominal_at == at or (falls and row.until_at is not None and row.until_at >= at)):
        thing = Thing("execution", str(row.execution_id))
        if row.state == "skipped":
            return Verdict(row.reason, f"{instant(at)} did not run: {because(row.reason)}.", thing=thing)
        fine = row.state in ("succeeded", "running", "queued")
        return Verdict("made", f"{instant(at)} was made a run, which is {row.state}.", fine=fine, thing=thing)
    for one in left_out(spec, after=at - micro, until=at, limit=1):
        return Verdict(
            one.flags[-1],
            f"{one.nominal_local} does not run: {one.words[-1]}.",
            thing=Thing("schedule", str(schedule_id)),
        )
    if not falls:
        following, before = timing.next_after(spec, at), timing.previous_before(spec, at)
        if following is not None and timing.is_look_again(spec, following):
            following = None  # that far nothing was found
        around = f"before it on {instant(before)}, after it on {instant(following)}"
        text = f"Its trigger does not fall on {instant(at)}; {around}."
        return Verdict("not_an_occurrence", text)
    if at > now:
        return Verdict("to_come", f"{instant(at)} is still to come, in {span((at - now).total_seconds())}.", fine=True)
    if at < facts.defined_at:
        text = f"{instant(at)} lies before the schedule's present definition, which is of {instant(facts.defined_at)}."
        return Verdict("not_recorded", text)
    due = facts.nominal_at is not None and facts.nominal_at <= at
    if due:
        return Verdict("due_now", f"{instant(at)} is due and is not fired yet.", since=at)
    return Verdict(
        "not_recorded",
        f"There is no record of {instant(at)}; it is not kept any more, or reconcile has yet to find it.",
    )


def notes_of(facts: Facts, spec: Spec | None, rows: Sequence[Row], now: datetime) -> list[str]:
    """What else is worth knowing: days left out before the next run, runs under way."""
    found = []
    if spec is not None and facts.nominal_at is not None and (spec.exclusion is not None or spec.windows):
        since = min(now, rows[0].until_at or rows[0].nominal_at) if rows else now
        missing = left_out(spec, after=since, until=facts.nominal_at, limit=LEFT_OUT_SHOWN + 1)
        found += [f"{one.nominal_local} does not run: {one.words[-1]}." for one in missing[:LEFT_OUT_SHOWN]]
        found += ["More instants before the next run are left out."] if len(missing) > LEFT_OUT_SHOWN else []
    if facts.alive and spec is not None and spec.overlap != "allow":
        runs = f"{facts.alive:,} run{'s' if facts.alive > 1 else ''} of it"
        found.append(f"{runs} {'are' if facts.alive > 1 else 'is'} under way; its overlap policy is {spec.overlap}.")
    return found


def _coming(facts: Facts, rows: Sequence[Row], me: Thing, now: datetime) -> Verdict:
    """It will run. What became of its newest occurrence goes before, where that is worse."""
    assert facts.due_at is not None
    coming = f"The next run is due in {span((facts.due_at - now).total_seconds())}, at {instant(facts.due_at)}."
    newest = rows[0] if rows else None
    if newest is not None and newest.state == "skipped" and newest.reason in TOLD_SKIPS:
        several = f" and {newest.occurrences - 1:,} after it" if newest.occurrences > 1 else ""
        text = (
            f"Its occurrence of {instant(newest.nominal_at)}{several} did not run: {because(newest.reason)}. {coming}"
        )
        return Verdict(newest.reason, text, clears_at=facts.due_at, thing=Thing("execution", str(newest.execution_id)))
    if newest is not None and newest.state in ("blocked", "ready", "queued"):
        waits = (now - newest.actual_at).total_seconds()
        if waits > LATE_S:
            text = f"Its run of {instant(newest.nominal_at)} was made and has waited for {span(waits)}. {coming}"
            thing = Thing("execution", str(newest.execution_id))
            return Verdict("run_waits", text, since=newest.actual_at, thing=thing)
    return Verdict("next_run", coming, fine=True, clears_at=facts.due_at, thing=me)


def _paused(facts: Facts, me: Thing, by: By | None) -> Verdict:
    until = f" It goes on by itself at {instant(facts.resume_at)}." if facts.resume_at is not None else ""
    text = f"It is paused{_since(facts.paused_at, by)}{_why(facts.paused_reason)}.{until}"
    cause = "schedule_auto_paused" if by is not None and by.system else "schedule_paused"
    return Verdict(cause, text, since=facts.paused_at, clears_at=facts.resume_at, thing=me)


def _without_entry(schedule_id: UUID, facts: Facts, spec: Spec | None, me: Thing, now: datetime) -> Verdict:
    if facts.status != "completed" and spec is not None:
        first = policy.first_due(spec, key=str(schedule_id), after=now)
        if first is not None:
            text = f"It should run next at {instant(first[1])}, and has no due entry."
            return Verdict("entry_missing", text, thing=me)
    text = "Its trigger has no further instant"
    if spec is not None and spec.end_at is not None and spec.end_at <= now:
        text = f"Its end_at was {instant(spec.end_at)}"
    elif spec is not None and spec.max_runs is not None:
        text = f"Its max_runs of {spec.max_runs:,} are used up, or its trigger has no further instant"
    return Verdict("schedule_completed", f"{text}.", thing=me)


def _since(at: datetime | None, by: By | None) -> str:
    who = f" by {by.who}" if by is not None else ""
    return f" since {instant(at)}{who}" if at is not None else who


def _why(reason: str) -> str:
    return f": {reason.rstrip('.')}" if reason else ""
