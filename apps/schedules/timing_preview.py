"""What would run when, with what is special about each occurrence; bounded for whatever spec it is given."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from apps.schedules.recurrence import DAY_S
from apps.schedules.timing import actual_at, jitter_bound, next_after, occurrences, previous_before
from apps.schedules.timing_business_days import MOVED_DAYS_MAX
from apps.schedules.timing_calendar import fold_flags
from apps.schedules.timing_errors import TimingInvalid
from apps.schedules.timing_moved import flags_of
from apps.schedules.timing_spec import WALKED_MAX, Spec
from apps.schedules.timing_triggers import At, Interval, instant_text
from apps.schedules.timing_walls import floor_s, instant, local_s, place, runs_at
from apps.schedules.timing_zones import load_zone, zone_offsets

LEFT_OUT_MAX = 100
REACH = timedelta(days=3_660)
TRIES_MAX = 20_000  # instants outside of windows that one preview passes over; it ends with what it has found by then
SCANNED_MAX = 2_000  # instants of the bare trigger that are looked at for what is left out
WORDS = {
    "dst_gap_moved": "the clock skips its time; it runs right after",
    "dst_gap_skipped": "the clock skips its time; it does not run",
    "dst_fold_first": "its time comes twice; this is the first",
    "dst_fold_second": "its time comes twice; this is the second",
    "jittered": "spread by jitter",
    "jitter_clipped": "its jitter is clipped by a window: it ends where the window or the schedule does",
    "excluded": "its day is excluded by the calendar",
    "moved_from_excluded": "moved here from a day that the calendar excludes",
    "outside_window": "outside of the daily windows",
    "moved_to_opening": "moved to the opening of a daily window",
}


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One line. `nominal_local` has the zone's offset, `nominal_at` is the same in UTC, `at` the actual instant."""

    nominal_local: str
    at: datetime
    flags: list[str]
    nominal_at: datetime

    @property
    def words(self) -> list[str]:
        return [WORDS[flag] for flag in self.flags]


def preview(
    spec: Spec, *, after: datetime, count: int, until: datetime | None = None, key: str = ""
) -> list[Occurrence]:
    """The next `count` occurrences in (after, until], oldest first. TimingInvalid where max_runs can't be counted."""
    _check_reach(spec, after)
    return [_shown(spec, at, key) for at in _bounded(spec, occurrences(spec, after=after, until=until, limit=count))]


def preview_previous(spec: Spec, *, before: datetime, count: int, key: str = "") -> list[Occurrence]:
    """The newest `count` occurrences before an instant, oldest first: what the trigger says, whether it ran or not."""
    _check_reach(spec, before)
    found = list(_bounded(spec, islice(_backwards(spec, before), count)))
    return [_shown(spec, each, key) for each in reversed(found)]


def _backwards(spec: Spec, before: datetime) -> Iterator[datetime]:
    while (found := previous_before(spec, before)) is not None:
        yield found
        before = found


def _bounded(spec: Spec, instants: Iterator[datetime]) -> Iterator[datetime]:
    """These instants, until too many others had to be passed over."""
    calendar = spec.calendar()
    begun = getattr(calendar, "tries", 0)
    for at in instants:
        yield at
        if getattr(calendar, "tries", 0) - begun > TRIES_MAX:
            return


def left_out(spec: Spec, *, after: datetime, until: datetime, limit: int = LEFT_OUT_MAX) -> list[Occurrence]:
    """What the bare trigger says in (after, until] and does not run: excluded, outside of windows, skipped.

    What is moved is not here: it runs, unless it was moved from an excluded day to a time outside of the windows. At
    most SCANNED_MAX instants are looked at.
    """
    whole = replace(spec, max_runs=None, runs_from=None)
    on_days = replace(whole, windows=())
    found: list[Occurrence] = []
    if spec.exclusion is not None or spec.dst_gap == "skip":
        bare = replace(on_days, exclusion=None, dst_gap="run_after")
        for at in occurrences(bare, after=after, until=until, limit=SCANNED_MAX):
            if len(found) == limit:
                break
            if reason := _why_no_day(spec, bare, on_days, at):
                found.append(Occurrence(_local(spec, at), at, [reason], at))
    if spec.windows and spec.outside == "skip":
        runs, most = next_after(whole, after), len(found) + limit
        for at in occurrences(on_days, after=after, until=until, limit=SCANNED_MAX):
            if len(found) == most:
                break
            while runs is not None and runs < at:
                runs = next_after(whole, runs)
            if runs != at:
                found.append(_shown_as(on_days, at, "outside_window"))
    return sorted(found, key=lambda each: each.nominal_at)[:limit]


def _check_reach(spec: Spec, at: datetime) -> None:
    """Runs inside of windows and calendars are counted day by day: not for centuries."""
    if spec.max_runs is None or spec.runs_from is None or not (spec.windows or spec.exclusion):
        return
    since = max(spec.runs_from, spec.start_at or spec.runs_from)
    if at - since > REACH and spec.max_runs - spec.runs_used > WALKED_MAX:
        until = instant_text(since + REACH)
        detail = f"is too far away for a schedule with max_runs, whose runs are counted one by one; ask up to {until}."
        raise TimingInvalid.one("/after", "range", detail)


def _why_no_day(spec: Spec, bare: Spec, on_days: Spec, at: datetime) -> str:
    exclusion, offsets = spec.exclusion, zone_offsets(spec.zone)
    day, clock = divmod(local_s(offsets, floor_s(at)), DAY_S)
    if exclusion is not None and exclusion.excludes(day):
        step = {"next_business_day": 1, "previous_business_day": -1}.get(spec.on_excluded)
        target = None if step is None else exclusion.business_day(day, step)
        if target is None or abs(target - day) > MOVED_DAYS_MAX:
            return "excluded"
        if place(offsets, target * DAY_S + clock, False, "first"):
            return ""
        # The clock skips its time on the day that it is moved to.
        landing = place(offsets, target * DAY_S + clock, spec.dst_gap == "run_after", "first")
        return "" if landing and runs_at(on_days.calendar(), instant(landing[0])) else "dst_gap_skipped"
    return "dst_gap_skipped" if spec.dst_gap == "skip" and "dst_gap_moved" in flags_of(bare.calendar(), at) else ""


def _shown_as(spec: Spec, at: datetime, reason: str) -> Occurrence:
    moved = [flag for flag in _shown(spec, at, "").flags if flag == "moved_from_excluded"]
    return Occurrence(_local(spec, at), at, [*moved, reason], at)


def _shown(spec: Spec, nominal: datetime, key: str) -> Occurrence:
    at = actual_at(spec, key, nominal)
    calendar = spec.calendar()
    if isinstance(calendar, Interval | At):
        flags = fold_flags(zone_offsets(spec.zone), floor_s(nominal))
    else:
        flags = flags_of(calendar, nominal)
    if at != nominal:
        flags = [*flags, "jittered"]
    if spec.jitter_s and jitter_bound(spec, nominal)[1]:
        flags = [*flags, "jitter_clipped"]
    return Occurrence(_local(spec, nominal), at, flags, nominal)


def _local(spec: Spec, at: datetime) -> str:
    return at.astimezone(load_zone(spec.zone)).isoformat()


@dataclass(frozen=True, slots=True)
class Difference:
    """What a change adds and takes away, by nominal instant; `until` is how far both were looked at."""

    added: list[Occurrence]
    removed: list[Occurrence]
    kept: int
    until: datetime | None


def compare(
    old: Spec, new: Spec, *, after: datetime, count: int, until: datetime | None = None, key: str = ""
) -> Difference:
    """Both over the same stretch: up to `until`, or as far as the one goes that reaches `count` first."""
    before = preview(old, after=after, count=count, until=until, key=key)
    then = preview(new, after=after, count=count, until=until, key=key)
    ends = [found[-1].nominal_at for found in (before, then) if len(found) == count]
    last = min([*ends, *([until] if until is not None else [])], default=None)
    if last is not None:
        before = [one for one in before if one.nominal_at <= last]
        then = [one for one in then if one.nominal_at <= last]
    had, has = {one.nominal_at for one in before}, {one.nominal_at for one in then}
    return Difference(
        [one for one in then if one.nominal_at not in had],
        [one for one in before if one.nominal_at not in has],
        len(had & has),
        last,
    )
