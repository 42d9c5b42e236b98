"""When a PeriodicTask is due: pure functions over its schedule and the last slot that was made for it.

A slot is an instant of the schedule. Only the newest one that is due counts: what was missed before it is made up for
by it. Slots up to `since` (the last change of the task, or its last run) never count, so that a change, or a task that
was switched on again, starts from its own moment.

- Crontab fields have Celery's values and Celery's rule for days (day of month *and* weekday); clock changes follow
  `apps.schedules.timing` like every schedule of the platform.
- An interval counts from its start time, else from the last slot, else from `since`.
- A clocked task has one slot.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from celery.schedules import ParseException, crontab_parser

from apps.schedules.timing import Cron, Spec, load_zone, next_after, previous_before
from kernel.errors import InvalidInput

DAYS_LOOKED_AT = 20_000  # a day of month on a given weekday in February comes back after at most 40 years
PERIODS = ("days", "hours", "minutes", "seconds", "microseconds")
# name, values, lowest value; in the order of a cron expression. 7 is Sunday too.
FIELDS = (("minute", 60, 0), ("hour", 24, 0), ("day of month", 31, 1), ("month", 12, 1), ("day of week", 8, 0))
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MICROSECOND = timedelta(microseconds=1)


class Unservable(Exception):
    """This task's schedule can't be read; the reason is for the operator."""


@dataclass(frozen=True, slots=True)
class Crontab:
    """The five fields as stored, and the zone's name."""

    fields: tuple[str, str, str, str, str]
    zone: str


@dataclass(frozen=True, slots=True)
class When:
    """All that decides when a task is due. Instants are aware and UTC."""

    since: datetime
    last: datetime | None = None
    crontab: Crontab | None = None
    every: tuple[int, str] | None = None
    clocked_at: datetime | None = None
    solar: bool = False
    start_at: datetime | None = None
    expires_at: datetime | None = None
    expire_s: int | None = None


def newest_due(when: When, *, now: datetime) -> datetime | None:
    """The newest slot at or before `now` that is to be made; None when there is none. Raises Unservable."""
    if when.expires_at is not None and now >= when.expires_at:
        return None
    if when.start_at is not None and now < when.start_at:
        return None
    found = _newest(when, now)
    if found is None or (when.expire_s is not None and now >= found + timedelta(seconds=when.expire_s)):
        return None
    return found


def next_due(when: When, *, now: datetime) -> datetime | None:
    """The first slot after `now`, so that nobody has to look before; None when there is none. Raises Unservable."""
    after = max(now, when.start_at - _MICROSECOND) if when.start_at is not None else now
    if when.clocked_at is not None:
        found = when.clocked_at if when.clocked_at > after else None
    elif when.every is not None:
        anchor, every = _anchor(when), _length(when.every)
        found = anchor + max(1 if when.start_at is None else 0, (after - anchor) // every + 1) * every
    elif when.crontab is not None:
        found = _cron_next(_rule(when.crontab), after)
    else:
        raise Unservable(_without(when))
    if found is not None and when.expires_at is not None and found >= when.expires_at:
        return None
    return found


def _newest(when: When, now: datetime) -> datetime | None:
    if when.clocked_at is not None:
        # The row itself says whether it was made; a past time that was chosen on purpose counts, as in Celery.
        return (
            when.clocked_at if when.clocked_at <= now and (when.last is None or when.last < when.clocked_at) else None
        )
    after = when.since if when.last is None else max(when.since, when.last)
    if when.start_at is not None:
        after = max(after, when.start_at - _MICROSECOND)
    if when.every is not None:
        anchor, every = _anchor(when), _length(when.every)
        found = anchor + (now - anchor) // every * every
        return found if found > after else None
    if when.crontab is not None:
        return _cron_newest(_rule(when.crontab), after, now)
    raise Unservable(_without(when))


def _without(when: When) -> str:
    if when.solar:
        return "solar schedules are not served: use a crontab, an interval or a clocked time"
    return "it has no schedule"


def _anchor(when: When) -> datetime:
    return when.start_at or when.last or when.since.replace(microsecond=0)


def _length(every: tuple[int, str]) -> timedelta:
    count, period = every
    if period not in PERIODS or count < 1:
        raise Unservable(f"{count} {period} is not an interval")
    try:
        return timedelta(**{period: count})
    except OverflowError:
        raise Unservable(f"{count} {period} is too long for an interval") from None


@dataclass(frozen=True, slots=True)
class _Rule:
    """A cron spec, and the weekdays (0 is Sunday) that must match besides it: Celery wants both day fields to match."""

    spec: Spec
    weekdays: frozenset[int] | None


def _cron_newest(rule: _Rule, after: datetime, now: datetime) -> datetime | None:
    before = now + _MICROSECOND
    for _ in range(DAYS_LOOKED_AT):
        found = previous_before(rule.spec, before)
        if found is None or found <= after:
            return None
        start_of_day, _ = _day(rule, found)
        if start_of_day is None:
            return found
        before = min(start_of_day, found)
    return None


def _cron_next(rule: _Rule, after: datetime) -> datetime | None:
    for _ in range(DAYS_LOOKED_AT):
        found = next_after(rule.spec, after)
        if found is None:
            return None
        _, end_of_day = _day(rule, found)
        if end_of_day is None:
            return found
        after = max(end_of_day - _MICROSECOND, found)
    return None


def _day(rule: _Rule, at: datetime) -> tuple[datetime, datetime] | tuple[None, None]:
    """The bounds of the local day of an instant whose weekday does not match; (None, None) when it matches."""
    if rule.weekdays is None:
        return None, None
    zone = load_zone(rule.spec.zone)
    local = at.astimezone(zone)
    if local.isoweekday() % 7 in rule.weekdays:
        return None, None
    midnight = datetime(local.year, local.month, local.day, tzinfo=zone)
    return midnight.astimezone(UTC), (midnight + timedelta(days=1)).astimezone(UTC)


@lru_cache(maxsize=4_096)
def _rule(crontab: Crontab) -> _Rule:
    """The rule of Celery's fields. What starts with `*` stays as it is: it decides what a clock change does."""
    texts = [text.replace(" ", "").lower() for text in crontab.fields]
    for number, month in enumerate(MONTHS, 1):
        texts[3] = texts[3].replace(month, str(number))
    values = [_values(text, *field) for text, field in zip(texts, FIELDS, strict=True)]
    values[4] = sorted({number % 7 for number in values[4]})
    written = [
        text if text.startswith("*") else "*" if len(numbers) == full else _ranges(numbers)
        for text, numbers, full in zip(texts, values, (0, 0, 31, 12, 7), strict=True)
    ]
    weekdays = None
    if not written[2].startswith("*") and not written[4].startswith("*"):
        weekdays, written[4] = frozenset(values[4]), "*"
    try:
        load_zone(crontab.zone)
        spec = Spec(Cron((" ".join(written).upper(),)), zone=crontab.zone)
        spec.calendar()
    except InvalidInput as error:
        raise Unservable("; ".join(fault.detail for fault in error.errors)) from error
    return _Rule(spec, weekdays)


def _values(text: str, name: str, count: int, least: int) -> list[int]:
    try:
        found = sorted({int(number) for number in crontab_parser(count, least).parse(text)})
    except (ParseException, ValueError, IndexError, TypeError) as error:
        raise Unservable(f"{name} {text[:40]!r}: {error}") from error
    if not found or found[0] < least or found[-1] >= least + count:
        raise Unservable(f"{name} {text[:40]!r}: out of range")
    return found


def _ranges(numbers: Iterable[int]) -> str:
    """1,2,3,7 as 1-3,7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
