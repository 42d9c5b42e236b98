"""What to do with a schedule that is due: misfire policy, then overlap policy. Values in, values out.

A due entry stands for `nominal_at` and for all later occurrences that are due as well. Those whose actual instant is at
most `grace_s` old are on time and fire as `schedule`. The rest was missed; the misfire policy says which of them are
made up for (`catch_up`, with `now` as their actual instant, or later ones where a rate spreads them) and which become a
skip row. Then the overlap policy drops what would start beside runs that are still alive, or says that these make way.
So every occurrence ends as exactly one fire or in exactly one skip.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from apps.schedules.timing import (
    Spec,
    actual_at,
    count_between,
    is_look_again,
    latest_between,
    next_after,
    occurrences,
    previous_before,
)
from apps.schedules.timing_runs import counted
from apps.schedules.timing_spec import MISFIRE_MAX_HARD

IMPLAUSIBLE_DEBT = timedelta(days=3653)
CURSOR_AHEAD = timedelta(minutes=5)
# Policies under which a new run takes the place of what waits; the second one stops what runs as well.
REPLACING = ("replace_pending", "cancel_running")
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Fire:
    """One execution to make. `trigger` is "schedule" or "catch_up"."""

    nominal_at: datetime
    actual_at: datetime
    trigger: str


@dataclass(frozen=True, slots=True)
class Skip:
    """A run of `count` occurrences from `nominal_at` to `until` (both nominal, inclusive) that do not run, and why.

    Reasons: "misfire_skipped" (the policy), "misfire_capped" (older than the newest `misfire_max`), "misfire_too_old"
    (above `misfire_max_age_s`), "overlap_skipped", "replaced" (a newer one took its place before it could start),
    "tenant_suspended". What a plan's limits leave no room for is skipped after this decision: "backlog_full"
    (unfinished executions), "daily_quota" (runs of a day).
    """

    nominal_at: datetime
    until: datetime
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Fires are in the order in which they are to run. `next_nominal` None means that the schedule is completed.

    With `replaces` the fire takes the place of the schedule's runs that wait; with `cancels` what runs is to stop.
    With an `alert` nothing may be written: the entry stays as it is until the clock makes sense.
    """

    fires: tuple[Fire, ...]
    skips: tuple[Skip, ...]
    next_nominal: datetime | None
    next_due: datetime | None
    alert: str | None = None
    done: int | None = None  # of max_runs, by the occurrences before `next_nominal`; None when that was not asked
    replaces: bool = False
    cancels: bool = False


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many of some new runs start, and what becomes of those that are alive."""

    starts: int
    replaces: bool = False
    cancels: bool = False


def overlap(policy: str, *, new: int, live: int, buffer: int) -> Overlap:
    """What an overlap policy says to `new` runs beside `live` ones; under a replacing policy the newest one starts.

    `buffer` is how many may wait under buffer_all.
    """
    if policy == "allow":
        return Overlap(new)
    if policy in REPLACING:
        return Overlap(
            min(new, 1), replaces=live > 0 and new > 0, cancels=live > 0 < new and policy == "cancel_running"
        )
    room = {"skip": 1, "buffer_one": 2, "buffer_all": buffer + 1}[policy]
    return Overlap(max(0, min(new, room - live)))


def decide(
    spec: Spec, *, key: str, nominal_at: datetime, due_at: datetime, now: datetime, live: int = 0,
    done: int | None = None,
) -> Decision:  # fmt: skip
    """Decides about the due entry (`nominal_at`, `due_at`) at `now`. `live` counts its runs, queued or running.

    `done` are its runs before this one that count for max_runs, as the entry says; None has them counted.
    """
    if due_at > now:
        return Decision((), (), nominal_at, due_at, done=done)
    spec, before = counted(spec, nominal_at=nominal_at, done=done)
    if is_look_again(spec, nominal_at):
        return _look_again(spec, key, nominal_at, before)
    decision = _decide(spec, key, nominal_at, due_at, now, live)
    passed = len(decision.fires) + sum(skip.count for skip in decision.skips)
    return replace(decision, done=before + passed) if spec.max_runs is not None else decision


def _decide(spec: Spec, key: str, nominal_at: datetime, due_at: datetime, now: datetime, live: int) -> Decision:
    following = next_after(spec, nominal_at)
    following_due = following if following is None or not spec.jitter_s else actual_at(spec, key, following)
    if (
        (following_due is None or following_due > now)
        and (not live or spec.overlap == "allow")
        and (now - due_at).total_seconds() <= spec.grace_s
    ):
        return Decision((Fire(nominal_at, due_at, "schedule"),), (), following, following_due)
    if now - nominal_at > IMPLAUSIBLE_DEBT:
        return Decision((), (), nominal_at, due_at, alert="clock_implausible")
    return _decide_debt(spec, key, nominal_at, due_at, now, live)


def stand_still(
    spec: Spec, *, key: str, nominal_at: datetime, due_at: datetime, now: datetime, done: int | None = None
) -> Decision:
    """Decides about the due entry of a tenant that is suspended: nothing runs, nothing is owed, one skip tells it."""
    if due_at > now:
        return Decision((), (), nominal_at, due_at, done=done)
    if now - nominal_at > IMPLAUSIBLE_DEBT:
        return Decision((), (), nominal_at, due_at, alert="clock_implausible")
    spec, before = counted(spec, nominal_at=nominal_at, done=done)
    if is_look_again(spec, nominal_at):
        return _look_again(spec, key, nominal_at, before)
    debt = _debt(spec, key, nominal_at, due_at, now)
    later = count_between(spec, after=nominal_at, until=debt.newest)
    skip = Skip(nominal_at, debt.newest, later + 1, "tenant_suspended")
    return Decision(
        (), (skip,), debt.next_nominal, debt.next_due, done=before + skip.count if spec.max_runs is not None else None
    )


def _look_again(spec: Spec, key: str, searched_to: datetime, done: int) -> Decision:
    """The entry stood at no occurrence, but where a bounded search had ended: it goes on from there."""
    nominal, due = first_due(spec, key=key, after=searched_to) or (None, None)
    return Decision((), (), nominal, due, done=done if spec.max_runs is not None else None)


def first_due(spec: Spec, *, key: str, after: datetime) -> tuple[datetime, datetime] | None:
    """Nominal and actual instant of a new due entry, without any debt: after an edit, a resume or the creation.

    None means that nothing is left to run.
    """
    nominal = next_after(spec, after)
    return None if nominal is None else (nominal, actual_at(spec, key, nominal))


def made_up_for(spec: Spec, *, on_time: int) -> int:
    """How many of the occurrences that were missed run after all, the newest ones, beside so many later ones."""
    return {
        "skip": 0,
        "fire_once": 0 if on_time else 1,
        "fire_latest_n": spec.misfire_max,
        "fire_all": max(0, spec.misfire_max - on_time),
    }[spec.misfire]


def left_out(spec: Spec) -> str:
    """Why the misfire policy leaves out the others."""
    return "misfire_capped" if spec.misfire == "fire_all" else "misfire_skipped"


def cursor_is_ahead(spec: Spec, *, nominal_at: datetime, now: datetime) -> bool:
    """The entry waits for a later instant than the clock says it should: the clock went back. Re-make it from now."""
    expected = next_after(spec, now)
    return expected is not None and nominal_at > expected and nominal_at - now > CURSOR_AHEAD


@dataclass(frozen=True, slots=True)
class _Debt:
    """All occurrences that are due: the first one, the newest one, and what lies in between."""

    first: datetime
    first_due: datetime
    newest: datetime
    next_nominal: datetime | None
    next_due: datetime | None


def _decide_debt(spec: Spec, key: str, nominal_at: datetime, due_at: datetime, now: datetime, live: int) -> Decision:
    debt = _debt(spec, key, nominal_at, due_at, now)
    on_time, more = _on_time(spec, key, debt, now)
    missed_until = on_time[0].nominal_at - _MICROSECOND if on_time else debt.newest
    caught_up, skips = _misfire(spec, debt, missed_until, len(on_time), now)
    chosen = overlap(spec.overlap, new=len(caught_up) + len(on_time), live=live, buffer=spec.overlap_max)
    fires, dropped = _chosen(spec, caught_up + on_time, chosen.starts)
    following = more if more is not None else (debt.next_nominal, debt.next_due)
    return Decision(
        ordered(spec, fires, now), skips + dropped, *following, replaces=chosen.replaces, cancels=chosen.cancels
    )


def _debt(spec: Spec, key: str, nominal_at: datetime, due_at: datetime, now: datetime) -> _Debt:
    """Actual instants increase with nominal ones, so only the newest nominal instant may be still to come."""
    latest, _ = latest_between(spec, after=nominal_at, until=now, limit=2)
    newest = [nominal_at, *latest]
    still_to_come = len(newest) > 1 and actual_at(spec, key, newest[-1]) > now
    coming = newest.pop() if still_to_come else next_after(spec, newest[-1])
    return _Debt(nominal_at, due_at, newest[-1], coming, coming and actual_at(spec, key, coming))


def _on_time(spec: Spec, key: str, debt: _Debt, now: datetime) -> tuple[list[Fire], tuple[datetime, datetime] | None]:
    """The due occurrences within the grace. What exceeds one pass stays due: then also the entry for it."""
    oldest = now - timedelta(seconds=spec.grace_s)
    fires = [Fire(debt.first, debt.first_due, "schedule")] if debt.first_due >= oldest else []
    # Jitter ends before the next nominal instant, so at most one occurrence from before `oldest` can still be on time.
    earlier = previous_before(spec, oldest) if spec.jitter_s else None
    after = max(debt.first, (earlier or oldest) - _MICROSECOND)
    for nominal in occurrences(spec, after=after, until=debt.newest, limit=MISFIRE_MAX_HARD + 2):
        actual = actual_at(spec, key, nominal)
        if actual < oldest:
            continue
        if len(fires) == MISFIRE_MAX_HARD:
            return fires, (nominal, actual)
        fires.append(Fire(nominal, actual, "schedule"))
    return fires, None


def _misfire(
    spec: Spec, debt: _Debt, until: datetime, on_time: int, now: datetime
) -> tuple[list[Fire], tuple[Skip, ...]]:
    """Splits the missed occurrences (first to `until`) into those that are made up for and at most two skip rows."""
    if debt.first > until:
        return [], ()
    first, too_old = _too_old(spec, debt, until, now)
    if first is None:
        return [], too_old
    keep = made_up_for(spec, on_time=on_time)
    kept, later = latest_between(spec, after=first, until=until, limit=keep) if keep else ([], 0)
    if not keep:
        later = count_between(spec, after=first, until=until)
    total = later + 1
    if len(kept) < keep:
        kept.insert(0, first)
    fires = [Fire(nominal, now, "catch_up") for nominal in kept]
    if len(kept) == total:
        return fires, too_old
    before = kept[0] - _MICROSECOND if kept else until
    last, _ = latest_between(spec, after=first, until=before, limit=1)
    reason = left_out(spec)
    return fires, (*too_old, Skip(first, last[0] if last else first, total - len(kept), reason))


def _too_old(spec: Spec, debt: _Debt, until: datetime, now: datetime) -> tuple[datetime | None, tuple[Skip, ...]]:
    """The first missed occurrence that is young enough to be made up for, if any, and the row for those before it."""
    if spec.misfire_max_age_s is None or spec.misfire == "skip":
        return debt.first, ()
    oldest = now - timedelta(seconds=spec.misfire_max_age_s)
    if debt.first >= oldest:
        return debt.first, ()
    before = min(until, oldest - _MICROSECOND)
    last, later = latest_between(spec, after=debt.first, until=before, limit=1)
    skip = Skip(debt.first, last[0] if last else debt.first, later + 1, "misfire_too_old")
    first = next_after(spec, before)
    return first if first is not None and first <= until else None, (skip,)


def _chosen(spec: Spec, fires: list[Fire], starts: int) -> tuple[list[Fire], tuple[Skip, ...]]:
    """The oldest fires that find room, or the newest where it replaces the others; one skip row for the rest."""
    if starts >= len(fires):
        return fires, ()
    if spec.overlap in REPLACING:
        kept, dropped, reason = fires[-1:], fires[:-1], "replaced"
    else:
        kept, dropped, reason = fires[:starts], fires[starts:], "overlap_skipped"
    return kept, (Skip(dropped[0].nominal_at, dropped[-1].nominal_at, len(dropped), reason),)


def ordered(spec: Spec, fires: list[Fire], now: datetime) -> tuple[Fire, ...]:
    """What is on time after what is made up for; this in its order, spread by its rate."""
    late = [fire for fire in fires if fire.trigger == "catch_up"]
    on_time = [fire for fire in fires if fire.trigger != "catch_up"]
    if spec.misfire_order == "newest":
        late.reverse()
    if spec.catch_up_per_s is not None:
        gap_s = 1 / spec.catch_up_per_s
        late = [
            Fire(fire.nominal_at, now + timedelta(seconds=number * gap_s), fire.trigger)
            for number, fire in enumerate(late)
        ]
    return (*late, *on_time)
