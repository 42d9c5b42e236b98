"""The API form of a schedule's timing to a `Spec`: every fault at once, each with a pointer and a way out."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import Any

from apps.schedules.cron_parse import compile_cron
from apps.schedules.timing_errors import TimingInvalid
from apps.schedules.timing_spec import CHOICES, MAX_NUMBERS, At, Calendar, Cron, Interval, Spec, instant_text
from apps.schedules.timing_trigger import TriggerForm, read_instant, read_trigger
from apps.schedules.timing_zones import load_zone
from kernel.errors import Faults

PAST_TOLERANCE_S = 60  # a clock that is a little off, or a slow request, does not make an instant "past"
DEFAULTS = {each.name: each.default for each in fields(Spec)}
_GAPS_LOOKED_AT = 2_000
_MICROSECOND = timedelta(microseconds=1)


def spec_from_api(data: Mapping[str, Any], *, now: datetime, min_interval_s: int = 1, key: str = "") -> Spec:
    """Reads trigger, timezone, start_at, end_at, jitter_s, misfire, grace_s, misfire_max, overlap, dst_gap, dst_fold.

    Other members are not looked at. `key` seeds H, `min_interval_s` is the plan's bound. Raises TimingInvalid with all
    faults that were found. Without an anchor an interval is anchored to `start_at`, or else to `now`.
    """
    faults = Faults()
    form = read_trigger(data.get("trigger"), faults, key=key)
    zone = _zone(data, form, faults)
    window = [_instant(data, name, zone, faults) for name in ("start_at", "end_at")]
    trigger = form.build(zone=zone, start_at=window[0], now=now, faults=faults)
    spec = Spec(
        trigger=trigger or At(now),
        zone=zone,
        start_at=window[0],
        end_at=window[1],
        **{name: _number(data, name, faults) for name in MAX_NUMBERS},
        **{name: _choice(data, name, faults) for name in CHOICES},
    )
    _check_policies(spec, faults)
    in_order = _check_window(spec, now, faults)
    if trigger is not None and in_order and not faults.errors:
        _check_runs(spec, now, faults)
        _check_interval(spec, now, min_interval_s, form.pointer, faults)
    if faults.errors:
        raise TimingInvalid(faults.errors, "The schedule is not valid.")
    return spec


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
    value, low, high = data.get(name), int(name == "misfire_max"), MAX_NUMBERS[name]
    if value is None:
        return DEFAULTS[name]
    if isinstance(value, bool) or not isinstance(value, int):
        faults.add(f"/{name}", "type", "must be a whole number.")
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
    many = spec.misfire == "fire_all" or (spec.misfire == "fire_latest_n" and spec.misfire_max > 1)
    if spec.overlap == "skip" and many:
        detail = (
            f"misfire {spec.misfire!r} makes up for several runs at once, but overlap 'skip' drops all but the first "
            "of them; use misfire 'fire_once', or overlap 'allow'."
        )
        faults.add("/overlap", "contradiction", detail)


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
    found = spec.calendar().next_after(earliest)
    if found is None:
        since = instant_text(earliest)
        faults.add(f"/trigger/{spec.trigger.kind}", "never", f"never runs after {since}; look at the year field.")
    elif spec.end_at is not None and found > spec.end_at:
        faults.add("/end_at", "never", f"ends before the first run, which would be at {instant_text(found)}.")


def _check_interval(spec: Spec, now: datetime, min_interval_s: int, pointer: str, faults: Faults) -> None:
    """No two runs closer than the plan allows. Cron is walked, which gives the evidence; it is bounded."""
    if min_interval_s <= 1:
        return
    if isinstance(spec.trigger, Interval) and spec.trigger.every_s < min_interval_s:
        detail = f"every {spec.trigger.every_s} s is more often than the plan allows: at least {min_interval_s} s."
        faults.add(pointer, "below_minimum", detail)
    if isinstance(spec.trigger, Cron) and (pair := _too_close(spec, now, min_interval_s)):
        earlier, later = map(instant_text, pair)
        detail = f"runs at {earlier} and again at {later}; the plan allows runs at least {min_interval_s} s apart."
        faults.add(pointer, "below_minimum", detail)


def _too_close(spec: Spec, now: datetime, min_interval_s: int) -> tuple[datetime, datetime] | None:
    if min_interval_s <= 60 and all(compile_cron(text).whole_minutes() for text in spec.trigger.as_json()["cron"]):
        return None
    least = timedelta(seconds=min_interval_s)
    for earlier, later in islice(pairwise(_walk(spec.calendar(), now)), _GAPS_LOOKED_AT):
        if later - earlier < least:
            return earlier, later
    return None


def _walk(calendar: Calendar, after: datetime) -> Iterator[datetime]:
    at: datetime | None = after
    while at is not None and (at := calendar.next_after(at)) is not None:
        yield at
