"""Why a run that is due does not run yet: the first rule of admission that refuses, in words with numbers. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from apps.dispatch.admission import Facts, Refusal, checks, refusal
from apps.dispatch.explaining.dependencies import waits_for
from apps.dispatch.explaining.ended import By, instant
from apps.dispatch.explaining.facts import Known
from apps.dispatch.explaining.rows import AHEAD_MAX, LastAttempt, Run
from apps.dispatch.explaining.values import Check, Holder, Position, Thing, Verdict
from kernel.durations import span
from kernel.pools import PULL

SOON_S = 60.0  # at the broker for longer than that is a finding
SHARED_LEVEL = "pool"  # limits and uses of this level are the platform's: tenants are told none of others' work

Sentence = Callable[[Run, Known, Refusal], str]


def checks_of(facts: Facts, *, operator: bool) -> list[Check]:
    """What every rule says, in the order of admission."""
    found = []
    for rule, room in checks(facts):
        hidden = rule.level == SHARED_LEVEL and not operator
        limit, use = (None, None) if hidden else (room.limit, room.use)
        found.append(Check(rule.code, rule.level, room.most >= 1, limit, use, room.clears_at))
    return found


def position_of(run: Run, known: Known) -> Position | None:
    """Its place among what waits with it, once it is in the order."""
    if run.rank is None or run.now_state != "ready":
        return None
    return Position(min(known.ahead, AHEAD_MAX), known.ahead <= AHEAD_MAX, run.key)


def waiting(
    run: Run, known: Known, *, holders: Sequence[Holder], by: By | None, last: LastAttempt | None, operator: bool
) -> Verdict:
    """The cause. `holders` hold what it waits for; `by` paused the job or the queue; `last` was tried before."""
    refused = refusal(known.facts)
    now = known.facts.now
    if refused is not None and refused.code == "not_yet_due":
        return _not_yet(run, known, refused, last)
    unserved = run.pool != PULL and not known.shared.is_released
    if unserved and (refused is None or refused.level == SHARED_LEVEL):
        text = f"No live dispatcher releases the pool {run.pool}: nothing of it is handed to workers."
        return Verdict("no_dispatcher", text, since=known.shared.lease_until, thing=Thing("dispatchers"))
    if refused is None:
        return _nothing(run, known)
    clears_at, estimate = _clears(run, known, refused)
    hidden = refused.level == SHARED_LEVEL and not operator
    text = _SENTENCES[refused.code](run, known, refused)
    if by is not None:
        text = f"{text.rstrip('.')}; by {by.who} at {instant(by.at)}."
    return Verdict(
        refused.code, text, check=refused.code, limit=None if hidden else refused.limit,
        use=None if hidden else refused.use, holders=holders, since=_since(run, known, refused.code, now),
        clears_at=clears_at, estimate=estimate, thing=_thing(run, refused.code),
    )  # fmt: skip


def _not_yet(run: Run, known: Known, refused: Refusal, last: LastAttempt | None) -> Verdict:
    assert refused.clears_at is not None
    until = f"until {instant(refused.clears_at)}, in {span((refused.clears_at - known.facts.now).total_seconds())}"
    code, fine, text = "not_yet_due", True, f"It is due at {instant(refused.clears_at)}."
    if run.stored_state == "scheduled":
        code, text = "delayed", f"It was asked for later, and waits {until}."
    elif run.releases:
        code, fine = "release_backoff", False
        times = f"{run.releases} time{'s' if run.releases > 1 else ''}"
        text = f"It was handed out {times} and no worker took it; it waits {until}."
    elif run.wait_reason == "retry":
        code, fine = "retry_backoff", False
        failed = f"attempt {last.number} {last.state.replace('_', ' ')}" if last else "an attempt failed"
        of = f" of {run.max_attempts}" if run.max_attempts else ""
        text = f"It is to be tried again: {failed}{of if last else ''}. It waits {until}."
    elif run.wait_reason or run.attempt:
        why = f" ({run.wait_reason})" if run.wait_reason else ""
        code, text = "returned", f"An attempt was handed back{why}; it waits {until}."
    return Verdict(
        code, text, fine=fine, check=refused.code, clears_at=refused.clears_at, thing=Thing(run.word, str(run.job_id))
    )


def _nothing(run: Run, known: Known) -> Verdict:
    """No rule refuses: it is a matter of its place, or of the next pass."""
    if known.ahead:
        clears_at, estimate = _by_pace(known)
        many = f"More than {AHEAD_MAX:,}" if known.ahead > AHEAD_MAX else f"{known.ahead:,}"
        what = f"with the key {run.key}" if run.key else "of its job"
        return Verdict("behind_others", f"{many} waiting {what} come first.", clears_at=clears_at, estimate=estimate)
    if run.pool == PULL:
        text = f"It is ready in the queue {run.queue}; no worker has asked for it yet."
        return Verdict("waits_for_pull", text, since=run.available_at, thing=Thing("queue", run.queue))
    return Verdict("about_to_start", "Nothing holds it back: it goes with the next pass of release.", fine=True)


def queued(run: Run, known: Known, *, operator: bool) -> Verdict:
    """At the broker: for a worker to take it."""
    now = known.facts.now
    at = run.ticket_queued_at or now
    waited = (now - at).total_seconds()
    if not known.facts.pool_slots:
        text = (
            f"It was handed to the queue {run.queue} {span(waited)} ago, and no live worker serves that queue any more."
        )
        return Verdict("no_workers", text, since=at, thing=Thing("workers"))
    where = (
        f"the queue {run.queue}, which {known.consumers} live workers serve" if operator else "a queue of live workers"
    )
    return Verdict("queued", f"It was handed to {where}, {span(waited)} ago.", fine=waited < SOON_S, since=at)


def _clears(run: Run, known: Known, refused: Refusal) -> tuple[datetime | None, str]:
    """When it may go, and how that was guessed; what is certain has no guess."""
    now, facts = known.facts.now, known.facts
    rates = {"tenant_rate": facts.tenant_rate, "job_rate": facts.job_rate}
    rate = rates.get(refused.code)
    if rate is not None:
        wait = (known.ahead + 1 - rate.tokens) / rate.per_s
        return now + timedelta(
            seconds=max(0.0, wait)
        ), f"{known.ahead + 1:,} tokens are needed, {rate.per_s:g} come back a second"
    if refused.code in _CONCURRENCY and known.lengths.median_s is not None and refused.limit:
        rounds = math.ceil((known.ahead + 1) / max(1.0, refused.limit))
        run_s = known.lengths.median_s
        text = (
            f"{known.ahead:,} come first, {refused.limit:,.0f} run at once, and "
            f"{known.lengths.seen} runs of the job took {span(run_s)} (median)"
        )
        return now + timedelta(seconds=max(run_s / max(1.0, refused.use or 1.0), (rounds - 1) * run_s)), text
    if refused.code in ("pool_full", "fair_share"):
        return _by_pace(known)
    return refused.clears_at, ""


def _by_pace(known: Known) -> tuple[datetime | None, str]:
    if known.released_per_s <= 0:
        return None, ""
    wait = (known.ahead + 1) / known.released_per_s
    text = f"{known.ahead:,} come first, and the tenant had {known.released_per_s * 60:,.0f} releases a minute lately"
    return known.facts.now + timedelta(seconds=wait), text


def _since(run: Run, known: Known, code: str, now: datetime) -> datetime | None:
    """Since when this holds, where somebody wrote it down."""
    if code == "job_paused":
        return run.job_paused_at
    if code == "queue_paused":
        return run.queue_paused_at
    return next((one.since for one in known.holds if one.code == code), None)


def _thing(run: Run, code: str) -> Thing:
    if code in ("tenant_inactive", "platform_paused", "dispatch_paused", "pool_paused"):
        return Thing("tenant")
    if code == "queue_paused":
        return Thing("queue", run.queue)
    if code in ("tenant_concurrency", "pool_maximum", "tenant_rate", "daily_quota", "fair_share"):
        return Thing("usage")
    if code in ("no_workers", "pool_full"):
        return Thing("workers")
    if code == "breaker_open":
        return Thing("breakers")
    if code == "overlap" and run.schedule_id is not None:
        return Thing("schedule", str(run.schedule_id))
    return Thing(run.word, str(run.job_id))


def _of(refused: Refusal) -> str:
    return f"{refused.use or 0:,.0f} of {refused.limit or 0:,.0f}"


def _reason(text: str) -> str:
    return f": {text.rstrip('.')}" if text else ""


_CONCURRENCY = ("job_concurrency", "tenant_concurrency", "pool_maximum", "concurrency_key")
_SENTENCES: Mapping[str, Sentence] = {
    "tenant_inactive": lambda run, known, refused: f"The tenant is {known.shared.status}: nothing of it is released.",
    "dispatch_paused": lambda run, known, refused: "The operator has paused all runs of this tenant.",
    "platform_paused": lambda run, known, refused: "Operators have paused the runs of all tenants.",
    "pool_paused": lambda run, known, refused: f"Operators have paused the pool {run.pool!r}.",
    "schedule_paused": lambda run, known, refused: f"Its schedule {run.schedule_name!r} is paused.",
    "job_paused": lambda run, known, refused: (
        f"Its {run.word} {run.job_name!r} is paused since {instant(run.job_paused_at)}{_reason(run.job_paused_reason)}."
    ),
    "queue_paused": lambda run, known, refused: (
        f"Its queue {run.queue} is paused since {instant(run.queue_paused_at)}{_reason(run.queue_paused_reason)}."
    ),
    "expired": lambda run, known, refused: f"It had to start by {instant(run.start_by)}; it is about to be ended.",
    "workflow_blocked": lambda run, known, refused: waits_for(known.parents),
    "overlap": lambda run, known, refused: (
        f"A run of its schedule {run.schedule_name!r} is queued or running; its overlap policy lets one run at a time."
    ),
    "job_concurrency": lambda run, known, refused: (
        f"{_of(refused)} runs of the {run.word} {run.job_name!r} are queued or running"
        f" ({'max_active_runs' if run.word == 'workflow' else 'max_concurrency'})."
    ),
    "tenant_concurrency": lambda run, known, refused: (
        f"{_of(refused)} runs of the tenant are queued or running (max_running of its plan)."
    ),
    "pool_maximum": lambda run, known, refused: (
        f"{_of(refused)} slots of the pool {run.pool} are held by the tenant (max_slots of its plan)."
    ),
    "concurrency_key": lambda run, known, refused: (
        f"{_of(refused)} runs of the job {run.job_name!r} with {run.key} are queued or running (concurrency_key)."
    ),
    "tenant_rate": lambda run, known, refused: (
        f"The plan lets {known.shared.max_runs_per_min or 0:,} runs start a minute (max_runs_per_min),"
        f" at most {refused.limit or 0:,.0f} at once; none may now."
    ),
    "job_rate": lambda run, known, refused: (
        f"The job's rate_limit lets {known.facts.job_rate.per_s * 60 if known.facts.job_rate else 0:,.6g} runs start a"
        f" minute, at most {refused.limit or 0:,.0f} at once; none may now."
    ),
    "daily_quota": lambda run, known, refused: f"{_of(refused)} runs of this day (UTC) are used (max_runs_per_day).",
    "breaker_open": lambda run, known, refused: (
        f"Calls to {known.destination} are held back until {instant(known.facts.breaker_until)}"
        f"{_reason(known.shared.breaker_reason or '')}."
    ),
    "no_workers": lambda run, known, refused: (
        f"No live worker of the pool {run.pool} serves the queue {known.queue}."
    ),
    "pool_full": lambda run, known, refused: (
        f"All that the workers of the pool {run.pool} can take is taken; the tenant has {known.facts.pool_use:,} of it."
    ),
    "fair_share": lambda run, known, refused: (
        f"Other work has its turn in the pool {run.pool}; the tenant has {known.facts.pool_use:,} runs there."
    ),
}  # fmt: skip
