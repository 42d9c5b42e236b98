"""When a schedule runs: pure functions over a `Spec`, shared by fire, preview, explain and simulation.

A *nominal* instant is what the trigger says; the *actual* one adds jitter. Time is always an argument, an aware
datetime. Nominal instants strictly increase. The window (`start_at`, `end_at`) is inclusive at both ends and filters
nominal instants. `timing_calendar` tells what clock changes do; docs/time.md tells users.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import blake2b

from apps.schedules.timing_api import spec_from_api
from apps.schedules.timing_errors import FieldError, NotFoundYet, TimingInvalid
from apps.schedules.timing_spec import Spec, spec_from_json, spec_to_json
from apps.schedules.timing_triggers import At, Calendar, Cron, Every, Interval, Recurrence
from apps.schedules.timing_words import describe, notes, seed_notes
from apps.schedules.timing_zones import EPOCH, load_zone, zone_names

__all__ = [
    "At",
    "Cron",
    "Every",
    "FieldError",
    "Interval",
    "Recurrence",
    "Spec",
    "TimingInvalid",
    "actual_at",
    "count_between",
    "delayed",
    "describe",
    "is_look_again",
    "jitter_bound",
    "jitter_bound_before",
    "latest_between",
    "load_zone",
    "next_after",
    "notes",
    "occurrences",
    "previous_before",
    "seed_notes",
    "spec_from_api",
    "spec_from_json",
    "spec_to_json",
    "zone_names",
]

MEMO_SIZE = 50_000
LOOK_AGAIN_US = 1  # marks an instant that is no occurrence; what users can write has whole seconds
_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_CHEAP = (Interval, At)  # arithmetic costs less than the memo


def next_after(spec: Spec, after: datetime) -> datetime | None:
    """The earliest nominal instant strictly later than `after`, inside the window; None when there is none left.

    Where a bounded search found nothing, which is years away, it is the instant from which to look again: see
    `is_look_again`.
    """
    start = spec.start_at
    if start is not None and after < start:
        after = start - _MICROSECOND
    calendar = spec._calendar or spec.calendar()
    try:
        found = calendar.next_after(after) if type(calendar) in _CHEAP else _remembered(calendar, after)
    except NotFoundYet as error:
        found = error.searched_to.replace(microsecond=LOOK_AGAIN_US)
    if found is None:
        return None
    end = spec.end_at if spec.max_runs is None else spec.last_at(by=found)
    return None if end is not None and found > end else found


def is_look_again(spec: Spec, at: datetime) -> bool:
    """Whether an instant that `next_after` gave is no occurrence, but the time to search on from."""
    if at.microsecond != LOOK_AGAIN_US:
        return False
    try:
        return spec.calendar().next_after(at - _MICROSECOND) != at
    except NotFoundYet:
        return True


def previous_before(spec: Spec, before: datetime) -> datetime | None:
    """The latest nominal instant strictly earlier than `before`, inside the window. Costs the same over years."""
    try:
        return _previous(spec, before)
    except NotFoundYet:
        return None


def occurrences(spec: Spec, *, after: datetime, until: datetime | None = None, limit: int) -> Iterator[datetime]:
    """Nominal instants in (after, until], oldest first, at most `limit`; found one at a time as they are asked for.

    They end where a bounded search finds nothing.
    """
    if spec.start_at is not None and after < spec.start_at:
        after = spec.start_at - _MICROSECOND
    calendar = spec.calendar()
    for _ in range(limit):
        try:
            found = calendar.next_after(after)
        except NotFoundYet:
            return
        if found is None or (until is not None and found > until):
            return
        end = spec.end_at if spec.max_runs is None else spec.last_at(by=found)
        if end is not None and found > end:
            return
        yield found
        after = found


def count_between(spec: Spec, *, after: datetime, until: datetime) -> int:
    """How many nominal instants lie in (after, until]; exact, also over centuries of seconds."""
    if spec.start_at is not None:
        after = max(after, spec.start_at - _MICROSECOND)
    end = spec.last_at(by=until)
    if end is not None:
        until = min(until, end)
    return spec.calendar().count(after, until) if after < until else 0


def latest_between(spec: Spec, *, after: datetime, until: datetime, limit: int) -> tuple[list[datetime], int]:
    """The newest `limit` nominal instants in (after, until], oldest first, and how many there are in all (exact).

    The work is bounded by `limit` and by the number of months, never by the number of instants.
    """
    newest: list[datetime] = []
    before = until + _MICROSECOND
    while len(newest) < limit:
        try:
            found = _previous(spec, before)
        except NotFoundYet as error:
            found, before = None, error.searched_to
            if before > after:
                continue
        if found is None or found <= after:
            return newest[::-1], len(newest)
        newest.append(found)
        before = found
    return newest[::-1], count_between(spec, after=after, until=until)


def _previous(spec: Spec, before: datetime) -> datetime | None:
    end = spec.last_at(by=before)
    if end is not None and before > end:
        before = end + _MICROSECOND
    found = spec.calendar().previous_before(before)
    if spec.start_at is not None and found is not None and found < spec.start_at:
        return None
    return found


def actual_at(spec: Spec, key: str, nominal: datetime) -> datetime:
    """The nominal instant plus a whole number of seconds in [0, min(jitter_s, gap to the next nominal instant)).

    It stays inside of the daily window or open day, and of `end_at`. The same key and instant always give the same
    delay; different schedules spread evenly.
    """
    return delayed(key, nominal, jitter_bound(spec, nominal)[0]) if spec.jitter_s else nominal


def delayed(key: str, nominal: datetime, bound: int) -> datetime:
    """The nominal instant plus the jitter that this schedule has there: less than `bound` seconds."""
    if bound < 2:
        return nominal
    since = nominal - EPOCH
    seed = f"{key}:{since.days * 86_400 + since.seconds}".encode()
    return nominal + int.from_bytes(blake2b(seed, digest_size=8).digest(), "big") % bound * _SECOND


def jitter_bound(spec: Spec, nominal: datetime) -> tuple[int, bool]:
    """Jitter is less than so many seconds; and whether it is a window's end or `end_at` that says so."""
    return jitter_bound_before(spec, nominal, next_after(spec, nominal))


def jitter_bound_before(spec: Spec, nominal: datetime, following: datetime | None) -> tuple[int, bool]:
    """The same for whoever knows the next nominal instant already."""
    bound = spec.jitter_s
    if following is not None:
        bound = min(bound, (following - nominal) // _SECOND)
    ends = [end for end in (spec.open_until(nominal), spec.end_at) if end is not None]
    inside = min(((end - nominal) // _SECOND + 1 for end in ends), default=bound)
    return (inside, True) if inside < bound else (bound, False)


# Memo of next_after in two generations: when the young one is full it becomes the old one, so that what is still in use
# survives and the size stays bounded without a lock.
_young: dict[tuple[Calendar, datetime], datetime | None] = {}
_old: dict[tuple[Calendar, datetime], datetime | None] = {}


def _remembered(calendar: Calendar, after: datetime) -> datetime | None:
    global _young, _old
    key = (calendar, after)
    try:
        return _young[key]
    except KeyError:
        pass
    old = _old
    found = old[key] if key in old else calendar.next_after(after)
    if len(_young) >= MEMO_SIZE:
        _young, _old = {}, _young
    _young[key] = found
    return found
