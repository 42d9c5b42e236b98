"""What to do with a schedule that is due: misfire policy, then overlap policy. Values in, values out.

A due entry stands for `nominal_at` and for all later occurrences that are due as well. Those whose actual instant is at
most `grace_s` old are on time and fire as `schedule`. The rest was missed; the misfire policy says which of them are
made up for (`catch_up`, with `now` as their actual instant) and which become a skip row. Then the overlap policy drops
what would start beside runs that are still alive. So every occurrence ends as exactly one fire or in exactly one skip.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from apps.schedules.timing import (
    At,
    Spec,
    actual_at,
    count_between,
    latest_between,
    next_after,
    occurrences,
    previous_before,
)
from apps.schedules.timing_api import PAST_TOLERANCE_S
from apps.schedules.timing_spec import MISFIRE_MAX_HARD

IMPLAUSIBLE_DEBT = timedelta(days=3653)
CURSOR_AHEAD = timedelta(minutes=5)
CREATED_LATE = timedelta(seconds=PAST_TOLERANCE_S)
# How many runs of a schedule may be alive at once, waiting ones included; None is no bound.
OVERLAP_ROOM: dict[str, int | None] = {"allow": None, "skip": 1, "buffer_one": 2}
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

    Reasons: "misfire_skipped" (the policy), "misfire_capped" (older than the newest `misfire_max`), "overlap_skipped".
    """

    nominal_at: datetime
    until: datetime
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Fires are oldest first. `next_nominal` None means that the schedule is completed.

    With an `alert` nothing may be written: the entry stays as it is and is put aside until the clock makes sense.
    """

    fires: tuple[Fire, ...]
    skips: tuple[Skip, ...]
    next_nominal: datetime | None
    next_due: datetime | None
    alert: str | None = None


def decide(spec: Spec, *, key: str, nominal_at: datetime, due_at: datetime, now: datetime, live: int = 0) -> Decision:
    """Decides about the due entry (`nominal_at`, `due_at`) at `now`. `live` counts its runs, queued or running."""
    if due_at > now:
        return Decision((), (), nominal_at, due_at)
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


def first_due(spec: Spec, *, key: str, after: datetime, created: bool = False) -> tuple[datetime, datetime] | None:
    """Nominal and actual instant of a new due entry, without any debt: after an edit, a resume or, with `created`, now.

    A schedule that is `created` to start, or to run its one time, within the last minute still does: its request took a
    moment, or the sender's clock is a little off. None means that nothing is left to run.
    """
    wanted = spec.trigger.instant if isinstance(spec.trigger, At) else spec.start_at
    if created and wanted is not None and wanted <= after <= wanted + CREATED_LATE:
        after = wanted - _MICROSECOND
    nominal = next_after(spec, after)
    return None if nominal is None else (nominal, actual_at(spec, key, nominal))


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
    fires, dropped = _overlap(spec, caught_up + on_time, live)
    if more is not None:
        return Decision(fires, skips + dropped, *more)
    return Decision(fires, skips + dropped, debt.next_nominal, debt.next_due)


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
    """Splits the missed occurrences (first to `until`) into those that are made up for and one skip row."""
    if debt.first > until:
        return [], ()
    keep = {
        "skip": 0,
        "fire_once": 0 if on_time else 1,
        "fire_latest_n": spec.misfire_max,
        "fire_all": max(0, spec.misfire_max - on_time),
    }[spec.misfire]
    kept, later = latest_between(spec, after=debt.first, until=until, limit=keep) if keep else ([], 0)
    if not keep:
        later = count_between(spec, after=debt.first, until=until)
    total = later + 1
    if len(kept) < keep:
        kept.insert(0, debt.first)
    fires = [Fire(nominal, now, "catch_up") for nominal in kept]
    if len(kept) == total:
        return fires, ()
    before = kept[0] - _MICROSECOND if kept else until
    last, _ = latest_between(spec, after=debt.first, until=before, limit=1)
    reason = "misfire_capped" if spec.misfire == "fire_all" else "misfire_skipped"
    return fires, (Skip(debt.first, last[0] if last else debt.first, total - len(kept), reason),)


def _overlap(spec: Spec, fires: list[Fire], live: int) -> tuple[tuple[Fire, ...], tuple[Skip, ...]]:
    """The oldest fires that still find room; one skip row for the rest."""
    room = OVERLAP_ROOM[spec.overlap]
    if room is None:
        return tuple(fires), ()
    free = max(0, room - live)
    dropped = fires[free:]
    if not dropped:
        return tuple(fires), ()
    skip = Skip(dropped[0].nominal_at, dropped[-1].nominal_at, len(dropped), "overlap_skipped")
    return tuple(fires[:free]), (skip,)
