"""The API form of a schedule's timing to a `Spec`: every fault at once, each with a pointer and a way out."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import Any

from apps.schedules.cron_parse import compile_cron
from apps.schedules.exclusion import Exclusion
from apps.schedules.timing_build import calendar_of
from apps.schedules.timing_business_days import RUNS_A_DAY_MAX
from apps.schedules.timing_density import most_a_day
from apps.schedules.timing_errors import NotFoundYet, TimingInvalid
from apps.schedules.timing_sets import RecurrenceSet
from apps.schedules.timing_spec import CHOICES, LEAST_NUMBERS, MAX_NUMBERS, Spec
from apps.schedules.timing_trigger import TriggerForm, read_instant, read_trigger
from apps.schedules.timing_triggers import At, Calendar, Cron, Every, Interval, instant_text
from apps.schedules.timing_windows_api import read_windows
from apps.schedules.timing_zones import load_zone
from kernel.errors import Faults

PAST_TOLERANCE_S = 60  # a clock that is a little off, or a slow request, does not make an instant "past"
DEFAULTS = {each.name: each.default for each in fields(Spec)}
_GAPS_LOOKED_AT = 2_000
_MICROSECOND = timedelta(microseconds=1)


ExclusionOf = Callable[[str], tuple[str, Exclusion] | None]  # by id or name: the id, and the days
# How many runs an overlap policy lets be alive at once, waiting ones included; buffer_all has its own number.
ROOM = {"skip": 1, "buffer_one": 2, "cancel_running": 1, "replace_pending": 1}


def spec_from_api(
    data: Mapping[str, Any], *, now: datetime, min_interval_s: int = 1, key: str = "", runs_used: int = 0,
    exclusion_of: ExclusionOf | None = None,
) -> Spec:  # fmt: skip
    """Reads the members that decide when. Other members are not looked at.

    `key` seeds H, `min_interval_s` is the plan's bound, `runs_used` what former definitions used up of `max_runs`,
    `exclusion_of` finds a tenant's calendar. Raises TimingInvalid with all faults that were found. Without an anchor an
    interval is anchored to `start_at`, or else to `now`.
    """
    faults = Faults()
    form = read_trigger(data.get("trigger"), faults, key=key)
    zone = _zone(data, form, faults)
    window = [_instant(data, name, zone, faults) for name in ("start_at", "end_at")]
    trigger = form.build(zone=zone, start_at=window[0], now=now, faults=faults, start_written=data.get("start_at"))
    numbers = {name: _number(data, name, faults) for name in MAX_NUMBERS}
    spec = Spec(
        trigger=trigger or At(now),
        zone=zone,
        start_at=window[0],
        end_at=window[1],
        runs_used=0 if numbers["max_runs"] is None else runs_used,
        runs_from=None if numbers["max_runs"] is None else counts_from(trigger, window[0], now=now),
        windows=read_windows(data.get("windows"), faults),
        exclusion=_exclusion(data.get("calendar"), exclusion_of, faults),
        **numbers,
        **{name: _choice(data, name, faults) for name in CHOICES},
    )
    _check_policies(spec, faults)
    in_order = _check_window(spec, now, faults)
    if trigger is not None and in_order and not faults.errors:
        _check_trigger(spec, faults)
    if trigger is not None and in_order and not faults.errors:
        _check_moves(spec, now, faults)
    if trigger is not None and in_order and not faults.errors:
        _check_runs(spec, now, faults)
        _check_interval(spec, now, min_interval_s, form.pointer, faults)
    if faults.errors:
        raise TimingInvalid(faults.errors, "The schedule is not valid.")
    return spec


def counts_from(trigger: Any, start_at: datetime | None, *, now: datetime) -> datetime:
    """The occurrences of a schedule that is created now are those later than this instant, also for max_runs.

    One that is to start, or to run its one time, within the last minute still does: its request took a moment, or the
    sender's clock is a little off.
    """
    wanted = trigger.instant if isinstance(trigger, At) else start_at
    if wanted is not None and wanted <= now <= wanted + timedelta(seconds=PAST_TOLERANCE_S):
        return wanted - _MICROSECOND
    return now


def _exclusion(name: Any, exclusion_of: ExclusionOf | None, faults: Faults) -> Exclusion | None:
    if name is None:
        return None
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or "\x00" in name:
        faults.add("/calendar", "type", "must be the id or the name of a calendar.")
        return None
    found = exclusion_of(name) if exclusion_of is not None else None
    if found is None:
        faults.add("/calendar", "not_found", "There is no such calendar.")
    return None if found is None else found[1]


def _check_trigger(spec: Spec, faults: Faults) -> None:
    """What only shows when the calendar is made."""
    try:
        spec.calendar()
    except ValueError as error:
        faults.add(f"/trigger/{spec.trigger.kind}", "invalid", f"{error}.")


def _check_moves(spec: Spec, now: datetime, faults: Faults) -> None:
    if spec.exclusion is None or spec.on_excluded == "skip":
        return
    most = most_a_day(spec.trigger, now)
    if most > RUNS_A_DAY_MAX:
        detail = (
            f"moves runs to other days, which is for schedules with at most {RUNS_A_DAY_MAX} runs a day, and this one "
            f"has up to {most:,}; use 'skip'."
        )
        faults.add("/on_excluded", "contradiction", detail)


def _zone(data: Mapping[str, Any], form: TriggerForm, faults: Faults) -> str:
    name, pointer = data.get("timezone"), "/timezone"
    if form.zone is not None:
        if name is not None:
            detail = (
                f"the expression names the zone {form.zone!r}, and the schedule has a timezone; keep only timezone."
            )
            faults.add(form.pointer, "zone_twice", detail)
        else:
            name, pointer = form.zone, form.pointer
    if name is None:
        return "UTC"
    if not isinstance(name, str):
        faults.add(pointer, "type", "must be a text such as Europe/Berlin.")
        return "UTC"
    try:
        load_zone(name)
    except TimingInvalid as error:
        faults.add(pointer, error.errors[0].code, error.errors[0].detail)
        return "UTC"
    return name


def _instant(data: Mapping[str, Any], name: str, zone: str, faults: Faults) -> datetime | None:
    value = data.get(name)
    return None if value is None else read_instant(value, f"/{name}", zone, faults)


def _number(data: Mapping[str, Any], name: str, faults: Faults) -> Any:
    value, low, high = data.get(name), LEAST_NUMBERS.get(name, 0), MAX_NUMBERS[name]
    if value is None:
        return DEFAULTS[name]
    fraction = isinstance(value, float) and name == "catch_up_per_s"
    if isinstance(value, bool) or not (isinstance(value, int) or fraction):
        faults.add(f"/{name}", "type", "must be a whole number." if name != "catch_up_per_s" else "must be a number.")
    elif not low <= value <= high:
        faults.add(f"/{name}", "range", f"must be from {low} to {high}.")
    else:
        return value
    return DEFAULTS[name]


def _choice(data: Mapping[str, Any], name: str, faults: Faults) -> Any:
    value = data.get(name)
    if value is None:
        return DEFAULTS[name]
    if isinstance(value, str) and value in CHOICES[name]:
        return value
    faults.add(f"/{name}", "choice", f"must be one of {', '.join(CHOICES[name])}.")
    return DEFAULTS[name]


def _check_policies(spec: Spec, faults: Faults) -> None:
    many = {"fire_all": spec.misfire_max, "fire_latest_n": spec.misfire_max}.get(spec.misfire, 1)
    room = spec.overlap_max + 1 if spec.overlap == "buffer_all" else ROOM.get(spec.overlap)
    if room is not None and many > room:
        keeps = "only the newest" if spec.overlap in ("cancel_running", "replace_pending") else f"all but {room}"
        verb = "leaves" if keeps.startswith("only") else "drops"
        detail = (
            f"misfire {spec.misfire!r} makes up for up to {many} runs at once, but overlap {spec.overlap!r} {verb} "
            f"{keeps} of them; use misfire 'fire_once', a misfire_max of at most {room}, or overlap 'allow'."
        )
        faults.add("/overlap", "contradiction", detail)
    if spec.catch_up_per_s is not None and spec.misfire == "skip":
        faults.add(
            "/catch_up_per_s", "contradiction", "misfire 'skip' makes up for nothing; use 'fire_all' or leave it out."
        )
    age, grace = spec.misfire_max_age_s, spec.grace_s
    if age is not None and age <= grace:
        detail = f"is not above grace_s ({grace}): what is that young is on time, so nothing would be made up for."
        faults.add("/misfire_max_age_s", "contradiction", detail)
    if spec.outside != "skip" and not spec.windows and not _told(faults, "/windows"):
        faults.add(
            "/outside", "contradiction", "says what happens outside of windows, and there are none; give windows."
        )
    if spec.on_excluded != "skip" and spec.exclusion is None and not _told(faults, "/calendar"):
        faults.add("/on_excluded", "contradiction", "says what happens on excluded days; give a calendar.")


def _told(faults: Faults, pointer: str) -> bool:
    return any(error.pointer.startswith(pointer) for error in faults.errors)


def _check_window(spec: Spec, now: datetime, faults: Faults) -> bool:
    if spec.end_at is None:
        return True
    if spec.start_at is not None and spec.end_at < spec.start_at:
        ends, starts = instant_text(spec.end_at), instant_text(spec.start_at)
        faults.add("/end_at", "window", f"the window ends before it starts: {ends} is before {starts}.")
        return False
    if spec.end_at < now - timedelta(seconds=PAST_TOLERANCE_S):
        faults.add("/end_at", "past", f"lies in the past, it is {instant_text(now)} now: the schedule would never run.")
        return False
    return True


def _check_runs(spec: Spec, now: datetime, faults: Faults) -> None:
    """The trigger has an instant from now on, inside the window."""
    earliest = now - timedelta(seconds=PAST_TOLERANCE_S)
    if isinstance(spec.trigger, At):
        instant = spec.trigger.instant
        if instant < earliest:
            detail = f"{instant_text(instant)} lies in the past, it is {instant_text(now)} now; give a later instant."
            faults.add("/trigger/at", "past", detail)
            return
        earliest = instant - _MICROSECOND
    if spec.start_at is not None:
        earliest = max(earliest, spec.start_at - _MICROSECOND)
    bare = calendar_of(spec.trigger, spec.zone, spec.dst_gap, spec.dst_fold)
    try:
        found = spec.calendar().next_after(earliest)
        if isinstance(bare, RecurrenceSet):
            bare.rule_next_after(earliest)  # an added instant makes no search for the rule cheaper
    except NotFoundYet as error:
        _too_rare(spec, error.searched_to, faults)
        return
    if spec.max_runs is not None and spec.runs_used >= spec.max_runs:
        detail = f"{spec.runs_used} runs are used up already; give a larger number."
        faults.add("/max_runs", "used_up", detail)
    elif found is None:
        since = instant_text(earliest)
        inside = " inside of its windows and calendar" if spec.windows or spec.exclusion else ""
        hint = "look at the year field" if isinstance(spec.trigger, Cron) and not inside else "look at its bounds"
        faults.add(f"/trigger/{spec.trigger.kind}", "never", f"never runs{inside} after {since}; {hint}.")
    elif spec.end_at is not None and found > spec.end_at:
        faults.add("/end_at", "never", f"ends before the first run, which would be at {instant_text(found)}.")


def _too_rare(spec: Spec, searched_to: datetime, faults: Faults) -> None:
    """A search that is bounded found nothing: it may run one day, but each look for that day would cost too much."""
    if spec.end_at is not None and spec.end_at <= searched_to:
        faults.add("/end_at", "never", f"ends before the first run, which would be after {instant_text(searched_to)}.")
        return
    searched_to = searched_to.replace(microsecond=0)
    limits = "its windows and calendar let it" if spec.windows or spec.exclusion else "its filters let it"
    detail = (
        f"runs at no time up to {instant_text(searched_to)} at which {limits}; what is that rare is refused, "
        "as a search that long costs too much; look at how its times and its limits meet."
    )
    faults.add(f"/trigger/{spec.trigger.kind}", "never", detail)


def _check_interval(spec: Spec, now: datetime, min_interval_s: int, pointer: str, faults: Faults) -> None:
    """No two runs closer than the plan allows. Cron is walked, which gives the evidence; it is bounded."""
    if min_interval_s <= 1:
        return
    if isinstance(spec.trigger, Interval) and spec.trigger.every_s < min_interval_s:
        detail = f"every {spec.trigger.every_s} s is more often than the plan allows: at least {min_interval_s} s."
        faults.add(pointer, "below_minimum", detail)
    if not isinstance(spec.trigger, Interval | At | Every) and (pair := _too_close(spec, now, min_interval_s)):
        earlier, later = map(instant_text, pair)
        detail = f"runs at {earlier} and again at {later}; the plan allows runs at least {min_interval_s} s apart."
        faults.add(pointer, "below_minimum", detail)


def _too_close(spec: Spec, now: datetime, min_interval_s: int) -> tuple[datetime, datetime] | None:
    exprs = spec.trigger.exprs if isinstance(spec.trigger, Cron) else ()
    if exprs and min_interval_s <= 60 and all(compile_cron(text).whole_minutes() for text in exprs):
        return None
    least = timedelta(seconds=min_interval_s)
    for earlier, later in islice(pairwise(_walk(spec.calendar(), now)), _GAPS_LOOKED_AT):
        if later - earlier < least:
            return earlier, later
    return None


def _walk(calendar: Calendar, after: datetime) -> Iterator[datetime]:
    at: datetime | None = after
    with suppress(NotFoundYet):
        while at is not None and (at := calendar.next_after(at)) is not None:
            yield at
